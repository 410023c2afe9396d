import assert from 'node:assert/strict';
import { test } from 'node:test';
import { hidesSteps, hitRate, latestGauges, sumOf } from '../../assets/js/gauges.js';
import { History } from '../../assets/js/history.js';
import { latencyOf, throughput } from '../../assets/js/latency.js';
import { apply, initialState } from '../../assets/js/reducer.js';
import { spansOf } from '../../assets/js/request.js';
import { usageLines } from '../../assets/js/panels/kv_gauges.js';
import { kvKind } from '../../assets/js/panels/kv.js';
import { arrived, finished, gauges, header, row, snapshot, step, token } from './records.js';

const hidden = (fields = {}) => header({ measured: { batch: 'not_exposed', kv: 'not_exposed' }, ...fields });

function reduce(...records) {
  const state = initialState();
  for (const record of records) apply(state, record);
  return state;
}

test('the last of each server is known, in order of the servers, whatever came first', () => {
  const state = reduce(
    hidden(),
    gauges({ server: 1, time: 1, num_running: 4 }),
    gauges({ server: 0, time: 2, num_running: 1 }),
    gauges({ server: 1, time: 3, num_running: 2 }),
  );
  assert.deepEqual(
    latestGauges(state).map(({ server, num_running: running }) => [server, running]),
    [
      [0, 1],
      [1, 2],
    ],
  );
  assert.equal(sumOf(latestGauges(state), 'num_running'), 3);
  assert.equal(state.time, 3);
});

test('a sum that one of the servers does not tell is not known', () => {
  assert.equal(sumOf([gauges({ num_waiting: 2 }), gauges({ server: 1 })], 'num_waiting'), null);
  assert.equal(sumOf([], 'num_waiting'), null);
});

test('a new header forgets what the engine before it told', () => {
  assert.equal(reduce(hidden(), gauges({ num_running: 4 }), hidden({ start_time: 5 })).gauges.size, 0);
});

test('a snapshot brings the last of each server', () => {
  const told = [gauges({ server: 0, num_running: 2 }), gauges({ server: 1, num_running: 3 })];
  const state = reduce(hidden(), gauges({ server: 7 }), snapshot({ gauges: told }));
  assert.deepEqual(latestGauges(state), told);
});

test('an engine that tells after every step fills its line no faster', () => {
  const state = reduce(hidden(), ...Array.from({ length: 100 }, (_, i) => gauges({ time: i / 20 })));
  const samples = state.gauges.get(null);
  assert.equal(samples.at(-1).time, 99 / 20, 'the latest is always there');
  assert.ok(samples.length > 15 && samples.length < 22, `${samples.length} samples of 5 s`);
});

test('only so many samples of a server are kept', () => {
  const state = reduce(hidden(), ...Array.from({ length: 1000 }, (_, time) => gauges({ time })));
  const samples = state.gauges.get(null);
  assert.equal(samples.length, 240);
  assert.equal(samples.at(-1).time, 999);
});

test('seeking brings back what was told then', () => {
  const history = new History({ stepsPerChunk: 2 });
  history.push(header());
  for (let id = 0; id < 9; id += 1) {
    history.push(step(id, [row()]));
    history.push(gauges({ time: id, num_running: id }));
  }
  for (const ordinal of [5, 2, 3, 0, 7]) {
    assert.equal(history.seek(ordinal).gauges.get(null).at(-1).num_running, ordinal);
  }
  assert.equal(history.live.gauges.get(null).length, 9);
});

test('where blocks are seen, they tell more, and sums are not shown', () => {
  const state = reduce(header(), gauges({ num_running: 3 }));
  assert.equal(hidesSteps(state.header), false);
  assert.equal(kvKind(state), 'recompute');
});

test('of a KV cache without steps the sums are shown once they are told', () => {
  assert.equal(kvKind(reduce(hidden())), null);
  assert.equal(kvKind(reduce(hidden(), gauges())), 'gauges');
});

test('the hit rate is hits over queries, and nothing before the first query', () => {
  assert.equal(hitRate(gauges({ prefix_cache_queries: 200, prefix_cache_hits: 50 })), 0.25);
  assert.equal(hitRate(gauges({ prefix_cache_queries: 0, prefix_cache_hits: 0 })), null);
  assert.equal(hitRate(gauges({ prefix_cache_queries: 200 })), null);
  assert.equal(hitRate(gauges()), null);
});

