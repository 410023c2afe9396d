import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';
import { FIGURES, asCsv, asMarkdown, rowsOf } from '../../assets/js/classroom/figures.js';
import { axisOf, endOf, laneHeight, requestOfLane } from '../../assets/js/classroom/race_layout.js';
import { contentOf } from '../../assets/js/classroom/pointing.js';
import { linkTo, phoneBase } from '../../assets/js/classroom/join.js';
import { notesOf } from '../../assets/js/classroom/result_table.js';
import { shareOf, statusOf } from '../../assets/js/classroom/entry_view.js';
import { spansOf, tokenTimes } from '../../assets/js/request.js';
import {
  DEFAULTS,
  asFile,
  checked,
  decode,
  encode,
  entriesAsText,
  entriesFromText,
  fromFile,
  numberFrom,
  numbersFrom,
} from '../../assets/js/classroom/workload.js';

const LIMITS = { students: 64, window: 120, prompt_words: 2000, output_tokens: 512 };
const words = (key, values = {}) =>
  `${key}${Object.keys(values).length > 0 ? ` ${JSON.stringify(values)}` : ''}`;

const lane = (changes = {}) => ({
  student: 0,
  arrived: 0,
  first_scheduled: 1,
  token_times: [2, 3, 4],
  num_tokens: 3,
  max_tokens: 3,
  preempted: [],
  ended: 4,
  reason: 'length',
  error: null,
  ...changes,
});

const result = (changes = {}) => ({
  engine: { model: 'tiny', dtype: 'float32', device: 'cpu', kv: 'measured', kv_note: null },
  num_requests: 2,
  num_complete: 2,
  num_short: 0,
  num_failed: 0,
  error: null,
  num_others: 0,
  finish_time: 4,
  ttft: { p50: 1, p95: 2 },
  itl: { p50: 0.1, p95: 0.2 },
  num_zero_gaps: 0,
  output_tokens: 6,
  tokens_per_second: 10,
  kv_waste: 0.5,
  padding_tokens: 0,
  recomputed_tokens: 0,
  finished_rows: 0,
  cached_tokens: 0,
  preemptions: 0,
  lanes: [lane()],
  ...changes,
});

const entry = (backend, changes = {}, state = 'done') => ({
  backend,
  title: backend,
  mode: null,
  state,
  reason: null,
  engine: null,
  num_ended: 2,
  num_requests: 2,
  result: changes === null ? null : result(changes),
});

// The workload

test('a workload survives the address, and a link names its engines and modes', () => {
  const workload = { ...DEFAULTS, students: 5, arrivals: 'poisson', window: 2.5, output_tokens: [32, 128] };
  assert.deepEqual(decode(encode(workload), LIMITS), workload);
  assert.match(encode(workload), /^[A-Za-z0-9_-]+$/);
  const entries = [
    { backend: 'generate', mode: 'static' },
    { backend: 'naive', mode: null },
  ];
  assert.equal(entriesAsText(entries), 'generate:static,naive');
  assert.deepEqual(entriesFromText('generate:static,naive'), entries);
  assert.deepEqual(entriesFromText(''), []);
});

test('a workload survives a file, with its engines or without', () => {
  const entries = [{ backend: 'vllm', mode: 'blocking' }];
  assert.deepEqual(fromFile(asFile(DEFAULTS, entries, true), LIMITS), {
    workload: DEFAULTS,
    entries,
    together: true,
  });
  assert.deepEqual(fromFile('{"students": 3}', LIMITS), {
    workload: { ...DEFAULTS, students: 3 },
    entries: null,
    together: false,
  });
});

