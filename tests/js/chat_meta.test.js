// What stands under the chat before anything was asked.

import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';

import { showChatMeta } from '../../assets/js/chat_meta.js';
import { apply, initialState } from '../../assets/js/reducer.js';
import { arrived, header, row, step, token } from './records.js';

const words = (key) => key;

function hostWith(notes) {
  const host = {
    textContent: '',
    childNodes: [],
    dataset: {},
    replaceChildren(text) {
      this.textContent = text;
    },
  };
  globalThis.document = { getElementById: (id) => (id === 'chat-meta' ? host : null) };
  showChatMeta({ lastMine: null, history: { live: { header: { notes }, requests: new Map() } } }, words);
  return host.textContent;
}

afterEach(() => delete globalThis.document);

test('a model without a chat template is announced', () => {
  assert.equal(hostWith({ chat: 'The model has no chat template.' }), 'meta.plain_chat');
});

test('of a model with one nothing is said', () => {
  assert.equal(hostWith({ kv: 'There is no KV cache.' }), '');
});

/** The sentence about a request of this visitor's own that has come so far. */
function sentenceOf(...records) {
  const state = initialState();
  for (const record of [header(), arrived('r0', { time: 1 }), ...records]) apply(state, record);
  const spans = [{ textContent: '' }, { textContent: '' }];
  const host = { dataset: { request: 'r0' }, childNodes: spans, lastChild: spans[1] };
  globalThis.document = { getElementById: () => host };
  showChatMeta({ lastMine: 'r0', history: { live: state } }, words);
  return spans[1].textContent;
}

test('a call that keeps its tokens until its end is not said to wait for its first one', () => {
  const prefill = step(0, [row('r0', 4, 0, { phase: 'prefill' })], { start_time: 2 });
  assert.match(sentenceOf(prefill), /^meta.running/);
  const decode = step(1, [row('r0', 1, 4)], { start_time: 3 });
  assert.match(sentenceOf(prefill, decode), /^meta.undelivered/);
  const both = [token('r0', 0, 4), token('r0', 1, 4)];
  assert.match(sentenceOf(prefill, decode, ...both), /^meta.at_once/);
  assert.match(sentenceOf(prefill, token('r0', 0, 3), decode, token('r0', 1, 4)), /^meta.first_token/);
});
