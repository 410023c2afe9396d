// Recordings: read with suspicion, played with their true gaps, taken away as a Chrome trace.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import test from 'node:test';

import { Mismatch, checkOf } from '../../assets/js/traces/check.js';
import { Player } from '../../assets/js/traces/player.js';
import { ReplayStore } from '../../assets/js/traces/replay_store.js';
import { FileTooLarge, TraceError, readTrace, unpacked } from '../../assets/js/traces/reading.js';
import { addressAt, wishOf } from '../../assets/js/traces/address.js';
import { base64, fromBase64, gather, importMapOf } from '../../assets/js/traces/bundle.js';
import { fileNameOf } from '../../assets/js/traces/downloads.js';
import { inScript } from '../../assets/js/traces/page_file.js';
import { lookAtStep } from '../../assets/js/traces/recording.js';
import { perfettoOf } from '../../assets/js/traces/perfetto.js';
import { arrived, finished, header, kv, row, step, token } from './records.js';

// Arrives at 2, steps end at 3.5, 4.5 and 13.5, and 10 s later another arrives that is never answered.
const RUN = [
  header({ start_time: 1, engine: { num_blocks: 8, block_size: 4 } }),
  arrived('r0', { time: 2, seat: 1 }),
  step(0, [row('r0', 4, 0, { phase: 'prefill' })], {
    start_time: 3,
    kv: kv({ num_free: 7, taken: { r0: [0] } }),
  }),
  token('r0', 0, 3.5),
  step(1, [row('r0', 1, 4)], { start_time: 4, kv: kv({ num_free: 6, taken: { r0: [1] } }) }),
  token('r0', 1, 4.5),
  arrived('r1', { time: 10, seat: 2 }),
  step(2, [row('r0', 1, 5)], { start_time: 13, waiting_ids: ['r1'] }),
  finished('r0', 13.75),
];

function replayOf(records = RUN) {
  const store = new ReplayStore();
  store.add(records);
  store.goLive();
  return store;
}

const idsOf = (store) => [...store.state.requests.keys()];

// Where one is

test('a step is shown with all that came before the next one', () => {
  const store = replayOf();
  assert.equal(store.isAtEnd, true);
  lookAtStep(store, 1);
  assert.deepEqual(idsOf(store), ['r0', 'r1']);
  assert.equal(store.state.requests.get('r0').numTokens, 2);
  assert.equal(store.time, 4.5);
  lookAtStep(store, 99);
  assert.equal(store.isAtEnd, true);
  assert.equal(store.state.requests.get('r0').status, 'finished');
});

test('a moment is shown with what came up to it and nothing later', () => {
  const store = replayOf();
  const seen = [0, 2.5, 4.5, 9.99, 10, 13.4, 13.6, 99].map((time) => {
    store.lookAtTime(time);
    return [store.shown, idsOf(store).length, store.state.requests.get('r0')?.numTokens ?? null];
  });
  assert.deepEqual(seen, [
    [-1, 0, null],
    [-1, 1, 0],
    [1, 1, 2],
    [1, 1, 2],
    [1, 2, 2],
    [1, 2, 2],
    [2, 2, 2],
    [2, 2, 2],
  ]);
  store.lookAtTime(9.99); // back again
  assert.deepEqual(idsOf(store), ['r0']);
});

test('a long recording is sought by time in any order as if it were played up to there', () => {
  const records = [header()];
  for (let n = 0; n < 400; n += 1) {
    records.push(arrived(`r${n}`, { time: n, seat: n }), step(n, [row(`r${n}`)], { start_time: n + 0.25 }));
    records.push(finished(`r${n}`, n + 0.9));
  }
  const store = replayOf(records);
  for (const time of [399.1, 20.8, 21, 350.75, 64.95, 64.8, 0.1, 128.76]) {
    store.lookAtTime(time);
    const timeOf = (record) => record.time ?? record.start_time + (record.duration ?? 0);
    const played = new ReplayStore();
    played.add(records.filter((record) => timeOf(record) <= time));
    assert.deepEqual(idsOf(store), [...played.history.live.requests.keys()], `at ${time}`);
    assert.equal(store.state.totals.steps, played.history.live.totals.steps, `at ${time}`);
    assert.equal(store.shown, played.history.last, `at ${time}`);
  }
});

// Playing

function playing(store) {
  const clock = { time: 0, act: null };
  clock.now = () => clock.time;
  clock.request = (act) => ((clock.act = act), 1);
  clock.cancel = () => (clock.act = null);
  const player = new Player(store, clock);
  const pass = (seconds) => {
    clock.time += seconds * 1000;
    clock.act?.();
  };
  return { player, pass };
}

test('it plays with its true gaps, from the first thing that happened to the end, and stops', () => {
  const store = replayOf();
  const { player, pass } = playing(store);
  player.play();
  assert.equal(store.time, 2, 'what came before was waiting');
  const seen = [];
  for (const seconds of [1.4, 0.2, 0.8, 0.2, 5, 4, 0.2]) {
    pass(seconds);
    seen.push([Number(store.time.toFixed(3)), store.shown]);
  }
  assert.deepEqual(seen, [[3.4, -1], [3.6, 0], [4.4, 0], [4.6, 1], [9.6, 1], [13.6, 2], [13.75, 2]]);
  assert.equal(player.isPlaying, false);
  assert.equal(store.isAtEnd, true);
});

