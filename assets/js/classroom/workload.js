// A workload as the page handles it: checked field by field, in the address, in a file. Pure.

export const DEFAULTS = {
  students: 16,
  arrivals: 'burst',
  window: 0,
  prompt_words: [8, 24],
  shared_words: 0,
  output_tokens: [32],
  seed: 0,
};
export const ARRIVALS = ['burst', 'uniform', 'poisson'];
export const MOST_ENTRIES = 4;
const MOST_LENGTHS = 64;
const MOST_WORDS = 2000;
const LARGEST_SEED = 2 ** 32 - 1;

/** What is wrong with a workload: the field, and the key of a sentence with its values. */
export class WorkloadError extends Error {
  constructor(field, key, values = {}) {
    super(`${field}: ${key}`);
    this.field = field;
    this.key = key;
    this.values = values;
  }
}

/**
 * The workload with every field in it. @param {object} limits as the server told them
 * @throws {WorkloadError} for the first field that is wrong
 */
export function checked(given, limits) {
  if (typeof given !== 'object' || given === null || Array.isArray(given))
    throw new WorkloadError('workload', 'object');
  const unknown = Object.keys(given).find((name) => !(name in DEFAULTS));
  if (unknown !== undefined) throw new WorkloadError(unknown, 'unknown');
  const workload = { ...DEFAULTS, ...given };
  whole('students', workload.students, 1, limits.students);
  if (!ARRIVALS.includes(workload.arrivals))
    throw new WorkloadError('arrivals', 'choice', { choices: ARRIVALS.join(', ') });
  within('window', workload.window, 0, limits.window);
  list('prompt_words', workload.prompt_words, 2, 2);
  for (const words of workload.prompt_words) whole('prompt_words', words, 1, MOST_WORDS);
  whole('shared_words', workload.shared_words, 0, MOST_WORDS);
  within('prompt_words', workload.shared_words + Math.max(...workload.prompt_words), 1, limits.prompt_words);
  list('output_tokens', workload.output_tokens, 1, MOST_LENGTHS);
  for (const tokens of workload.output_tokens) whole('output_tokens', tokens, 1, limits.output_tokens);
  whole('seed', workload.seed, 0, LARGEST_SEED);
  return workload;
}

function within(field, value, least, most) {
  if (typeof value !== 'number' || !(value >= least && value <= most))
    throw new WorkloadError(field, 'range', { value: String(value), least, most });
}

function whole(field, value, least, most) {
  if (!Number.isInteger(value))
    throw new WorkloadError(field, 'whole', { value: String(value), least, most });
  within(field, value, least, most);
}

function list(field, value, fewest, most) {
  if (!Array.isArray(value) || value.length < fewest || value.length > most)
    throw new WorkloadError(field, 'list', { fewest, most });
}

// In the address

/** Base64url of its JSON. */
export function encode(workload) {
  return btoa(JSON.stringify(workload)).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
}

/** The other way round. @throws {WorkloadError} for what was never made by `encode` */
export function decode(text, limits) {
  let given;
  try {
    given = JSON.parse(atob(text.replaceAll('-', '+').replaceAll('_', '/')));
  } catch {
    throw new WorkloadError('workload', 'address');
  }
  return checked(given, limits);
}

/** [{backend: 'generate', mode: 'static'}, {backend: 'naive', mode: null}] ↔ 'generate:static,naive' */
export const entriesAsText = (entries) => entries.map(nameOf).join(',');

export function entriesFromText(text) {
  return text
    .split(',')
    .filter((name) => name !== '')
    .map((name) => {
      const [backend, mode = null] = name.split(':');
      return { backend, mode };
    });
}

/** What an entry is called in the address and in a file. */
export const nameOf = ({ backend, mode }) => (mode === null ? backend : `${backend}:${mode}`);

// In a file

export function asFile(workload, entries, together) {
  return `${JSON.stringify({ workload, race: entries.map(nameOf), together }, null, 2)}\n`;
}

/** @returns {{workload: object, entries: object[]|null, together: boolean}} @throws {WorkloadError} */
export function fromFile(text, limits) {
  let given;
  try {
    given = JSON.parse(text);
  } catch {
    throw new WorkloadError('workload', 'file');
  }
  const isWhole = typeof given === 'object' && given !== null && 'workload' in given;
  const { workload, race = null, together = false } = isWhole ? given : { workload: given };
  if (race !== null && !(Array.isArray(race) && race.every((name) => typeof name === 'string')))
    throw new WorkloadError('race', 'names');
  return {
    workload: checked(workload, limits),
    entries: race === null ? null : entriesFromText(race.join(',')),
    together: together === true,
  };
}

/** '32, 128 64' → [32, 128, 64]; what is no number stays what it was, to be refused by its name. */
export function numbersFrom(text) {
  return text
    .split(/[\s,]+/)
    .filter((part) => part !== '')
    .map(numberFrom);
}

export function numberFrom(text) {
  const value = text.trim() === '' ? Number.NaN : Number(text);
  return Number.isNaN(value) ? text : value;
}
