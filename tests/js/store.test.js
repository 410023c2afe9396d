import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Store } from '../../assets/js/store.js';
import { arrived, finished, header, row, state, step } from './records.js';

function storeOf(...records) {
  const store = new Store();
  store.backend = 'naive';
  store.add(records);
  return store;
}

const fiveSteps = () => storeOf(header(), ...[0, 1, 2, 3, 4].map((id) => step(id, [row()])));

test('looking at a step leaves live, and looking at the last returns to it', () => {
  const store = fiveSteps();
  store.lookAt(2);
  assert.equal(store.isLive, false);
  assert.equal(store.state.numSteps, 3);
  store.add([step(5, [row()])]);
  assert.equal(store.shown, 2, 'new records do not move what is looked at');
  store.lookAt(99);
  assert.ok(store.isLive);
  assert.equal(store.shown, 5);
});

test('what is pointed at wins over what is pinned', () => {
  const store = fiveSteps();
  store.togglePin('a');
  store.set({ pointed: 'b' });
  assert.equal(store.lit, 'b');
  store.set({ pointed: null });
  assert.equal(store.lit, 'a');
  store.togglePin('a');
  assert.equal(store.lit, null);
});

test('listeners hear of changes, and of nothing else', () => {
  const store = fiveSteps();
  let heard = 0;
  const stop = store.subscribe(() => {
    heard += 1;
  });
  store.set({ pinned: null });
  assert.equal(heard, 0);
  store.set({ pinned: 'a' });
  store.add([step(5, [])]);
  assert.equal(heard, 2);
  stop();
  store.goLive();
  store.togglePin('b');
  assert.equal(heard, 2);
});

test('finished requests stay until they are cleared; those in flight stay anyway', () => {
  const store = storeOf(header(), arrived('a'), arrived('b'), finished('a', 5));
  const ids = () => [...store.requests()].map(({ id }) => id);
  assert.deepEqual(ids(), ['a', 'b']);
  store.set({ clearedTime: 5 });
  assert.deepEqual(ids(), ['b']);
  store.add([finished('b', 6)]);
  assert.deepEqual(ids(), ['b']);
});

test('states of all backends are known, but only this one’s records are its history', () => {
  const store = storeOf(header(), state('ready'), state('crashed', { backend: 'generate' }));
  assert.equal(store.engines.get('generate').state, 'crashed');
  assert.equal(store.history.live.engine.state, 'ready');
});

test('the request shown is the lit one, else one’s own, else the oldest in flight, else the last', () => {
  const store = storeOf(header(), ...['a', 'b', 'c'].map((id) => arrived(id)), step(0, [row('a'), row('b')]));
  assert.equal(store.chosen().id, 'a');
  store.add([finished('a')]);
  assert.equal(store.chosen().id, 'b');
  store.set({ lastMine: 'c' });
  assert.equal(store.chosen().id, 'b', 'c still waits: there is nothing to show of it');
  store.add([step(1, [row('b'), row('c')])]);
  assert.equal(store.chosen().id, 'c');
  store.set({ pinned: 'b' });
  assert.equal(store.chosen().id, 'b');
  assert.equal(storeOf(header()).chosen(), null);
});