test('what is wrong with a workload is told by its field, its value and its limit', () => {
  const wrong = [
    [{ students: 0 }, 'students', 'range', { value: '0', least: 1, most: 64 }],
    [{ students: 2.5 }, 'students', 'whole', { value: '2.5', least: 1, most: 64 }],
    [{ students: 'many' }, 'students', 'whole', { value: 'many', least: 1, most: 64 }],
    [{ window: 121 }, 'window', 'range', { value: '121', least: 0, most: 120 }],
    [{ window: NaN }, 'window', 'range', { value: 'NaN', least: 0, most: 120 }],
    [{ arrivals: 'flood' }, 'arrivals', 'choice', { choices: 'burst, uniform, poisson' }],
    [{ prompt_words: [8] }, 'prompt_words', 'list', { fewest: 2, most: 2 }],
    [{ shared_words: 1990 }, 'prompt_words', 'range', { value: '2014', least: 1, most: 2000 }],
    [{ output_tokens: [] }, 'output_tokens', 'list', { fewest: 1, most: 64 }],
    [{ output_tokens: [32, 513] }, 'output_tokens', 'range', { value: '513', least: 1, most: 512 }],
    [{ seed: -1 }, 'seed', 'range', { value: '-1', least: 0, most: 2 ** 32 - 1 }],
    [{ teachers: 1 }, 'teachers', 'unknown', {}],
    [[], 'workload', 'object', {}],
  ];
  for (const [given, field, key, values] of wrong) {
    assert.throws(() => checked(given, LIMITS), { field, key, values });
  }
});

test('a link or a file that is none is told as such', () => {
  for (const text of ['', '%%%', 'bm90IGpzb24']) {
    assert.throws(() => decode(text, LIMITS), { field: 'workload', key: 'address' });
  }
  assert.throws(() => fromFile('no JSON', LIMITS), { key: 'file' });
  assert.throws(() => fromFile('{"workload": {}, "race": [1]}', LIMITS), { field: 'race', key: 'names' });
});

test('numbers are read as written, and what is none stays to be refused', () => {
  assert.deepEqual(numbersFrom('32, 128 64,256'), [32, 128, 64, 256]);
  assert.deepEqual(numbersFrom('32 lots'), [32, 'lots']);
  assert.equal(numberFrom('1e1'), 10);
  assert.equal(numberFrom(''), '');
});

// The picture

test('a lane is queued, prefilled, decoded', () => {
  const request = requestOfLane(lane(), true);
  assert.deepEqual(
    [...spansOf(request, 9)],
    [
      { kind: 'queued', start: 0, end: 1 },
      { kind: 'prefill', start: 1, end: 2 },
      { kind: 'decode', start: 2, end: 4 },
    ],
  );
  assert.deepEqual(tokenTimes(request), [2, 3, 4]);
  assert.equal(request.finishedTime, 4);
});

test('a preempted request waits, is computed again, and goes on', () => {
  const request = requestOfLane(lane({ preempted: [[3.2, 3.6]] }), true);
  const kinds = [...spansOf(request, 9)].map(({ kind, start }) => [kind, start]);
  assert.deepEqual(kinds.slice(2), [
    ['decode', 2],
    ['preempted', 3.2],
    ['prefill', 3.6],
    ['decode', 4],
  ]);
  const waiting = requestOfLane(lane({ preempted: [[3.2, null]], ended: null, token_times: [2, 3] }), true);
  assert.deepEqual([...spansOf(waiting, 5)].at(-1), { kind: 'preempted', start: 3.2, end: 5 });
});

test('where an engine shows no steps, a lane does not guess when it was scheduled', () => {
  const request = requestOfLane(lane({ first_scheduled: null }), false);
  const kinds = [...spansOf(request, 9)].map(({ kind }) => kind);
  assert.deepEqual(kinds, ['sent', 'decode']);
});

test('a request that was refused has no lane', () => {
  assert.equal(requestOfLane(lane({ arrived: null, token_times: [], ended: null }), true), null);
});

test('one axis holds every engine, from 0 to beyond the last end', () => {
  const fast = result({ lanes: [lane()] });
  const slow = result({ lanes: [lane({ ended: 20, token_times: [2, 19] })] });
  assert.equal(endOf(slow), 20);
  const { end, ticks } = axisOf([fast, slow], 8);
  assert.ok(end > 20 && end < 22);
  assert.deepEqual(ticks, [0, 5, 10, 15, 20]);
  assert.equal(axisOf([result({ lanes: [] })], 8).ticks[0], 0);
  assert.ok(laneHeight(16, 1) > laneHeight(64, 1));
});

