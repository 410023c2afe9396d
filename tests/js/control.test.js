import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { Control, ControlError } from '../../assets/js/control.js';

before(() => {
  globalThis.document = { baseURI: 'http://127.0.0.1:7860/lab/' };
});

function controlOf(answer) {
  const kept = new Map();
  const storage = {
    getItem: (name) => kept.get(name) ?? null,
    setItem: (name, value) => kept.set(name, value),
    removeItem: (name) => kept.delete(name),
  };
  const calls = [];
  const fetch = async (url, options) => {
    calls.push({ url: url.href, ...options });
    return answer();
  };
  return { control: new Control({ fetch, storage }), calls, kept };
}

const ok = () => new Response('{"state": "paused"}');
const error = (status, body) => () =>
  new Response(typeof body === 'string' ? body : JSON.stringify(body), { status });

test('a call goes under the page’s own prefix', async () => {
  const { control, calls } = controlOf(ok);
  await control.send('naive', 'speed', { step_delay: 0.25 });
  assert.equal(calls[0].url, 'http://127.0.0.1:7860/lab/control/naive/speed');
  assert.equal(calls[0].body, '{"step_delay":0.25}');
  assert.equal(calls[0].headers.Authorization, undefined);
});

test('the key goes along once there is one, and is forgotten when the server does not take it', async () => {
  const { control, calls, kept } = controlOf(error(401, { error: { message: 'wrong' } }));
  control.setKey('open sesame');
  await assert.rejects(control.send('naive', 'pause'), { status: 401, message: 'wrong' });
  assert.equal(calls[0].headers.Authorization, 'Bearer open sesame');
  assert.equal(kept.size, 0);
});

test('a refusal carries the server’s words, whatever their shape', async () => {
  const bodies = [
    [{ error: { message: 'no' } }, 'no'],
    [{ detail: 'no way' }, 'no way'],
    ['<html>bad gateway', '<html>bad gateway'],
  ];
  for (const [body, message] of bodies) {
    await assert.rejects(controlOf(error(409, body)).control.send('naive', 'step'), { status: 409, message });
  }
});

test('a server that cannot be reached is an error of its own', async () => {
  const { control } = controlOf(() => {
    throw new TypeError('fetch failed');
  });
  await assert.rejects(
    control.send('naive', 'pause'),
    (refused) => refused instanceof ControlError && refused.status === 0,
  );
});