test('speed multiplies, a hand that moves it is followed, and a step holds it', () => {
  const store = replayOf();
  const { player, pass } = playing(store);
  player.setSpeed(0.25);
  player.play();
  pass(4);
  assert.equal(store.time, 3);
  player.setSpeed(16);
  store.lookAt(1);
  pass(0.25);
  assert.equal(store.time, 8.5);
  player.stepBy(-1);
  assert.deepEqual([player.isPlaying, store.shown], [false, 0]);
  player.stepBy(-1);
  assert.equal(store.shown, 0, 'there is none before the first');
});

test('a recording without steps plays by its times', () => {
  const store = replayOf([header(), arrived('r0', { time: 1 }), token('r0', 0, 2)]);
  const { player, pass } = playing(store);
  player.play();
  pass(0.5);
  assert.deepEqual([store.shown, store.state.requests.get('r0').numTokens], [-1, 0]);
  pass(0.6);
  assert.deepEqual([store.isAtEnd, store.state.requests.get('r0').numTokens], [true, 1]);
});

test('a link names the recording and its step, and nothing where a file from here is open', () => {
  const store = replayOf();
  lookAtStep(store, 1);
  const at = (address) => addressAt('http://x/?tab=traces&step=7&lang=ko', { address, store });
  assert.equal(at('a b'), 'http://x/?tab=traces&step=1&lang=ko&trace=a+b');
  assert.equal(at(null), 'http://x/?tab=traces&lang=ko');
  assert.deepEqual(wishOf('?trace=a+b&step=1'), { name: 'a b', step: 1 });
  assert.deepEqual(wishOf('?step=-1'), { name: null, step: null });
});

// Reading

const SCHEMA = {
  discriminator: { propertyName: 'type', mapping: { header: '#/$defs/Header', token: '#/$defs/Token' } },
  $defs: {
    Header: {
      type: 'object',
      properties: {
        type: { enum: ['header'] },
        schema_version: { type: 'integer' },
        engine: { type: 'object', properties: {}, required: [] },
        notes: { type: 'object', additionalProperties: { type: 'string' }, default: {} },
      },
      required: ['type', 'schema_version'],
      additionalProperties: false,
    },
    Token: {
      type: 'object',
      properties: {
        type: { enum: ['token'] },
        index: { type: 'integer', minimum: 0 },
        step_id: { anyOf: [{ type: 'integer' }, { type: 'null' }], default: null },
        rows: { type: 'array', items: { $ref: '#/$defs/Token' }, default: [] },
      },
      required: ['type', 'index'],
      additionalProperties: false,
    },
  },
};
const check = checkOf(SCHEMA);
const HEADER = '{"type":"header","schema_version":1,"engine":{}}';
const TOKEN = '{"type":"token","index":0}';

async function read(content, limits) {
  const records = [];
  const stream = await unpacked(new Blob([content]));
  await readTrace(stream, { check, onRecord: (record) => records.push(record), ...(limits && { limits }) });
  return records;
}

const zipped = async (text) =>
  new Uint8Array(
    await new Response(new Blob([text]).stream().pipeThrough(new CompressionStream('gzip'))).arrayBuffer(),
  );

test('what may be left out is filled in, anew each time', async () => {
  const [, first, second] = await read(`${HEADER}\n${TOKEN}\n${TOKEN}`);
  assert.deepEqual(first, { type: 'token', index: 0, step_id: null, rows: [] });
  assert.notEqual(first.rows, second.rows);
});

test('compressed or not, with or without its last line break', async () => {
  const text = `${HEADER}\n${TOKEN}\n`;
  for (const content of [text, text.trimEnd(), await zipped(text)]) assert.equal((await read(content)).length, 2);
});

