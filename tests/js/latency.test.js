import assert from 'node:assert/strict';
import { test } from 'node:test';
import { latencyOf, percentile, summaryOf, throughput } from '../../assets/js/latency.js';
import { apply, initialState } from '../../assets/js/reducer.js';
import { arrived, finished, header, row, snapshot, step, token } from './records.js';

function requestsOf(...records) {
  const state = initialState();
  for (const record of [header(), ...records]) apply(state, record);
  return [...state.requests.values()];
}

const close = (actual, expected) =>
  assert.ok(Math.abs(actual - expected) < 1e-9, `${actual} is not ${expected}`);

test('percentiles are linear between the two nearest ranks', () => {
  close(percentile([10, 20, 30, 40], 0.5), 25);
  close(percentile([10, 20, 30, 40], 0.95), 38.5);
  close(percentile([1, 2, 3, 4, 5], 0.95), 4.8);
  close(percentile([7], 0.95), 7);
  assert.equal(percentile([], 0.5), null);
});

test('the latencies of one request, computed by hand', () => {
  const [request] = requestsOf(
    arrived('r0', { time: 10 }),
    step(0, [row('r0', 4, 0, { phase: 'prefill' })], { start_time: 10.5 }),
    ...[11, 11.2, 11.5, 12.1].map((time, index) => token('r0', index, time)),
    finished('r0', 12.2, 'stop'),
  );
  const latency = latencyOf(request);
  close(latency.queueTime, 0.5);
  close(latency.ttft, 1);
  close(latency.itlP50, 0.3); // gaps 0.2, 0.3, 0.6
  close(latency.itlP95, 0.57);
  close(latency.tpot, 1.1 / 3);
  close(latency.e2e, 2.1);
  close(latency.tokensPerSecond, 4 / 2.1);
});

test('TPOT is undefined for one token, and E2E until no more will come', () => {
  const [one] = requestsOf(arrived('r0', { time: 0 }), token('r0', 0, 2), finished('r0', 2));
  assert.equal(latencyOf(one).tpot, null);
  close(latencyOf(one).e2e, 2);
  const [running] = requestsOf(arrived(), token('r0', 0, 2), token('r0', 1, 3));
  assert.equal(latencyOf(running).e2e, null);
  close(latencyOf(running).tpot, 1);
});

test('nothing is known of a request that waits', () => {
  const { gaps, numTokens, numGaps, numZeroGaps, hasChunks, ...rest } = latencyOf(requestsOf(arrived())[0]);
  assert.deepEqual(new Set(Object.values(rest)), new Set([null]));
});

test('two tokens in one delivery make a gap of zero that counts', () => {
  const [request] = requestsOf(arrived(), ...[1, 1, 2].map((time, index) => token('r0', index, time)));
  const latency = latencyOf(request);
  assert.deepEqual(latency.gaps, [0, 1]);
  assert.equal(latency.numZeroGaps, 1);
  close(latency.itlP50, 0.5);
});

test('after a snapshot TPOT counts all tokens, ITL the gaps that are known', () => {
  const known = {
    arrived: arrived('r0', { time: 0 }),
    first_scheduled_time: 1,
    first_token_time: 2,
    last_token_time: 10,
    num_output_tokens: 5,
    sum_tokens_computed: 0,
    sum_attention_pairs: 0,
    num_preemptions: 0,
    running: true,
    blocks: [],
    filled_slots: null,
    reserved_slots: null,
  };
  const [request] = requestsOf(snapshot({ time: 10, requests: [known] }), token('r0', 5, 12));
  const latency = latencyOf(request);
  assert.deepEqual(latency.gaps, [2]);
  close(latency.tpot, 2);
  close(latency.ttft, 2);
});

test('the summary takes medians, ITL over all gaps, and E2E of those that ran to their end', () => {
  const requests = requestsOf(
    arrived('a', { time: 0 }),
    token('a', 0, 1),
    token('a', 1, 2),
    finished('a', 2, 'stop'),
    arrived('b', { time: 0 }),
    token('b', 0, 3),
    token('b', 1, 6),
    finished('b', 6, 'abort'),
    arrived('c', { time: 0 }),
    token('c', 0, 5),
  );
  const summary = summaryOf(requests.map((request) => ({ request, latency: latencyOf(request) })));
  close(summary.ttft, 3);
  close(summary.itlP50, 2); // gaps 1 and 3
  close(summary.e2e, 2); // only a
  assert.equal(summary.numRequests, 3);
  assert.equal(summary.numComplete, 1);
  assert.equal(summary.numTokens, 5);
});

test('throughput counts the tokens of the last ten seconds, over less if the first request is younger', () => {
  const old = requestsOf(
    arrived('r0', { time: 0 }),
    ...Array.from({ length: 41 }, (_, i) => token('r0', i, i / 2)),
  );
  close(throughput(old, 20), 2);
  const young = requestsOf(arrived('r0', { time: 0 }), token('r0', 0, 1), token('r0', 1, 2));
  close(throughput(young, 2), 1);
  assert.equal(throughput(young, 30), null);
  assert.equal(throughput([], 5), null);
});
