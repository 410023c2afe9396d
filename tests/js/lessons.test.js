// The Lessons tab's pure parts: what a verdict says, what is kept, how events are read.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';

import { asPrediction } from '../../assets/js/lessons/prediction.js';
import { doneLessons } from '../../assets/js/lessons/done.js';
import { readEvents } from '../../assets/js/lessons/run.js';
import { valueInWords, verdictOf } from '../../assets/js/lessons/values.js';
import { wordsOf } from '../../assets/js/words.js';

const words = wordsOf(JSON.parse(readFileSync(new URL('../../assets/words/en.json', import.meta.url))));

test('a value is said with its unit, and one of it in the singular', () => {
  assert.equal(valueInWords(1204, 'tokens', words), '1,204 tokens');
  assert.equal(valueInWords(1, 'requests', words), '1 request');
  assert.equal(valueInWords(0.469, 'share', words), '46.9%');
  assert.equal(valueInWords(0.5, 'share', words), '50%');
  assert.equal(valueInWords(28.8, 'times', words), '28.8×');
  assert.equal(valueInWords(0.25, 'seconds', words), '250 ms');
  assert.equal(valueInWords('later', 'choice', words, { later: 'It comes later' }), 'It comes later');
});

test('every unit that an experiment can have has its words in both languages', () => {
  const source = readFileSync(new URL('../../backends/lessons/outcome.py', import.meta.url), 'utf8');
  const units = [...source.matchAll(/^ {4}[A-Z]+ = "(\w+)"$/gm)].map(([, unit]) => unit);
  assert.ok(units.length > 10);
  for (const lang of ['en', 'ko']) {
    const keys = JSON.parse(readFileSync(new URL(`../../assets/words/${lang}.json`, import.meta.url)));
    for (const unit of units) {
      const spoken = valueInWords(2, unit, wordsOf(keys));
      assert.ok(!spoken.includes('lessons.'), `${lang}: ${spoken}`);
    }
  }
});

test('a number that is exact, one that is off, and one that is close where runs differ', () => {
  const was = (value, unit) => ({ value, unit });
  assert.deepEqual(verdictOf(25, was(25, 'tokens'), words), {
    verdict: 'exact',
    sentence: 'You said 25 tokens, and so it was.',
  });
  assert.deepEqual(verdictOf(4, was(16, 'tokens'), words), {
    verdict: 'off',
    sentence: 'You said 4 tokens, it was 16 tokens. That is 4.0× as much as you said.',
  });
  assert.equal(verdictOf(24, was(25, 'tokens'), words).verdict, 'off');
  assert.equal(verdictOf(6, was(6.4, 'times'), words).verdict, 'close');
  assert.equal(verdictOf(0, was(16, 'tokens'), words).sentence, 'You said 0 tokens, it was 16 tokens.');
});

test('a choice is judged by what it says', () => {
  const choices = { same: 'The same', later: 'Later' };
  const got = verdictOf('later', { value: 'same', unit: 'choice' }, words, choices);
  assert.deepEqual(got, { verdict: 'off', sentence: 'You said “Later”, it was “The same”.' });
  assert.equal(verdictOf('same', { value: 'same', unit: 'choice' }, words, choices).verdict, 'exact');
});

test('a share is said in percent', () => {
  assert.equal(asPrediction('47', { unit: 'share', choices: {} }), 0.47);
  assert.equal(asPrediction('47', { unit: 'tokens', choices: {} }), 47);
  assert.equal(asPrediction('same', { unit: 'choice', choices: { same: 'The same' } }), 'same');
});

test('what was done is kept, whatever else lies in the store', () => {
  const kept = new Map([['servescope.lessons.done', '{"no": "list"}']]);
  const storage = { getItem: (key) => kept.get(key) ?? null, setItem: (key, value) => kept.set(key, value) };
  const done = doneLessons(storage);
  assert.equal(done.has('padding'), false);
  done.add('padding');
  assert.equal(doneLessons(storage).has('padding'), true);
});

test('a store that refuses is done without', () => {
  const refuse = () => {
    throw new Error('forbidden');
  };
  const done = doneLessons({ getItem: () => null, setItem: refuse });
  done.add('padding');
  assert.equal(done.has('padding'), true);
});

test('events are read whatever pieces they come in', async () => {
  const bytes = new TextEncoder().encode(
    'event: run\ndata: {"run": "1"}\n\nevent: error\ndata: {"error": {"message": "한 걸음"}}\n\n',
  );
  const pieces = new ReadableStream({
    start(controller) {
      for (const byte of bytes) controller.enqueue(Uint8Array.of(byte));
      controller.close();
    },
  });
  const events = [];
  for await (const event of readEvents(pieces)) events.push(event);
  assert.deepEqual(events, [
    { event: 'run', data: { run: '1' } },
    { event: 'error', data: { error: { message: '한 걸음' } } },
  ]);
});