const small = { bytes: 1000, lineBytes: 100, blocks: 10 };
const repeated = `${HEADER}\n${`${TOKEN}\n`.repeat(100)}`;
for (const [what, content, line, key] of [
  ['nothing', '', 1, 'empty'],
  ['no header', `${TOKEN}\n`, 1, 'first'],
  ['another version', HEADER.replace(':1', ':99'), 1, 'version'],
  ['half a record', `${HEADER}\n${TOKEN.slice(0, -3)}`, 2, 'json'],
  ['an empty line', `${HEADER}\n\n`, 2, 'json'],
  ['no record', `${HEADER}\n[]`, 2, 'kind'],
  ['an unknown type', `${HEADER}\n{"type":"constructor"}`, 2, 'kind'],
  ['a missing field', `${HEADER}\n{"type":"token"}`, 2, 'missing'],
  ['an unknown field', `${HEADER}\n{"type":"token","index":0,"__proto__":{}}`, 2, 'unknown'],
  ['a wrong type', `${HEADER}\n{"type":"token","index":"0"}`, 2, 'wrong'],
  ['a number too small', `${HEADER}\n{"type":"token","index":-1}`, 2, 'wrong'],
  ['a number without end', `${HEADER}\n{"type":"token","index":1e999}`, 2, 'wrong'],
  ['wrong deep inside', `${HEADER}\n{"type":"token","index":0,"rows":[{}]}`, 2, 'missing'],
  ['not UTF-8', new Uint8Array([...new TextEncoder().encode(`${HEADER}\n`), 0xff, 0xfe]), 2, 'utf8'],
  ['too long a line', `${HEADER}\n${' '.repeat(101)}`, 2, 'long'],
  ['too much', repeated, null, 'large'],
  ['too much, compressed', zipped(repeated), null, 'large'],
  ['cut off', zipped(`${HEADER}\n${TOKEN}`).then((bytes) => bytes.slice(0, -6)), null, 'damaged'],
  ['a pool without end', HEADER.replace('{}', '{"num_blocks":11}'), 1, 'block'],
]) {
  test(`refused with its line: ${what}`, async () => {
    await assert.rejects(read(await content, small), (error) => {
      assert.ok(error instanceof TraceError, error.stack);
      assert.equal(error.key, key);
      if (line !== null) assert.equal(error.line, line);
      return true;
    });
  });
}

test('a file that is larger than anything that could be read is refused before it is', async () => {
  const text = ' '.repeat(1001);
  for (const content of [text, await zipped(text)]) {
    await assert.rejects(unpacked(new Blob([content]), small), (error) => error instanceof FileTooLarge);
  }
});

test('a value in an error is short', () => {
  assert.throws(
    () => check({ type: 'token', index: 'x'.repeat(1000) }),
    (error) => error instanceof Mismatch && error.values.value.length < 50,
  );
});

// Taking it away

test('a Chrome trace has a track of steps, a track a request, and counters', () => {
  const { traceEvents, otherData } = perfettoOf(RUN);
  const at = (ph) => traceEvents.filter((event) => event.ph === ph);
  assert.deepEqual(
    at('M').map(({ pid, tid, args }) => [pid, tid, args.name]),
    [[1, 0, 'naive · tiny'], [2, 0, 'requests'], [1, 1, 'steps'], [2, 1, 'B · r0'], [2, 2, 'C · r1']],
  );
  assert.deepEqual(
    at('X').map(({ pid, tid, name, ts, dur }) => [pid, tid, name, ts, dur]),
    [
      [1, 1, 'step 0', 2e6, 500_000],
      [1, 1, 'step 1', 3e6, 500_000],
      [1, 1, 'step 2', 12e6, 500_000],
      [2, 1, 'queued', 1e6, 1e6],
      [2, 1, 'prefill', 2e6, 500_000],
      [2, 1, 'decode', 2.5e6, 10_250_000],
      [2, 2, 'queued', 9e6, 3_750_000],
    ],
  );
  assert.deepEqual(at('X')[0].args, {
    rows: ['B prefill 4'],
    tokens: 4,
    padding_tokens: 0,
    attention_pairs: 16,
    input_shape: null,
  });
  assert.deepEqual(
    at('C').filter(({ name }) => name !== 'rows').map(({ name, ts, args }) => [name, ts, Object.values(args)[0]]),
    [
      ['waiting', 2e6, 0],
      ['KV blocks used', 2.5e6, 1],
      ['waiting', 3e6, 0],
      ['KV blocks used', 3.5e6, 2],
      ['waiting', 12e6, 1],
    ],
  );
  assert.deepEqual(at('i').map(({ name, tid, ts }) => [name, tid, ts]), [['first token', 1, 2.5e6]]);
  assert.equal(otherData.hardware, 'test');
});

test('a page of its own has every module that it needs, and none by a relative name', async () => {
  const readAsset = (path) => readFile(new URL(`../../assets/${path}`, import.meta.url), 'utf8');
  const modules = await gather('js/traces/alone.js', readAsset);
  const names = Object.keys(JSON.parse(importMapOf(modules)).imports);
  assert.ok(names.includes('js/scope.js') && names.includes('js/panels/kv_blocks.js'));
  for (const [path, source] of modules) {
    assert.doesNotMatch(source, /(from|import|import\()\s*['"]\./, path);
    for (const [, name] of source.matchAll(/^(?:import|\} from|import .* from) ?'(js\/[^']+)'/gm)) {
      assert.ok(modules.has(name), `${path} imports ${name}`);
    }
  }
});

test('nothing of a recording can end the element that it stands in', () => {
  const hostile = '</script><script>alert(1)</script><!--';
  assert.doesNotMatch(inScript({ name: hostile }), /</);
  assert.equal(JSON.parse(inScript({ name: hostile })).name, hostile);
  const bytes = Uint8Array.from({ length: 100_000 }, (_, index) => index % 256);
  assert.deepEqual(fromBase64(base64(bytes)), bytes);
  assert.equal(fileNameOf('../a <b>:c', '.html'), '..-a-b-c.html');
});
