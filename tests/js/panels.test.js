import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  columnsThatFit,
  layoutBatch,
  paddingOfRows,
  paddingShare,
} from '../../assets/js/panels/batch_layout.js';
import { blockMap, holdersOf } from '../../assets/js/panels/pool_map.js';
import { gridOf } from '../../assets/js/panels/pool_layout.js';
import { kvKind } from '../../assets/js/panels/kv.js';
import { itlPoints, timeShare } from '../../assets/js/panels/latency_chart.js';
import { layoutTimeline, ticksOf } from '../../assets/js/panels/timeline_layout.js';
import { recomputation } from '../../assets/js/panels/kv_recompute.js';
import { reservations } from '../../assets/js/panels/kv_reserved.js';
import { shape } from '../../assets/js/format.js';
import { apply, initialState } from '../../assets/js/reducer.js';
import { arrived, finished, header, kv, row, step, token } from './records.js';

function stateOf(...records) {
  const state = initialState();
  for (const record of records) apply(state, record);
  return state;
}

test('padding of each row follows from the width of the batch', () => {
  const padded = step(0, [row('a', 25), row('b', 20)], { input_shape: [2, 25], num_padding_tokens: 5 });
  assert.deepEqual(paddingOfRows(padded), [0, 5]);
  assert.equal(paddingShare(padded), 0.1);
});

test('padding that does not add up to what the engine counted is not guessed', () => {
  assert.equal(
    paddingOfRows(step(0, [row('a', 25), row('b', 20)], { input_shape: [2, 25], num_padding_tokens: 7 })),
    null,
  );
  assert.equal(paddingOfRows(step(0, [row('a', 11)], { input_shape: [1, 11], num_padding_tokens: 0 })), null);
  assert.equal(paddingShare(step(0, [row('a')], { num_padding_tokens: null })), null);
});

test('a flat batch has one dimension and no padding', () => {
  const flat = step(0, [row('a', 25), row('b', 1)], { input_shape: [26], num_padding_tokens: 0 });
  assert.equal(paddingOfRows(flat), null);
  assert.equal(paddingShare(flat), 0);
  assert.equal(shape(flat.input_shape), 'torch.Size([26])');
});

test('the newest step is at the right, and a point finds its step', () => {
  const columns = [0, 1, 2].map((id) => ({ pool: '', lanes: [0], step: step(id, [row()]) }));
  const layout = layoutBatch({
    width: 400,
    height: 250,
    scale: 1,
    columns,
    engine: { batch_size: 4 },
    occupied: new Map(),
  });
  assert.equal(layout.xOf(3), layout.right);
  assert.equal(layout.indexAt(layout.right - 1), 2);
  assert.equal(layout.indexAt(layout.left), 0);
  assert.equal(layout.indexAt(layout.left - 1), null);
  assert.equal(layout.groups[0].numLanes, 4, 'the places of the batch, also empty ones');
  assert.ok(layout.groups[0].bottom <= layout.waiting.top && layout.waiting.top < layout.bars.top);
});

test('where all places would be too low for a letter, as many are drawn as are not, in fours, or those in use', () => {
  const columns = [{ pool: '', lanes: [0, 1, 2, 3, 4], step: step(0, []) }];
  const size = { width: 400, scale: 1, columns, engine: { max_num_seqs: 16 }, occupied: new Map() };
  assert.equal(layoutBatch({ ...size, height: 250 }).groups[0].numLanes, 8);
  const full = { ...size, height: 250, occupied: new Map([['', 13]]) };
  assert.equal(layoutBatch(full).groups[0].numLanes, 14, 'in twos, since sixteen could not be read');
  assert.equal(layoutBatch({ ...size, height: 400 }).groups[0].numLanes, 16);
});

test('each pool in use has lanes of its own, streams first', () => {
  const columns = [{ pool: 'whole', lanes: [0, 1], step: step(0, []) }];
  const { groups } = layoutBatch({
    width: 400,
    height: 250,
    scale: 1,
    columns,
    engine: { batch_size: 4 },
    occupied: new Map([
      ['streaming', 1],
      ['old', 0],
    ]),
  });
  assert.deepEqual(
    groups.map(({ pool, numLanes }) => [pool, numLanes]),
    [
      ['streaming', 4],
      ['whole', 4],
    ],
  );
});

test('at least one step fits, whatever the width', () => {
  assert.equal(columnsThatFit(10).count, 1);
  assert.ok(columnsThatFit(400).count > 30);
});

test('which of the three KV pictures it is comes from the header', () => {
  assert.equal(kvKind(stateOf()), null);
  assert.equal(kvKind(stateOf(header())), 'recompute');
  assert.equal(
    kvKind(stateOf(header({ engine: { block_size: 16 }, measured: { kv: 'measured' } }))),
    'blocks',
  );
  assert.equal(kvKind(stateOf(header({ measured: { kv: 'measured' } }))), 'reserved');
  assert.equal(kvKind(stateOf(header({ measured: { kv: 'not_exposed' } }))), null);
});

test('without a cache the first step is all new, and then one token a step', () => {
  const { requests } = stateOf(
    header(),
    arrived(),
    ...[4, 5, 6].map((length, id) => step(id, [row('r0', length)])),
  );
  assert.deepEqual(
    recomputation(requests.get('r0')).map(({ length, fresh }) => [length, fresh]),
    [
      [4, 4],
      [5, 1],
      [6, 1],
    ],
  );
});

