import assert from 'node:assert/strict';
import { test } from 'node:test';
import { apply, initialState } from '../../assets/js/reducer.js';
import { boxOf, cellAt, layoutPool } from '../../assets/js/panels/pool_layout.js';
import { blockMap, cellsOf, heightsOf, numFreeIn } from '../../assets/js/panels/pool_map.js';
import { numUsableBlocks } from '../../assets/js/pool.js';
import { arrived, finished, header, kv, kvChanged, queues, row, step, token } from './records.js';

const SIZES = [
  [410, 229, 1], // a panel at 1440 × 900
  [330, 190, 1], // on a phone
  [690, 240, 1.3], // on a projector
];

function stateOf(engine, ...records) {
  const state = initialState();
  for (const record of [header({ engine: { block_size: 16, ...engine } }), ...records]) apply(state, record);
  return state;
}

const take = (id, blocks, fields = {}) =>
  step(0, [row(id)], { kv: kv({ taken: { [id]: blocks }, filled_slots: { [id]: 16 * blocks.length }, ...fields }) });

test('a pool that fits is drawn block by block', () => {
  const { whole, closeUp } = layoutPool({ numBlocks: 96, numHeld: 20, width: 410, height: 229, scale: 1 });
  assert.deepEqual([whole.perCell, whole.top, closeUp], [1, 0, null]);
});

test('a large pool is drawn whole, and what is in use below it, each block by itself', () => {
  for (const [width, height, scale] of SIZES) {
    for (const numBlocks of [2800, 10_000, 60_000, 1_000_000]) {
      const { whole, closeUp } = layoutPool({ numBlocks, numHeld: 120, width, height, scale });
      assert.ok(whole.perCell > 1);
      assert.ok(whole.perCell * whole.numCells >= numBlocks, 'every block has a cell');
      const last = boxOf(whole, whole.numCells - 1);
      assert.ok(last.y + last.height < closeUp.labelY, 'the two do not overlap');
      assert.equal(closeUp.perCell, 1);
      const end = boxOf(closeUp, 119);
      assert.ok(end.y + end.height <= height && end.x + end.width <= width, `${numBlocks} at ${width}`);
      assert.ok(Math.min(last.width, last.height) >= 5, 'a cell can be seen');
    }
  }
});

test('when too many are in use to be drawn one by one, the whole pool takes all the room', () => {
  const size = { numBlocks: 10_000, width: 410, height: 229, scale: 1 };
  const { whole, closeUp } = layoutPool({ ...size, numHeld: 6000 });
  assert.equal(closeUp, null);
  assert.ok(whole.numCells > layoutPool({ ...size, numHeld: 10 }).whole.numCells);
});

test('the parts keep their places while blocks come and go', () => {
  const places = [0, 1, 30, 100].map((numHeld) => {
    const { whole, closeUp } = layoutPool({ numBlocks: 10_000, numHeld, width: 410, height: 229, scale: 1 });
    return [whole.perCell, whole.columns, closeUp.top];
  });
  for (const place of places) assert.deepEqual(place, places[0]);
});

test('a point finds the cell that is drawn there', () => {
  const { whole, closeUp } = layoutPool({ numBlocks: 10_000, numHeld: 50, width: 410, height: 229, scale: 1 });
  for (const [grid, cell] of [
    [whole, 0],
    [whole, whole.numCells - 1],
    [closeUp, 49],
  ]) {
    const box = boxOf(grid, cell);
    assert.equal(cellAt(grid, box.x + box.width / 2, box.y + box.height / 2), cell);
  }
  assert.equal(cellAt(whole, 5, 2), null, 'its label is no cell');
  assert.equal(cellAt(closeUp, 5, closeUp.labelY), null);
});

test('a cell tells whose its blocks are, what is cached, and what is free', () => {
  const state = stateOf(
    { num_blocks: 100, null_block: 0 },
    arrived('a'),
    arrived('b', { seat: 1 }),
    take('a', [1, 2, 11], { cached: [1, 7, 8] }),
    take('b', [3]),
  );
  const cells = cellsOf(blockMap(state), { pool: state.pool, numBlocks: 100, nullBlock: 0, perCell: 10 });
  const [first, second, third] = cells;
  const owners = (cell) => [...cell.owners].map(([owner, number]) => [owner.id, number]);
  assert.deepEqual(owners(first), [
    ['a', 2],
    ['b', 1],
  ]);
  assert.deepEqual([first.numCached, first.hasNull, numFreeIn(first)], [2, true, 4], 'block 1 is held, not free');
  assert.deepEqual([owners(second), numFreeIn(second)], [[['a', 1]], 9]);
  assert.equal(numFreeIn(third), 10);
  assert.equal(cells.length, 10);
});

test('the last cell stands for as many blocks as are left', () => {
  const state = stateOf({ num_blocks: 25 });
  const cells = cellsOf(blockMap(state), { pool: state.pool, numBlocks: 25, nullBlock: null, perCell: 10 });
  assert.deepEqual(
    cells.map(({ first, size }) => [first, size]),
    [
      [0, 10],
      [10, 10],
      [20, 5],
    ],
  );
});

test('parts of a cell are to scale, and one block of a hundred can still be seen', () => {
  assert.deepEqual(heightsOf([5, 0, 5], 10, 8), [4, 0, 4]);
  assert.deepEqual(heightsOf([1, 0], 100, 8), [2, 0]);
  const full = heightsOf([97, 1, 1, 1], 100, 8);
  assert.ok(Math.abs(full.reduce((sum, part) => sum + part, 0) - 8) < 1e-9, 'and all of it fits');
});

test('the null block is left out of the total', () => {
  assert.equal(numUsableBlocks({ num_blocks: 12, null_block: 0 }), 11);
  assert.equal(numUsableBlocks({ num_blocks: 12, null_block: null }), 12);
  assert.equal(numUsableBlocks({ num_blocks: 12 }), 12);
});

test('the pool has another version exactly when a block may look different', () => {
  const state = stateOf({ num_blocks: 8 });
  const changes = (...records) => {
    const before = state.pool.version;
    for (const record of records) apply(state, record);
    return state.pool.version !== before;
  };
  assert.ok(!changes(arrived('a')));
  assert.ok(changes(take('a', [1])));
  assert.ok(!changes(token('a'), queues(), step(1, [row('a')])));
  assert.ok(changes(kvChanged({ cached: [1] })));
  assert.ok(changes(finished('a')), 'its blocks are nobody’s any more');
  assert.ok(changes(header({ start_time: 9, engine: { block_size: 16, num_blocks: 8 } })));
});
