import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { History } from '../../assets/js/history.js';
import { apply, initialState } from '../../assets/js/reducer.js';
import { arrived, finished, header, longRun, row, step } from './records.js';
import { readable } from './readable.js';

function historyOf(records, options) {
  const history = new History(options);
  for (const record of records) history.push(record);
  return history;
}

/** The plain twin: replay everything up to just before the step after `ordinal`. */
function replay(records, ordinal) {
  const state = initialState();
  for (const record of records) {
    if (record.type === 'step' && state.numSteps > ordinal) break;
    apply(state, record);
  }
  return state;
}

test('seeking gives what a full replay gives, at every step, in any order', () => {
  const records = [...longRun(150)];
  const history = historyOf(records, { stepsPerChunk: 16 });
  const order = Array.from({ length: 149 }, (_, i) => (i * 83) % 149);
  for (const ordinal of order)
    assert.deepEqual(readable(history.seek(ordinal)), readable(replay(records, ordinal)), `step ${ordinal}`);
});

test('going forward step by step gives the same, across the borders of chunks', () => {
  const records = [...longRun(80)];
  const history = historyOf(records, { stepsPerChunk: 8 });
  for (let ordinal = 0; ordinal < 79; ordinal += 1) {
    assert.deepEqual(readable(history.seek(ordinal)), readable(replay(records, ordinal)), `step ${ordinal}`);
  }
});

test('looking back changes nothing of what is live', () => {
  const records = [...longRun(100)];
  const history = historyOf(records.slice(0, 300), { stepsPerChunk: 16 });
  history.seek(3);
  history.seek(20);
  for (const record of records.slice(300)) history.push(record);
  assert.deepEqual(readable(history.live), readable(replay(records, Infinity)));
});

test('the latest step is the live state', () => {
  const history = historyOf(longRun(20));
  assert.equal(history.seek(19), history.live);
  assert.equal(history.seek(1000), history.live);
});

test('columns come with lanes and seats, across chunks, the last of them asked for', () => {
  const records = [...longRun(60)];
  const long = historyOf(records, { stepsPerChunk: 8 });
  const short = historyOf(records, { stepsPerChunk: 1000 });
  const ids = (columns) => columns.map((column) => column.step.step_id);
  assert.deepEqual(
    ids(long.columns(41, 20)),
    Array.from({ length: 20 }, (_, i) => 22 + i),
  );
  assert.deepEqual(long.columns(59, 60), short.columns(59, 60));
  assert.deepEqual(ids(long.columns(4, 20)), [0, 1, 2, 3, 4]);
  assert.equal(long.column(33).step.step_id, 33);
  assert.equal(long.column(60), null);
  assert.equal(long.column(null), null);
});

test('the oldest chunks go when the budget is spent, and what is left can still be looked at', () => {
  const records = [...longRun(400)];
  const history = historyOf(records, { stepsPerChunk: 16, budget: 60_000 });
  assert.ok(history.first > 0, 'something was dropped');
  assert.ok(history.size <= 60_000);
  assert.deepEqual(readable(history.seek(history.first)), readable(replay(records, history.first)));
  assert.deepEqual(
    readable(history.seek(0)),
    readable(replay(records, history.first)),
    'older than kept: the oldest kept',
  );
});

test('a step is found by its id, and one that is missing by the step before it', () => {
  const records = [header(), ...[3, 4, 9, 10].map((id) => step(id, [row()]))];
  const history = historyOf(records, { stepsPerChunk: 2 });
  assert.deepEqual(
    [3, 4, 7, 9, 10, 99].map((id) => history.ordinalOf(id)),
    [0, 1, 1, 2, 3, 3],
  );
  assert.equal(history.ordinalOf(1), 0);
  assert.equal(new History().ordinalOf(5), null);
});

test('requests can come and go for ever without a step', () => {
  const history = new History();
  history.push(header());
  history.push(step(0, [row()]));
  for (let i = 0; i < 20_000; i += 1) {
    history.push(arrived(`r${i}`));
    history.push(finished(`r${i}`));
  }
  history.push(step(1, [row()]));
  assert.equal(history.seek(0).totals.requests_finished, 20_000);
  assert.equal(history.seek(0).numSteps, 1);
  assert.equal(history.columns(1, 10).length, 2);
});

test('an empty history has nothing to show', () => {
  const history = new History();
  assert.ok(history.isEmpty);
  assert.deepEqual(history.columns(history.last, 10), []);
  history.push(header());
  assert.ok(history.isEmpty);
});

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc');

function heapNow() {
  collectGarbage();
  return process.memoryUsage().heapUsed;
}

/** Sixteen at a time, each with so many tokens, arriving as from a socket. @param {History} history */
function serve(history, firstStep, lastStep, numTokens) {
  const running = [];
  const push = (record) => history.push(JSON.parse(JSON.stringify(record)));
  for (let now = firstStep; now < lastStep; now += 1) {
    for (; running.length < 16; running.push({ id: `request-${now}-${running.length}`, done: 0 })) {
      push(arrived(`request-${now}-${running.length}`, { time: now }));
    }
    push(step(now, running.map(({ id, done }) => row(id, 1, done))));
    for (const request of [...running]) {
      push({ type: 'token', request_id: request.id, index: request.done, step_id: now, time: now + 0.5 });
      request.done += 1;
      if (request.done < numTokens) continue;
      push(finished(request.id, now + 0.6));
      running.splice(running.indexOf(request), 1);
    }
  }
}

for (const numTokens of [4, 30, 200]) {
  test(`the size that is counted is the memory that grows, with requests of ${numTokens} tokens`, () => {
    const history = new History();
    serve(history, 0, 1500, numTokens); // what is bounded otherwise is full
    const before = { heap: heapNow(), size: history.size };
    serve(history, 1500, 4500, numTokens);
    const share = (history.size - before.size) / (heapNow() - before.heap);
    assert.ok(share > 0.7 && share < 1.4, `${share} of it`);
  });
}
