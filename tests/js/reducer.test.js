import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MAX_FINISHED, apply, copyState, initialState } from '../../assets/js/reducer.js';
import { spansOf, tokenTimes } from '../../assets/js/request.js';
import { readable } from './readable.js';
import {
  arrived,
  finished,
  header,
  kv,
  kvChanged,
  longRun,
  queues,
  row,
  snapshot,
  state,
  step,
  token,
} from './records.js';

function reduce(records, from = initialState()) {
  for (const record of records) apply(from, record);
  return from;
}

test('a request waits, is prefilled, decodes and finishes', () => {
  const seen = [];
  const now = initialState();
  const look = (...records) => {
    reduce(records, now);
    seen.push(now.requests.get('r0').status);
  };
  look(header(), arrived('r0', { time: 1 }));
  look(step(0, [row('r0', 4, 0, { phase: 'prefill' })], { start_time: 2 }), token('r0', 0, 2.5));
  look(step(1, [row('r0', 1, 4)], { start_time: 3 }), token('r0', 1, 3.5));
  look(finished('r0', 3.6, 'stop'));
  assert.deepEqual(seen, ['waiting', 'running', 'running', 'finished']);
  const request = now.requests.get('r0');
  assert.equal(request.firstScheduledTime, 2);
  assert.equal(request.firstTokenTime, 2.5);
  assert.deepEqual(tokenTimes(request), [2.5, 3.5]);
  assert.deepEqual(
    [...spansOf(request, 99)],
    [
      { kind: 'queued', start: 1, end: 2 },
      { kind: 'prefill', start: 2, end: 2.5 },
      { kind: 'decode', start: 2.5, end: 3.6 },
    ],
  );
});

test('two prompts of four tokens, 22 steps without a cache: ΣL² is 5,511 and ΣL is 319', () => {
  const records = [header(), arrived('a'), arrived('b', { seat: 1 })];
  for (let i = 0; i < 22; i += 1)
    records.push(step(i, [row('a', 4 + i), row('b', 4 + i)], { input_shape: [2, 4 + i] }));
  const { requests, totals, column } = reduce(records);
  assert.deepEqual(column.step.input_shape, [2, 25]);
  assert.equal(requests.get('a').attentionPairs, 5511);
  assert.equal(requests.get('a').tokensComputed, 319);
  assert.equal(totals.attention_pairs, 2 * 5511);
  assert.equal(totals.tokens_computed, 2 * 319);
});

test('a preempted request waits again, and its blocks are back', () => {
  const { requests } = reduce([
    header({ engine: { block_size: 16, num_blocks: 8 } }),
    arrived('r0'),
    step(0, [row('r0', 4, 0, { phase: 'prefill' })], {
      kv: kv({ taken: { r0: [5, 6] }, filled_slots: { r0: 20 }, num_free: 6 }),
    }),
    step(1, [], {
      start_time: 3,
      preempted_ids: ['r0'],
      kv: kv({ given_back: { r0: [5, 6] }, num_free: 8 }),
    }),
  ]);
  const request = requests.get('r0');
  assert.equal(request.status, 'preempted');
  assert.equal(request.numPreemptions, 1);
  assert.deepEqual(request.blocks, []);
  assert.equal(request.filledSlots, null);
  assert.deepEqual([...spansOf(request, 9)].at(-1), { kind: 'preempted', start: 3, end: 9 });
});

test('blocks that come back between two steps are back, also after their request has finished', () => {
  const now = reduce([
    header({ engine: { block_size: 16, num_blocks: 8 } }),
    arrived('r0'),
    step(0, [row('r0', 4)], { kv: kv({ taken: { r0: [1, 2] }, num_free: 6 }) }),
    finished('r0', 2, 'abort'),
    kvChanged({ given_back: { r0: [1, 2] }, num_free: 8 }, 3),
  ]);
  assert.deepEqual(now.requests.get('r0').blocks, []);
  assert.equal(now.pool.numFree, 8);
  assert.equal(now.time, 3);
});