test('a lane in words counts from its own arrival', () => {
  const { seat, lines } = contentOf(lane({ student: 2, arrived: 0.5 }), words);
  assert.equal(seat, 2);
  const values = Object.fromEntries(lines);
  assert.equal(values['classroom.lane.queue'], '500 ms');
  assert.equal(values['classroom.lane.ttft'], '1.50 s');
  assert.equal(contentOf(lane({ arrived: null, error: 'too long' }), words).note, 'too long');
});

// How far it is

test('the share of a starting engine is its own, then that of its requests', () => {
  const told = { num_ended: 1, num_requests: 4, reason: null, state: 'running', engine: null };
  assert.equal(shareOf(told), 0.25);
  const starting = {
    ...told,
    state: 'starting',
    engine: { state: 'starting', progress: 0.4, reason: 'Loading' },
  };
  assert.equal(shareOf(starting), 0.4);
  assert.equal(statusOf(starting, words), 'classroom.state.starting · Loading · 40%');
  assert.match(statusOf({ ...told, engine: { state: 'paused' } }, words), /state\.paused/);
  assert.equal(
    statusOf({ ...told, state: 'unavailable', reason: 'No part.' }, words)
      .split(': ')
      .at(-1),
    'No part.',
  );
});

// The table

const cellsOf = (entries, name) => rowsOf(entries).find((row) => row.name === name).cells;

test('the best of a row is marked, and how many times of it the others took', () => {
  const entries = [
    entry('a', { finish_time: 4, tokens_per_second: 10 }),
    entry('b', { finish_time: 1, tokens_per_second: 40 }),
  ];
  assert.deepEqual(
    cellsOf(entries, 'finish').map(({ best, factor }) => [best, factor]),
    [
      [false, '4.0×'],
      [true, null],
    ],
  );
  assert.deepEqual(
    cellsOf(entries, 'rate').map(({ best, factor }) => [best, factor]),
    [
      [false, '4.0×'],
      [true, null],
    ],
  );
});

test('nothing is best alone, among equals, or without having run whole', () => {
  const isAnyBest = (...entries) => rowsOf(entries).some(({ cells }) => cells.some(({ best }) => best));
  assert.equal(isAnyBest(entry('a')), false);
  assert.equal(isAnyBest(entry('a'), entry('b')), false);
  assert.equal(isAnyBest(entry('a'), entry('b', { finish_time: 1 }, 'stopped')), false);
  assert.equal(isAnyBest(entry('a'), entry('b', { finish_time: 1, num_complete: 1 })), false);
  assert.equal(isAnyBest(entry('a'), entry('b', { finish_time: 1 })), true);
});

test('tokens that came all at once win nothing for their gaps', () => {
  const cells = cellsOf(
    [entry('a', { itl: { p50: 0, p95: 0 } }), entry('b'), entry('c', { itl: { p50: 0.3, p95: 0.4 } })],
    'itl_p50',
  );
  assert.deepEqual(
    cells.map(({ best }) => best),
    [false, true, false],
  );
});

test('what is not there is said, and never zero', () => {
  const hidden = {
    engine: { kv: 'not_exposed' },
    kv_waste: null,
    padding_tokens: null,
    cached_tokens: null,
    preemptions: null,
  };
  const entries = [
    entry('remote', hidden),
    entry('naive', { engine: { kv: 'derived' }, kv_waste: null, cached_tokens: null }),
    entry('broken', null, 'unavailable'),
    entry('late', { ttft: null }),
  ];
  const absent = (name) => cellsOf(entries, name).map((cell) => cell.absent);
  assert.deepEqual(absent('kv_waste'), ['not_exposed', 'kv_waste', 'result', null]);
  assert.deepEqual(absent('cached'), ['not_exposed', 'cached', 'result', null]);
  assert.deepEqual(absent('padding'), ['not_exposed', null, 'result', null]);
  assert.deepEqual(absent('ttft_p50'), [null, null, 'result', 'never']);
});

