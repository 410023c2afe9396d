import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pack, unpack } from '../../assets/js/pack.js';
import { longRun } from './records.js';

test('unpacking gives back what was packed', () => {
  const records = [...longRun(50)];
  assert.deepEqual(unpack(pack(records)), records);
});

test('any JSON survives: numbers as text, empty things, null, nesting, strings that look like numbers', () => {
  const records = [
    { a: '10', b: 10, c: null, d: [], e: {}, f: [[-1], [0, 'x']], g: true, h: '' },
    { a: { a: { a: 'deep' } }, '': 'empty key', 'key,with,commas': 1 },
    { list: [-1, -1.5, 1e300, 'z'], text: '한국어 "quoted" \n' },
  ];
  assert.deepEqual(unpack(pack(records)), records);
});

test('a long run shrinks to less than half', () => {
  const records = [...longRun(64)];
  assert.ok(pack(records).length < JSON.stringify(records).length / 2);
});