test('who takes the place of one that left is drawn in its lane', () => {
  const now = reduce([header(), ...['a', 'b', 'd'].map((id, seat) => arrived(id, { seat }))]);
  reduce(
    [step(0, [row('a'), row('b')]), finished('a'), step(1, [row('b'), row('d')], { waiting_ids: ['x'] })],
    now,
  );
  assert.deepEqual(now.column.lanes, [1, 0]);
  assert.deepEqual(now.column.seats, [1, 2]);
  assert.deepEqual(now.column.waitingSeats, [null]);
});

test('a running request that a step leaves out keeps its lane; a preempted one does not', () => {
  const now = reduce([header(), ...['a', 'b', 'c'].map((id, seat) => arrived(id, { seat }))]);
  reduce([step(0, [row('a'), row('b')]), step(1, [row('b')]), step(2, [row('b'), row('c'), row('a')])], now);
  assert.deepEqual(now.column.lanes, [1, 2, 0]);
  reduce([step(3, [row('b'), row('c')], { preempted_ids: ['a'] }), step(4, [row('b'), row('c')])], now);
  assert.deepEqual(now.lanes.get(''), [null, 'b', 'c']);
});

test('a block is shared while more than one refers to it', () => {
  const share = (id, references) => step(id, [], { kv: kv({ ref_counts: { 3: references } }) });
  const now = reduce([header({ engine: { block_size: 16, num_blocks: 8 } }), share(0, 2)]);
  assert.equal(now.pool.refCounts.get(3), 2);
  assert.equal(reduce([share(1, 1)], now).pool.refCounts.size, 0);
});

test('two pools have lanes of their own', () => {
  const now = reduce([header(), arrived('a'), arrived('w', { seat: 1 })]);
  reduce(
    [
      step(0, [row('a')], { pool: 'streaming' }),
      step(1, [row('w')], { pool: 'whole' }),
      step(2, [row('a')], { pool: 'streaming' }),
    ],
    now,
  );
  assert.deepEqual(
    [...now.lanes],
    [
      ['streaming', ['a']],
      ['whole', ['w']],
    ],
  );
});

test('a row that is done stays in its lane, and costs its request nothing after it has finished', () => {
  const now = reduce([header(), arrived('a'), arrived('b', { seat: 1 })]);
  reduce(
    [
      step(0, [row('a', 4), row('b', 4)]),
      finished('a'),
      step(1, [row('a', 4, 0, { phase: 'finished' }), row('b', 5)]),
    ],
    now,
  );
  assert.deepEqual(now.column.lanes, [0, 1]);
  assert.equal(now.requests.get('a').tokensComputed, 4);
  assert.equal(now.totals.tokens_computed, 17);
});

test('rows and tokens of a request that was never announced are counted in the totals only', () => {
  const now = reduce([header(), step(0, [row('ghost', 7)]), token('ghost')]);
  assert.equal(now.requests.size, 0);
  assert.equal(now.totals.tokens_computed, 7);
  assert.equal(now.totals.output_tokens, 1);
  assert.deepEqual(now.column.seats, [null]);
});

test('what an engine does not expose stays null, and is not 0', () => {
  const hidden = reduce([
    header(),
    step(0, [row('r0')], { attention_pairs: null, num_padding_tokens: null }),
  ]);
  assert.equal(hidden.totals.attention_pairs, null);
  assert.equal(hidden.totals.padding_tokens, null);
  assert.equal(reduce([step(1, [row('r0')])], hidden).totals.padding_tokens, 0);
});

test('a new header empties the pool and keeps the requests', () => {
  const now = reduce([
    header({ engine: { num_blocks: 4 } }),
    arrived('r0'),
    step(0, [row()], { kv: kv({ cached: [2], num_free: 3 }) }),
  ]);
  assert.equal(now.pool.isCached[2], 1);
  reduce([header({ start_time: 9, engine: { num_blocks: 4 } })], now);
  assert.equal(now.pool.isCached[2], 0);
  assert.equal(now.pool.numFree, null);
  assert.ok(now.requests.has('r0'));
});

