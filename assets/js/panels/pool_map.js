// What the blocks of a pool hold, by request and by cell. Pure.

import { isInFlight } from '../request.js';

/**
 * Of the blocks in use, in the order of the block tables: owner and filled slots. A shared block
 * counts once, with the first request that has it. Costs as much as is in use, not as the pool.
 * @returns {{owners: Map<number, object>, filled: Map<number, number>, held: number[],
 *   numSlotsFilled: number}}
 */
export function blockMap(state) {
  const { block_size: blockSize } = state.header.engine;
  const owners = new Map();
  const filled = new Map();
  for (const request of state.requests.values()) {
    if (!isInFlight(request)) continue;
    request.blocks.forEach((block, place) => {
      const slots = Math.max(0, Math.min(blockSize, (request.filledSlots ?? 0) - place * blockSize));
      filled.set(block, Math.max(filled.get(block) ?? 0, slots));
      if (!owners.has(block)) owners.set(block, request);
    });
  }
  const numSlotsFilled = [...filled.values()].reduce((sum, slots) => sum + slots, 0);
  return { owners, filled, held: [...owners.keys()], numSlotsFilled };
}

/** Every request that holds one of these blocks → how many of them; a shared one counts for each. */
export function holdersOf(state, first, size = 1) {
  const holders = new Map();
  for (const request of state.requests.values()) {
    if (!isInFlight(request)) continue;
    const number = request.blocks.filter((block) => block >= first && block < first + size).length;
    if (number > 0) holders.set(request, number);
  }
  return holders;
}

/**
 * What lies in each cell of several blocks.
 * @returns {{first: number, size: number, owners: Map<object, number>, numCached: number,
 *   hasNull: boolean}[]} `owners`: request → blocks; `numCached`: findable, and nobody's
 */
export function cellsOf({ owners }, { pool, numBlocks, nullBlock, perCell }) {
  const cells = [];
  for (let first = 0; first < numBlocks; first += perCell) {
    const size = Math.min(perCell, numBlocks - first);
    const numCached = countMarked(pool.isCached, first, first + size);
    cells.push({ first, size, owners: new Map(), numCached, hasNull: false });
  }
  for (const [block, owner] of owners) {
    const cell = cells[Math.floor(block / perCell)];
    if (cell === undefined) continue;
    cell.owners.set(owner, (cell.owners.get(owner) ?? 0) + 1);
    if (pool.isCached[block] === 1) cell.numCached -= 1;
  }
  if (nullBlock !== null) cells[Math.floor(nullBlock / perCell)].hasNull = true;
  return cells;
}

function countMarked(marks, from, to) {
  let number = 0;
  for (let block = from; block < to; block += 1) number += marks[block] ?? 0;
  return number;
}

/** Blocks of a cell that nobody holds and that are not findable either. */
export function numFreeIn({ size, owners, numCached, hasNull }) {
  let taken = numCached + (hasNull ? 1 : 0);
  for (const number of owners.values()) taken += number;
  return size - taken;
}

/**
 * How tall each part of a cell is drawn: to scale, but what is there at all can be seen.
 * @param {number[]} numbers of blocks, from below @param {number} total blocks of the cell
 */
export function heightsOf(numbers, total, height, least = 2) {
  const wanted = numbers.map((number) => (number === 0 ? 0 : Math.max(least, (number / total) * height)));
  const sum = wanted.reduce((all, part) => all + part, 0);
  return wanted.map((part) => (sum > height ? (part / sum) * height : part));
}
