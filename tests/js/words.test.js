import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';
import { wordsOf } from '../../assets/js/words.js';

const folder = new URL('../../assets/', import.meta.url);
const read = (lang) => JSON.parse(readFileSync(new URL(`words/${lang}.json`, folder), 'utf8'));
const OURS = /^(panel|transport|state|meta)\./;

test('English and Korean say the same things', () => {
  assert.deepEqual(Object.keys(read('ko')), Object.keys(read('en')));
});

test('a sentence has the same places to fill in both languages', () => {
  const [en, ko] = [read('en'), read('ko')];
  const places = (sentence) => [...new Set(sentence.match(/\{\w+\}/g))].sort();
  for (const key of Object.keys(en)) assert.deepEqual(places(ko[key]), places(en[key]), key);
});

test('every key that a script names has words', () => {
  const scripts = ['js/', 'js/panels/'].flatMap((path) =>
    readdirSync(new URL(path, folder))
      .filter((name) => name.endsWith('.js'))
      .map((name) => readFileSync(new URL(path + name, folder), 'utf8')),
  );
  const named = scripts.flatMap((script) =>
    [...script.matchAll(/words\(\s*'([^']+)'/g)].map((match) => match[1]),
  );
  assert.ok(named.length > 50);
  const en = read('en');
  assert.deepEqual(
    named.filter((key) => !(key in en)),
    [],
  );
});

test('every state, phase, reason and exposure of the records has words', () => {
  const en = read('en');
  const keys = [
    ...['idle', 'starting', 'ready', 'paused', 'crashed', 'restarting', 'unavailable'].flatMap((name) => [
      `state.${name}`,
      `state.${name}.sentence`,
    ]),
    ...['prefill', 'decode', 'finished'].map((name) => `panel.batch.tip.${name}`),
    ...['stop', 'length', 'abort', 'error', 'waiting', 'sent', 'running', 'preempted'].map(
      (name) => `panel.queues.status.${name}`,
    ),
    ...['chat', 'api', 'workload'].map((name) => `panel.queues.source.${name}`),
    ...['measured', 'derived', 'not_exposed'].flatMap((name) => [
      `panel.exposure.${name}`,
      `panel.exposure.${name}.meaning`,
    ]),
    ...['batch', 'kv', 'queues', 'latency'].flatMap((name) =>
      ['title', 'picture', 'empty', 'formula'].map((part) => `panel.${name}.${part}`),
    ),
    ...['blocks', 'recompute', 'reserved', 'gauges'].flatMap((kind) => [
      `panel.kv.${kind}.empty`,
      `panel.kv.${kind}.headline`,
      `panel.kv.${kind}.summary`,
    ]),
    ...['send', 'starting', 'unavailable'].map((how) => `panel.empty.${how}`),
    ...['pause', 'resume', 'step', 'speed', 'restart', 'kill-worker'].flatMap((action) => [
      `transport.${action}`,
      `transport.${action}.hint`,
    ]),
    ...['waiting', 'sent', 'running', 'preempted', 'finished'].map((status) => `meta.${status}`),
    ...['running', 'waiting', 'usage', 'hit_rate', 'queries', 'hits', 'preemptions'].flatMap((name) => [
      `panel.gauges.${name}`,
      `panel.gauges.${name}.meaning`,
    ]),
    ...['filled', 'shared', 'cached', 'cached_free', 'free', 'null'].map((kind) => `panel.kv.blocks.${kind}`),
    ...['queued', 'sent', 'prefill', 'decode', 'preempted', 'first'].map(
      (kind) => `panel.queues.legend.${kind}`,
    ),
  ];
  assert.deepEqual(
    keys.filter((key) => !(key in en)),
    [],
  );
});

test('places are filled, and a missing key shows itself', () => {
  const words = wordsOf({ greeting: '{seat} of {total}, {unknown}' });
  assert.equal(words('greeting', { seat: 'A', total: 0 }), 'A of 0, {unknown}');
  assert.equal(words('no.such.key'), 'no.such.key');
});

test('our words are plain text', () => {
  for (const lang of ['en', 'ko']) {
    for (const [key, sentence] of Object.entries(read(lang)))
      if (OURS.test(key)) assert.doesNotMatch(sentence, /[<>]|&\w+;/, key);
  }
});