test('a race between number types says so, and so do others and answers cut short', () => {
  const int8 = { engine: { model: 'tiny', dtype: 'int8', device: 'cpu' } };
  const notes = notesOf([entry('a'), entry('b', { ...int8, num_others: 1, num_short: 2 })], words);
  assert.equal(notes.length, 3);
  assert.match(notes[0], /note\.dtype.*a: float32, b: int8/);
  assert.deepEqual(notesOf([entry('a'), entry('b'), entry('c', null)], words), []);
});

test('the table can be taken along, as a document or as plain numbers', () => {
  const entries = [entry('a'), entry('b, c', { finish_time: 1.25, kv_waste: null })];
  const markdown = asMarkdown(
    ['a', 'b'],
    rowsOf(entries),
    ({ name }) => name,
    ({ text }) => text ?? '–',
  );
  assert.match(
    markdown,
    /^\| {2}\| a \| b \|\n\| --- \| ---: \| ---: \|\n\| finish \| 4\.00 s \| 1\.25 s \|/,
  );
  const csv = asCsv(['a', 'b, c'], entries).split('\n');
  assert.equal(csv[0], ',a,"b, c"');
  assert.equal(csv[1], 'finish,4,1.25');
  assert.ok(csv.includes('kv_waste,0.5,'));
});

// Joining

test('phones use the address that the browser sees, or the machine’s own', () => {
  const beyond = { loopback_only: false, hosts: ['192.168.1.5'] };
  assert.equal(phoneBase('http://lab.example:7860/x/', beyond), 'http://lab.example:7860/x/');
  assert.equal(phoneBase('http://127.0.0.1:7860/', beyond), 'http://192.168.1.5:7860/');
  assert.equal(phoneBase('http://localhost:7860/', { loopback_only: true, hosts: [] }), null);
  assert.equal(phoneBase('http://127.0.0.1:7860/', { loopback_only: false, hosts: [] }), null);
  assert.equal(
    linkTo('http://h:1/lab/?tab=classroom#x', { tab: 'playground', view: 'chat' }),
    'http://h:1/lab/?tab=playground&view=chat',
  );
});

// Words

test('everything that the Classroom says has words', () => {
  const folder = new URL('../../assets/', import.meta.url);
  const en = JSON.parse(readFileSync(new URL('words/en.json', folder), 'utf8'));
  const scripts = readdirSync(new URL('js/classroom/', folder)).map((name) =>
    readFileSync(new URL(`js/classroom/${name}`, folder), 'utf8'),
  );
  const named = scripts.flatMap((script) =>
    [...script.matchAll(/'(classroom\.[\w.]*\w)'/g)].map((match) => match[1]),
  );
  const composed = [
    ...FIGURES.flatMap(({ name }) => [`figure.${name}`, `figure.${name}.meaning`]),
    ...['done', 'failed', 'paused', 'running', 'starting', 'stopped', 'unavailable', 'waiting'].map(
      (s) => `state.${s}`,
    ),
    ...['queued', 'running', 'done', 'stopped'].map((state) => `race.${state}`),
    ...['kv_waste', 'cached', 'never', 'not_exposed', 'result'].flatMap((n) => [
      `absent.${n}`,
      `absent.${n}.meaning`,
    ]),
    ...['sequential', 'static', 'async', 'blocking'].map((mode) => `mode.${mode}`),
    ...['address', 'choice', 'file', 'list', 'names', 'object', 'range', 'unknown', 'whole'].map(
      (k) => `problem.${k}`,
    ),
  ].map((name) => `classroom.${name}`);
  assert.ok(named.length > 40);
  assert.deepEqual(
    [...named, ...composed].filter((key) => !(key in en)),
    [],
  );
});