test('a snapshot replaces what was in flight, and keeps what had finished', () => {
  const now = reduce([
    header({ engine: { num_blocks: 8 } }),
    arrived('old'),
    finished('old'),
    arrived('lost', { seat: 1 }),
  ]);
  const known = {
    arrived: arrived('r7', { seat: 2, time: 1 }),
    first_scheduled_time: 2,
    first_token_time: 3,
    last_token_time: 5,
    num_output_tokens: 9,
    sum_tokens_computed: 40,
    sum_attention_pairs: 300,
    num_preemptions: 0,
    running: true,
    blocks: [3, 4],
    filled_slots: 20,
    reserved_slots: null,
  };
  reduce(
    [
      snapshot({
        time: 6,
        requests: [known],
        num_free_blocks: 6,
        cached_blocks: [3],
        ref_counts: { 3: 2 },
        totals: { steps: 50 },
      }),
    ],
    now,
  );
  assert.deepEqual([...now.requests.keys()], ['old', 'r7']);
  const request = now.requests.get('r7');
  assert.equal(request.status, 'running');
  assert.equal(request.numMissingTokens, 8);
  reduce([token('r7', 9, 5.5)], now);
  assert.deepEqual(tokenTimes(request), [5, 5.5], 'the gap to the first token after it is known');
  assert.equal(now.pool.isCached[3], 1);
  assert.equal(now.pool.refCounts.get(3), 2);
  assert.equal(now.totals.steps, 50);
});

test('the state of another backend is not this one’s', () => {
  const now = reduce([header(), state('paused'), state('crashed', { backend: 'generate' })]);
  assert.equal(now.engine.state, 'paused');
});

test('only the last finished requests are kept', () => {
  const now = reduce([header()]);
  for (let i = 0; i < MAX_FINISHED + 10; i += 1) reduce([arrived(`r${i}`), finished(`r${i}`)], now);
  reduce([arrived('alive')], now);
  assert.equal(now.requests.size, MAX_FINISHED + 1);
  assert.ok(!now.requests.has('r9') && now.requests.has('r10') && now.requests.has('alive'));
  assert.equal(now.totals.requests_finished, MAX_FINISHED + 10);
});

test('a stream’s depth is what its last sample said, though not every sample has every stream', () => {
  const now = reduce([
    header(),
    arrived('a'),
    arrived('b'),
    queues({ streams: { a: 2, b: 1 } }),
    queues({ streams: { b: 0, gone: 4 } }),
  ]);
  assert.deepEqual(
    [...now.requests.values()].map((request) => request.streamDepth),
    [2, 0],
  );
});

test('now is the latest moment any record tells of', () => {
  assert.equal(reduce([header(), queues({ time: 8 }), step(0, [], { start_time: 3, duration: 1 })]).time, 8);
});

test('a copy does not change with the original, nor the original with the copy', () => {
  const records = [...longRun(60)];
  const original = reduce(records.slice(0, 200));
  const copy = copyState(original);
  const before = structuredClone(readable(copy));
  reduce(records.slice(200, 400), original);
  assert.deepEqual(readable(copy), before);
  const after = structuredClone(readable(original));
  reduce(records.slice(200, 400), copy);
  assert.deepEqual(readable(copy), after);
  assert.deepEqual(readable(original), after);
});

test('a record of a type that is not known is refused', () => {
  assert.throws(() => apply(initialState(), { type: 'surprise' }), /surprise/);
});

test('the blocks of a process that has died are gone with it', () => {
  const full = step(0, [row('r0', 4)], { kv: kv({ num_free: 2, taken: { r0: [3] }, cached: [3] }) });
  const now = reduce([header({ engine: { block_size: 4, num_blocks: 4 } }), arrived('r0'), full]);
  const { version } = now.pool;
  reduce([state('crashed'), finished('r0', 9, 'error'), state('restarting'), state('restarting')], now);
  assert.equal(now.pool.numFree, null);
  assert.deepEqual([...now.pool.isCached], [0, 0, 0, 0]);
  assert.ok(now.pool.version > version, 'and are drawn so');
});
