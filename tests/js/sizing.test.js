import assert from 'node:assert/strict';
import { test } from 'node:test';

import { layoutBar } from '../../assets/js/sizing/bar.js';
import { PRESETS, engineChoices, fieldsOf, fieldsOfEngine, gib, planOf } from '../../assets/js/sizing/plan.js';
import { exactText, figureText, memory } from '../../assets/js/sizing/values.js';

const GIB = 2 ** 30;
const SHAPE = {
  num_layers: 12,
  hidden_size: 768,
  num_attention_heads: 12,
  num_kv_heads: 4,
  head_dim: 64,
  vocab_size: 50272,
  num_parameters: 125239296,
};
const ENGINE = {
  engine: 'paged',
  dtype: 'float32',
  device: 'cpu',
  shape: SHAPE,
  config: { max_model_len: 1024, max_num_seqs: 16, block_size: 16, num_blocks: 64 },
  gpu_memory_utilization: 0.5,
};
const MACHINE = { total_memory: 8 * GIB, free_memory: 5 * GIB };

function formOf(changes = {}) {
  return { ...fieldsOf({ shape: SHAPE, dtype: 'float16' }), other_memory: '0.75', ...PRESETS[0].form, ...changes };
}

test('a form becomes a plan in bytes', () => {
  const plan = planOf(formOf());
  assert.equal(plan.total_memory, 6 * GIB);
  assert.equal(plan.free_memory, Math.round(5.2 * GIB));
  assert.equal(plan.other_memory, 0.75 * GIB);
  assert.equal(plan.gpu_memory_utilization, 0.9);
  assert.equal(plan.num_kv_heads, 4);
  assert.deepEqual([plan.dtype, plan.kv_cache_dtype], ['float16', 'auto']);
});

test('numbers may be written with separators; what is none goes on as it is', () => {
  assert.equal(planOf(formOf({ num_parameters: '125,239,296' })).num_parameters, 125239296);
  assert.equal(planOf(formOf({ num_layers: 'twelve' })).num_layers, 'twelve');
  assert.equal(planOf(formOf({ total_memory: '' })).total_memory, '');
  assert.equal(planOf(formOf({ num_layers: '1.5' })).num_layers, 1.5);
});

test('a model without a known number of parameters leaves the field empty', () => {
  const fields = fieldsOf({ shape: { ...SHAPE, num_parameters: null }, dtype: 'awq' });
  assert.equal(fields.num_parameters, '');
  assert.equal('dtype' in fields, false);
});

test('an engine on the CPU brings the memory of its machine, one on a card does not', () => {
  const fields = fieldsOfEngine(ENGINE, MACHINE);
  assert.deepEqual(
    [fields.total_memory, fields.free_memory, fields.other_memory, fields.gpu_memory_utilization],
    ['8', '5', '0', '0.5'],
  );
  assert.equal(fields.max_model_len, '1024');
  assert.equal('total_memory' in fieldsOfEngine({ ...ENGINE, device: 'cuda' }, MACHINE), false);
  assert.equal('total_memory' in fieldsOfEngine(ENGINE, { total_memory: null, free_memory: null }), false);
  const unlimited = { ...ENGINE, config: { ...ENGINE.config, max_num_seqs: null } };
  assert.equal('max_num_seqs' in fieldsOfEngine(unlimited, MACHINE), false);
});

test('only engines with blocks and a known model are offered', () => {
  const without = [{ ...ENGINE, shape: null }, { ...ENGINE, config: { ...ENGINE.config, num_blocks: null } }];
  assert.deepEqual(engineChoices([ENGINE, ...without]), [ENGINE]);
});

test('what a field shows of bytes gives these bytes again, to the hundredth of a GiB', () => {
  for (const bytes of [0.75 * GIB, 23.5 * GIB, 25276243968]) {
    assert.ok(Math.abs(Number(gib(bytes)) * GIB - bytes) < 0.01 * GIB);
  }
});

const MEMORY = { total: 6 * GIB, free: 5 * GIB, reserved: 3 * GIB, weights: GIB, other: GIB / 2 };

test('both rows of the bar fill the card', () => {
  const bar = layoutBar(MEMORY);
  const sum = (row) => row.reduce((total, [, bytes]) => total + bytes, 0);
  assert.equal(bar.scale, 6 * GIB);
  assert.equal(sum(bar.card), 6 * GIB);
  assert.equal(sum(bar.plan), 6 * GIB);
  assert.deepEqual(Object.fromEntries(bar.plan).kv, 1.5 * GIB);
  assert.deepEqual([bar.reservedShare, bar.freeShare], [0.5, 5 / 6]);
});

test('weights greater than the card set the scale, and leave no cache', () => {
  const bar = layoutBar({ ...MEMORY, weights: 9 * GIB });
  assert.equal(bar.scale, 9.5 * GIB);
  assert.equal(Object.fromEntries(bar.plan).kv, 0);
  assert.equal(Object.fromEntries(bar.plan).not_reserved, 0);
});

test('memory reads as people write it, exact below a MiB', () => {
  assert.equal(memory(36864), '36,864 B');
  assert.equal(memory(3 * GIB), '3.00 GiB');
  assert.equal(memory(250478592), '238.88 MiB');
  assert.equal(memory(-GIB / 2), '−512.00 MiB');
  assert.equal(memory(0), '0 B');
});

test('a figure has its unit, and its exact bytes where it is rounded', () => {
  const words = (key, { number }) => `${key} ${number}`;
  assert.equal(figureText({ value: 58254, unit: 'tokens' }, words), 'sizing.unit.tokens 58,254');
  assert.equal(figureText({ key: 'highest_utilization', value: 0.86666, unit: 'share' }, words), '0.866');
  assert.equal(figureText({ key: 'lowest_utilization', value: 0.17523, unit: 'share' }, words), '0.176');
  assert.equal(exactText({ value: 3 * GIB, unit: 'bytes' }), '3,221,225,472 bytes');
  assert.equal(exactText({ value: 3, unit: 'blocks' }), null);
});