test('a line of the usage is over the samples that tell it, on an axis that ends now', () => {
  const state = reduce(
    hidden(),
    gauges({ time: 1, kv_cache_usage: 0.5 }),
    gauges({ time: 2 }),
    gauges({ time: 3, kv_cache_usage: 0.25 }),
  );
  const { servers, start, end } = usageLines(state.gauges, 100);
  assert.deepEqual(
    servers[0].samples.map(({ time }) => time),
    [1, 3],
  );
  assert.deepEqual([start, end], [1, 100]);
});

// Requests of an engine whose steps are not seen

test('before its first token nobody knows whether a request waits; then it is decoding', () => {
  const sent = reduce(hidden(), arrived('a', { num_prompt_tokens: null, time: 1 }));
  const request = sent.requests.get('a');
  assert.deepEqual([request.status, request.numPromptTokens], ['sent', null]);
  assert.deepEqual([...spansOf(request, 5)], [{ kind: 'sent', start: 1, end: 5 }]);
  apply(sent, token('a', 0, 3));
  assert.equal(request.status, 'running');
  assert.deepEqual([...spansOf(request, 5)], [
    { kind: 'sent', start: 1, end: 3 },
    { kind: 'decode', start: 3, end: 5 },
  ]);
});

test('an engine that stops showing its steps leaves those that wait out of sight', () => {
  const state = reduce(
    header(),
    arrived('a'),
    arrived('b'),
    step(0, [row('a')], { start_time: 1, waiting_ids: ['b'] }),
    hidden({ start_time: 0 }),
  );
  assert.deepEqual(
    [...state.requests.values()].map(({ status }) => status),
    ['running', 'sent'],
  );
  assert.deepEqual([...spansOf(state.requests.get('b'), 4)].at(-1), { kind: 'sent', start: 1.5, end: 4 });
});

test('a snapshot leaves such a request as it was', () => {
  const known = (id, firstTokenTime) => ({
    arrived: arrived(id, { time: 1 }),
    first_scheduled_time: null,
    first_token_time: firstTokenTime,
    last_token_time: firstTokenTime,
    num_output_tokens: firstTokenTime === null ? 0 : 1,
    sum_tokens_computed: 0,
    sum_attention_pairs: 0,
    num_preemptions: 0,
    running: false,
    blocks: [],
    filled_slots: null,
    reserved_slots: null,
  });
  const { requests } = reduce(hidden(), snapshot({ time: 4, requests: [known('a', null), known('b', 2)] }));
  assert.equal(requests.get('a').status, 'sent');
  assert.equal(requests.get('b').status, 'running');
  assert.deepEqual(
    [...spansOf(requests.get('b'), 4)].map(({ kind }) => kind),
    ['sent', 'decode'],
  );
});

test('what the server counted at the end is right, whatever came in chunks', () => {
  const state = reduce(
    hidden(),
    arrived('a', { num_prompt_tokens: null, time: 10 }),
    ...[12, 14, 15].map((time, index) => token('a', index, time)),
    finished('a', 16, 'stop', { num_prompt_tokens: 9, num_output_tokens: 7 }),
  );
  const request = state.requests.get('a');
  const latency = latencyOf(request);
  assert.deepEqual([request.numPromptTokens, latency.numTokens, latency.hasChunks], [9, 7, true]);
  assert.equal(latency.tpot, 3 / 6);
  assert.equal(latency.tokensPerSecond, 7 / 5);
  assert.deepEqual(latency.gaps, [2, 1], 'gaps between what came');
  assert.equal(state.totals.output_tokens, 7);
  assert.equal(throughput([request], 16), 7 / 6);
  assert.equal(throughput([request], 23, 10), 2 / 10, 'of a part of it only the chunks are known');
});

test('a request whose tokens all came at once has no TPOT', () => {
  const { requests } = reduce(
    hidden(),
    arrived('a', { time: 10 }),
    token('a', 0, 12),
    finished('a', 12, 'stop', { num_output_tokens: 7 }),
  );
  assert.equal(latencyOf(requests.get('a')).tpot, null);
  const together = reduce(arrived('b'), token('b', 0, 3), token('b', 1, 3), finished('b', 3));
  assert.equal(latencyOf(together.requests.get('b')).tpot, null);
});
