// What stands under the chat before anything was asked.

import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';

import { showChatMeta } from '../../assets/js/chat_meta.js';

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
