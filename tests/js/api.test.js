import assert from 'node:assert/strict';
import { test } from 'node:test';

import { callsOf } from '../../assets/js/api/calls.js';
import { FrameReader, dataOf, visible } from '../../assets/js/api/frames.js';
import { PLACES, hopsOf, totalOf } from '../../assets/js/api/journey.js';

const ADDRESS = 'http://127.0.0.1:7860/lab';

test('every call carries this server’s address, and the engine where the route takes one', () => {
  for (const call of callsOf({ address: ADDRESS, backend: 'paged' })) {
    for (const language of ['curl', 'python', 'openai']) {
      if (call[language] === undefined) continue;
      assert.match(call[language], /127\.0\.0\.1:7860\/lab/, `${call.name} ${language}`);
    }
  }
  const chat = callsOf({ address: ADDRESS, backend: 'paged' }).find(({ name }) => name === 'chat_stream');
  assert.match(chat.openai, /model="paged"/);
  assert.match(chat.curl, /"model":"paged"/);
});

test('names of calls are their own', () => {
  const names = callsOf({ address: ADDRESS, backend: 'naive' }).map(({ name }) => name);
  assert.equal(new Set(names).size, names.length);
});

test('frames come whole however the bytes are cut', () => {
  const text = 'data: {"token": " a"}\n\n: a comment\n\ndata: [DONE]\n\n';
  for (let size = 1; size <= text.length; size += 1) {
    const reader = new FrameReader();
    const frames = [];
    for (let at = 0; at < text.length; at += size) frames.push(...reader.read(text.slice(at, at + size)));
    assert.equal(frames.join(''), text);
    assert.equal(frames.length, 3);
    assert.equal(reader.rest, '');
  }
});

test('what is not a whole frame yet is kept', () => {
  const reader = new FrameReader();
  assert.deepEqual(reader.read('data: 1\n'), []);
  assert.equal(reader.rest, 'data: 1\n');
  assert.deepEqual(reader.read('\ndata'), ['data: 1\n\n']);
  assert.equal(reader.rest, 'data');
});

test('line ends are written out and nothing else is changed', () => {
  assert.deepEqual(visible('data: {"token": "\\n"}\n\n'), [
    ['data: {"token": "\\n"}', false],
    ['\\n', true],
    ['\\n', true],
  ]);
  assert.deepEqual(visible('a\r\n'), [
    ['a', false],
    ['\\r\\n', true],
  ]);
});

test('only data that is JSON is read', () => {
  assert.deepEqual(dataOf('data: {"token": " a"}\n\n'), { token: ' a' });
  assert.deepEqual(dataOf('event: error\ndata: {"error": 1}\n\n'), { error: 1 });
  for (const frame of ['data: [DONE]\n\n', ': comment\n\n', 'data: {"tok\n\n']) assert.equal(dataOf(frame), null);
});

const TRACE = {
  index: 3,
  step_id: 7,
  step_start: 10,
  step_end: 10.1,
  emitted: 10.102,
  handed: 10.103,
  queued: 10.1035,
  taken: 10.104,
  sent: 10.1045,
};

const rounded = (hops) => hops.map(({ place, seconds }) => [place, seconds === null ? null : Number(seconds.toFixed(6))]);

test('hops add up to the way from the step to the socket', () => {
  const hops = hopsOf(TRACE, 5.2, { sent: 10.0045, arrival: 5.1 });
  assert.deepEqual(rounded(hops), [
    ['worker', 0.1],
    ['result_queue', 0.002],
    ['thread', 0.001],
    ['event_loop', 0.0005],
    ['own_queue', 0.0005],
    ['sse', 0.0005],
    ['screen', 0],
  ]);
  assert.deepEqual(hops.map(({ place }) => place), PLACES);
  const inServer = hops.slice(0, -1).reduce((sum, { seconds }) => sum + seconds, 0);
  assert.ok(Math.abs(inServer - totalOf(TRACE)) < 1e-9);
});

test('a stamp that is the end of the step says nothing of the queue behind it', () => {
  const hops = hopsOf({ ...TRACE, emitted: 10.1 }, 5, { sent: 10.1045, arrival: 5 });
  assert.deepEqual(rounded(hops).slice(1, 3), [
    ['result_queue', null],
    ['thread', 0.003],
  ]);
  assert.deepEqual([hops[1].note, hops[2].note], ['with_next', 'with_previous']);
});

test('what an engine does not record is not measured, never zero', () => {
  const remote = { ...TRACE, step_id: null, step_start: null, step_end: null };
  const hops = hopsOf(remote, 5, { sent: 10.1045, arrival: 5 });
  assert.deepEqual([hops[0].seconds, hops[0].note], [null, 'not_measured']);
  assert.equal(hops[1].seconds, null);
  assert.equal(Number(hops[2].seconds.toFixed(6)), 0.001);
  assert.ok(Math.abs(totalOf(remote) - 0.0025) < 1e-9);
  assert.equal(totalOf({ ...remote, emitted: null }), null);
});

test('the screen is compared with the first frame only', () => {
  const first = { sent: 10.0045, arrival: 5.1 };
  assert.equal(hopsOf({ ...TRACE, sent: 10.0045 }, 5.1, first).at(-1).note, 'first');
  const late = hopsOf(TRACE, 5.23, first).at(-1);
  assert.equal(late.note, 'relative');
  assert.equal(Number(late.seconds.toFixed(6)), 0.03);
});