test('a sequence that got shorter by being tokenized anew has nothing new in that step', () => {
  const { requests } = stateOf(
    header(),
    arrived(),
    ...[8, 7, 9].map((length, id) => step(id, [row('r0', length)])),
  );
  assert.deepEqual(
    recomputation(requests.get('r0')).map(({ fresh }) => fresh),
    [8, 0, 1],
  );
});

test('blocks are filled in the order of the block table, and a shared one counts once', () => {
  const state = stateOf(
    header({ engine: { block_size: 16, num_blocks: 6 } }),
    arrived('a'),
    arrived('b', { seat: 1 }),
    step(0, [row('a'), row('b')], {
      kv: kv({
        taken: { a: [2, 0], b: [2, 5] },
        ref_counts: { 2: 2 },
        filled_slots: { a: 20, b: 17 },
        num_free: 3,
      }),
    }),
  );
  const { owners, filled, held, numSlotsFilled } = blockMap(state);
  assert.deepEqual([...filled], [
    [2, 16],
    [0, 4],
    [5, 1],
  ]);
  assert.deepEqual(held, [2, 0, 5], 'in the order of the block tables');
  assert.deepEqual(
    held.map((block) => owners.get(block).id),
    ['a', 'a', 'b'],
  );
  assert.equal(numSlotsFilled, 21);
});

test('a pool of any size fits its space, several blocks to a cell when there are thousands', () => {
  for (const [blocks, width, height] of [
    [1, 400, 200],
    [96, 400, 200],
    [4000, 400, 200],
    [100_000, 390, 150],
    [7, 30, 300],
  ]) {
    const grid = gridOf(blocks, width, height);
    assert.ok(grid.columns * grid.rows * grid.perCell >= blocks, `${blocks} blocks have a cell`);
    assert.ok(
      grid.columns * grid.cellWidth <= width + 1e-6 && grid.rows * grid.cellHeight <= height + 1e-6,
      `${blocks} blocks stay inside`,
    );
  }
  assert.equal(gridOf(96, 400, 200).perCell, 1);
  assert.ok(gridOf(100_000, 390, 150).perCell > 1);
});

test('reservations in flight come before those that are over, the last of these first', () => {
  const reserve = (id, stepId) =>
    step(stepId, [row(id)], { kv: kv({ reserved_slots: { [id]: 64 }, filled_slots: { [id]: 5 } }) });
  const state = stateOf(
    header(),
    ...['a', 'b', 'c', 'd'].map((id) => arrived(id)),
    reserve('a', 0),
    reserve('b', 1),
    finished('a'),
    finished('b'),
    reserve('c', 2),
  );
  assert.deepEqual(
    reservations(state.requests.values(), 10).map(({ id }) => id),
    ['c', 'b', 'a'],
  );
  assert.equal(reservations(state.requests.values(), 2).length, 2);
});

const timelineOf = (requests, fields = {}) =>
  layoutTimeline({ requests, now: 100, height: 26, scale: 1, lit: null, ...fields });

test('when rows are few, those in flight and the lit one stay, in order of arrival', () => {
  const requests = [
    ...stateOf(
      ...['a', 'b', 'c', 'd'].map((id, i) => arrived(id, { time: 90 + i })),
      step(0, [row('b')], { start_time: 95 }),
      finished('a', 96),
      finished('c', 97),
      finished('d', 98),
    ).requests.values(),
  ];
  assert.deepEqual(
    timelineOf(requests).rows.map(({ id }) => id),
    ['b', 'd'],
  );
  assert.deepEqual(
    timelineOf(requests, { lit: 'a' }).rows.map(({ id }) => id),
    ['a', 'b'],
  );
  assert.equal(timelineOf(requests).numHidden, 2);
});

test('the time axis ends now and reaches back to the first arrival in round steps', () => {
  const { requests } = stateOf(arrived('a', { time: 88 }));
  const { start, end } = timelineOf([...requests.values()]);
  assert.deepEqual([start, end], [80, 100]);
  assert.deepEqual(ticksOf(80, 100), [0, 5, 10, 15, 20]);
});

test('the chart keeps its last points, and knows where a step is', () => {
  const { requests } = stateOf(
    arrived('a', { time: 0 }),
    ...Array.from({ length: 2000 }, (_, i) => token('a', i, i / 100)),
  );
  const points = itlPoints([...requests.values()], 20);
  assert.equal(points.series[0].times.length, 400);
  assert.equal(points.series[0].times.at(-1), 19.99);
  assert.equal(points.series[0].gaps.length, 400);
  assert.ok(timeShare(step(0, [], { start_time: 19 }), points) > 0.5);
  assert.equal(timeShare(step(0, [], { start_time: -100 }), points), null);
});

test('a shared block is held by everyone whose block table has it', () => {
  const state = stateOf(
    header({ engine: { block_size: 16, num_blocks: 6 } }),
    arrived('a'),
    arrived('b', { seat: 1 }),
    step(0, [row('a'), row('b')], { kv: kv({ taken: { a: [2, 0], b: [2, 5] } }) }),
  );
  const held = (first, size) => [...holdersOf(state, first, size)].map(([{ id }, number]) => [id, number]);
  assert.deepEqual(held(2), [
    ['a', 1],
    ['b', 1],
  ]);
  assert.deepEqual(held(0, 3), [
    ['a', 2],
    ['b', 1],
  ]);
  assert.deepEqual(held(1), []);
});
