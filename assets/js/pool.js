// The KV cache as deltas leave it: which blocks are findable, how many are free, who shares what.
// Block tables and filled slots belong to the requests.

/** @param {object} [before] the pool that it takes the place of */
export function emptyPool(numBlocks, before) {
  return {
    version: (before?.version ?? 0) + 1, // another number whenever a block changes its state or owner
    numFree: null,
    isCached: new Uint8Array(numBlocks ?? 0), // block id → 1 when prefix caching can find it
    refCounts: new Map(), // block id → reference count, where it is more than 1
    reserves: false, // the engine reserves one run of slots a request
  };
}

export function copyPool(pool) {
  return { ...pool, isCached: pool.isCached.slice(), refCounts: new Map(pool.refCounts) };
}

/** Blocks that requests can have: all but the one that the engine keeps for itself, if it does. */
export function numUsableBlocks({ num_blocks: numBlocks, null_block: nullBlock = null }) {
  return nullBlock === null ? numBlocks : numBlocks - 1;
}

export function poolFromSnapshot(snapshot, numBlocks, before) {
  const pool = emptyPool(numBlocks, before);
  pool.numFree = snapshot.num_free_blocks;
  for (const block of snapshot.cached_blocks) mark(pool, block, 1);
  for (const [block, references] of Object.entries(snapshot.ref_counts)) {
    pool.refCounts.set(Number(block), references);
  }
  pool.reserves = snapshot.requests.some((request) => request.reserved_slots !== null);
  return pool;
}

/** @param {(id: string) => object|null} own gives a request that may be changed */
export function applyKV(pool, kv, own) {
  pool.version += 1;
  if (kv.num_free !== null) pool.numFree = kv.num_free;
  for (const block of kv.evicted) mark(pool, block, 0);
  for (const block of kv.cached) mark(pool, block, 1);
  for (const [block, references] of Object.entries(kv.ref_counts)) {
    if (references > 1) pool.refCounts.set(Number(block), references);
    else pool.refCounts.delete(Number(block));
  }
  for (const [id, blocks] of Object.entries(kv.given_back)) giveBack(own(id), blocks);
  for (const [id, blocks] of Object.entries(kv.taken)) take(own(id), blocks);
  for (const [id, slots] of Object.entries(kv.filled_slots)) set(own(id), 'filledSlots', slots);
  for (const [id, slots] of Object.entries(kv.reserved_slots)) {
    pool.reserves = true;
    set(own(id), 'reservedSlots', slots);
  }
}

function take(request, blocks) {
  if (request === null) return;
  for (const block of blocks) request.blocks.push(block);
}

function giveBack(request, blocks) {
  if (request === null) return;
  const gone = new Set(blocks);
  request.blocks = request.blocks.filter((block) => !gone.has(block));
  if (request.blocks.length === 0) request.filledSlots = null;
}

function set(request, field, value) {
  if (request !== null) request[field] = value;
}

function mark(pool, block, value) {
  if (block >= pool.isCached.length) {
    const larger = new Uint8Array(Math.max(block + 1, pool.isCached.length * 2));
    larger.set(pool.isCached);
    pool.isCached = larger;
  }
  pool.isCached[block] = value;
}
