// The table of a race: which figures, how each is written, which is best. Pure.

import { count, duration, percent, rate, ratio } from '../format.js';

const LOW = (a, b) => a < b;
const HIGH = (a, b) => a > b;

/** In the order of the rows. `better`: which of two is; `factor`: how many times the best, too. */
export const FIGURES = [
  { name: 'finish', value: (r) => r.finish_time, write: duration, better: LOW, factor: true },
  { name: 'rate', value: (r) => r.tokens_per_second, write: rate, better: HIGH, factor: true },
  { name: 'ttft_p50', value: (r) => r.ttft?.p50 ?? null, write: duration, better: LOW },
  { name: 'ttft_p95', value: (r) => r.ttft?.p95 ?? null, write: duration, better: LOW },
  { name: 'itl_p50', value: (r) => r.itl?.p50 ?? null, write: duration, better: LOW, counts: hasGaps },
  { name: 'itl_p95', value: (r) => r.itl?.p95 ?? null, write: duration, better: LOW, counts: hasGaps },
  { name: 'kv_waste', value: (r) => r.kv_waste, write: percent, better: LOW },
  { name: 'padding', value: (r) => r.padding_tokens, write: count, better: LOW },
  { name: 'recomputed', value: (r) => r.recomputed_tokens, write: count, better: LOW },
  { name: 'idle_rows', value: (r) => r.finished_rows, write: count, better: LOW },
  { name: 'cached', value: (r) => r.cached_tokens, write: count },
  { name: 'preemptions', value: (r) => r.preemptions, write: count, better: LOW },
  { name: 'tokens', value: (r) => r.output_tokens, write: count },
  { name: 'complete', value: (r) => r.num_complete, write: (value, r) => `${value} / ${r.num_requests}` },
];

/** Tokens that were given all at once have no gaps to be proud of. */
function hasGaps(result) {
  return result.itl.p50 > 0;
}

/**
 * A row for each figure, a cell for each result.
 * @param {{state: string, result: object|null}[]} entries
 * @returns {{name: string, cells: {text: string|null, absent: string|null, best: boolean, factor: string|null}[]}[]}
 */
export function rowsOf(entries) {
  return FIGURES.map((figure) => {
    const best = bestOf(figure, entries);
    return { name: figure.name, cells: entries.map((entry) => cellOf(figure, entry, best)) };
  });
}

/** The best value among those that ran whole, where they differ; else `null`. */
function bestOf({ value, better, counts = () => true }, entries) {
  if (better === undefined) return null;
  const values = entries
    .filter(isWhole)
    .map(({ result }) => result)
    .filter((result) => value(result) !== null && counts(result))
    .map(value);
  if (new Set(values).size < 2) return null;
  return values.reduce((best, next) => (better(next, best) ? next : best));
}

const isWhole = ({ state, result }) =>
  state === 'done' && result !== null && result.num_complete === result.num_requests;

function cellOf(figure, entry, best) {
  const { result } = entry;
  if (result === null) return { text: null, absent: 'result', best: false, factor: null };
  const value = figure.value(result);
  if (value === null)
    return { text: null, absent: whyAbsent(figure.name, result), best: false, factor: null };
  const counts = (figure.counts ?? (() => true))(result) && isWhole(entry);
  return {
    text: figure.write(value, result),
    absent: null,
    best: counts && best !== null && value === best,
    factor: figure.factor && counts && best !== null ? factorOf(value, best, figure.better) : null,
  };
}

/** How many times worse than the best. */
function factorOf(value, best, better) {
  if (value === best || value === 0 || best === 0) return null;
  return ratio(better === LOW ? value / best : best / value);
}

/** An engine that shows its steps and tells nothing has nothing; of the others one does not know. */
function whyAbsent(name, result) {
  if (name === 'kv_waste' && result.engine?.kv !== null && result.engine?.kv !== 'not_exposed')
    return 'kv_waste';
  if (name === 'cached' && result.preemptions !== null) return 'cached';
  if (['ttft_p50', 'ttft_p95', 'itl_p50', 'itl_p95', 'rate', 'finish'].includes(name)) return 'never';
  return 'not_exposed';
}

/** Texts of the whole table, for a document. @param {string[]} titles of the engines */
export function asMarkdown(titles, rows, nameOf, textOf) {
  const line = (cells) => `| ${cells.join(' | ')} |`;
  const body = rows.map((row) => line([nameOf(row), ...row.cells.map(textOf)]));
  return [line(['', ...titles]), line(['---', ...titles.map(() => '---:')]), ...body, ''].join('\n');
}

/** Plain numbers: seconds, tokens, shares. */
export function asCsv(titles, entries) {
  const quote = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const lines = FIGURES.map(({ name, value }) =>
    [name, ...entries.map(({ result }) => String((result && value(result)) ?? ''))].join(','),
  );
  return `${[['', ...titles.map(quote)].join(','), ...lines].join('\n')}\n`;
}
