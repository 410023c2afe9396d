// Everything that was seen, so that any step can be looked at again.
//
//   chunk 0            chunk 1            chunk 2 (open)
//   ◆ s s s s s s s s  ◆ s s s s s s s s  ◆ s s s →          ◆ checkpoint   s step
//   packed text        packed text        plain records      → live
//
// Seeking copies the checkpoint before a step and replays at most one chunk, so its cost does not
// depend on how long the history is. Closed chunks are text (pack.js); the oldest are dropped when
// all of it is larger than the budget.
//
// A step is addressed by its ordinal: how many steps this page had seen before it. Step ids are the
// engine's and may have gaps where a snapshot skipped some.

import { pack, unpack } from './pack.js';
import { apply, copyState, initialState, timeOf } from './reducer.js';

const STEPS_PER_CHUNK = 64;
const RECORDS_PER_CHUNK = 8192; // requests can come and go without a step while an engine is paused
const BUDGET = 96 * 1024 * 1024; // bytes, counted roughly
const UNPACKED_CHUNKS = 16;
const CHECKPOINT_SIZE_PER_REQUEST = 64; // one map entry, its request is shared
// What checkpoints keep of a request that is long gone from the live state: measured in V8, see the test.
const SIZES = { arrived: 1200, token: 48 };

export class History {
  #chunks;
  #budget;
  #stepsPerChunk;
  #unpacked = new Map(); // chunk → {records, columns}, least recently used first
  #sought = null; // where the last seek ended, to go on from when the next is a little later

  constructor({ stepsPerChunk = STEPS_PER_CHUNK, budget = BUDGET } = {}) {
    this.#stepsPerChunk = stepsPerChunk;
    this.#budget = budget;
    this.live = initialState();
    this.#chunks = [openChunk(this.live)];
  }

  /** Add one record; `live` is the state after it. */
  push(record) {
    let chunk = this.#chunks.at(-1);
    if (this.#isFull(chunk, record)) {
      this.#close(chunk);
      chunk = openChunk(this.live);
      this.#chunks.push(chunk);
    }
    if (chunk.records.length === 0) chunk.beginsWithStep = record.type === 'step';
    apply(this.live, record);
    chunk.beginsAt ??= this.live.time;
    chunk.records.push(record);
    if (record.type === 'step') {
      chunk.firstStepId ??= record.step_id;
      chunk.columns.push(this.live.column);
      chunk.numSteps += 1;
    }
  }

  /** Ordinal of the oldest step that can be looked at. */
  get first() {
    return this.#chunks[0].firstOrdinal;
  }

  /** Ordinal of the latest step; −1 before there is one. */
  get last() {
    return this.live.numSteps - 1;
  }

  get isEmpty() {
    return this.last < this.first;
  }

  /** Bytes of text (one each character), checkpoints, and the requests that these hold, roughly. */
  get size() {
    return this.#chunks.reduce((sum, chunk) => sum + chunk.size, 0);
  }

  /**
   * The state after a step and all that came before the next one; with `until` only what came up to
   * that time, and then the ordinal before the first is the time before any step. Not to be changed,
   * and good until the next seek.
   */
  seek(ordinal, until = Infinity) {
    if (ordinal >= this.last && until === Infinity) return this.live;
    const wanted = Math.max(ordinal + 1, this.first + (until === Infinity ? 1 : 0));
    const index = this.#startOf(wanted, until);
    let at = this.#sought;
    const isPast = at !== null && (at.state.numSteps > wanted || at.state.time > until);
    if (at === null || isPast || at.chunk !== this.#chunks[index]) {
      at = { chunk: this.#chunks[index], state: copyState(this.#chunks[index].checkpoint), next: 0 };
    }
    this.#replay(at, index, wanted, until);
    this.#sought = at;
    return at.state;
  }

  /** Up to `count` columns (a step, with lane and seat of each row) ending with that of `ordinal`. */
  columns(ordinal, count) {
    const found = [];
    const last = Math.min(ordinal, this.last);
    if (last < this.first) return found;
    for (let index = this.#indexOf(last); index >= 0 && found.length < count; index -= 1) {
      const chunk = this.#chunks[index];
      if (chunk.numSteps === 0) continue;
      const { columns } = this.#open(chunk);
      const end = Math.min(columns.length, last - chunk.firstOrdinal + 1);
      found.unshift(...columns.slice(Math.max(0, end - (count - found.length)), end));
    }
    return found;
  }

  /** The column of one step, or `null` if it is not kept. */
  column(ordinal) {
    if (ordinal === null || ordinal < this.first || ordinal > this.last) return null;
    const chunk = this.#chunks[this.#indexOf(ordinal)];
    return this.#open(chunk).columns[ordinal - chunk.firstOrdinal] ?? null;
  }

  /** Ordinal of the step with that id, or of the last before it; `null` where nothing is kept. */
  ordinalOf(stepId) {
    for (let index = this.#chunks.length - 1; index >= 0; index -= 1) {
      const chunk = this.#chunks[index];
      if (chunk.numSteps === 0) continue;
      if (chunk.firstStepId > stepId) continue;
      const { columns } = this.#open(chunk);
      const place = columns.findLastIndex((column) => column.step.step_id <= stepId);
      return chunk.firstOrdinal + place;
    }
    return this.isEmpty ? null : this.first;
  }

  #isFull(chunk, record) {
    if (chunk.records.length >= RECORDS_PER_CHUNK) return true;
    return record.type === 'step' && chunk.numSteps >= this.#stepsPerChunk;
  }

  #close(chunk) {
    this.#remember(chunk, { records: chunk.records, columns: chunk.columns });
    chunk.packed = pack(chunk.records);
    chunk.size = chunk.packed.length + checkpointSize(chunk.checkpoint) + requestsSize(chunk.records);
    chunk.records = null;
    chunk.columns = null;
    while (this.#chunks.length > 2 && this.size > this.#budget) {
      this.#unpacked.delete(this.#chunks.shift());
    }
  }

  /** Records and columns of a chunk. Columns need its checkpoint, since lanes and seats do. */
  #open(chunk) {
    if (chunk.packed === null) return chunk;
    const known = this.#unpacked.get(chunk);
    if (known !== undefined) {
      this.#remember(chunk, known);
      return known;
    }
    const records = unpack(chunk.packed);
    const columns = [];
    const state = copyState(chunk.checkpoint);
    for (const record of records) {
      apply(state, record);
      if (record.type === 'step') columns.push(state.column);
    }
    this.#remember(chunk, { records, columns });
    return this.#unpacked.get(chunk);
  }

  #remember(chunk, opened) {
    this.#unpacked.delete(chunk);
    this.#unpacked.set(chunk, opened);
    if (this.#unpacked.size > UNPACKED_CHUNKS) this.#unpacked.delete(this.#unpacked.keys().next().value);
  }

  /** Index of the last chunk that begins no later than what is sought: it may have no step of its own. */
  #startOf(wanted, until) {
    let index = this.#indexOf(Math.max(wanted - 1, this.first));
    for (let next = index + 1; next < this.#chunks.length; next += 1) {
      const { firstOrdinal, beginsWithStep, beginsAt } = this.#chunks[next];
      const numSteps = firstOrdinal + (beginsWithStep ? 1 : 0);
      if (beginsAt === null || numSteps > wanted || beginsAt > until) break;
      index = next;
    }
    return index;
  }

  /** Apply records until the next one would be the step after the `wanted` first ones, or too late. */
  #replay(at, startIndex, wanted, until) {
    for (let index = startIndex; index < this.#chunks.length; index += 1) {
      const chunk = this.#chunks[index];
      if (index > startIndex) {
        if (at.state.numSteps >= wanted && chunk.beginsWithStep) return;
        at.chunk = chunk;
        at.next = 0;
      }
      const { records } = this.#open(chunk);
      for (; at.next < records.length; at.next += 1) {
        const record = records[at.next];
        if (record.type === 'step' && at.state.numSteps >= wanted) return;
        if (timeOf(record) > until) return;
        apply(at.state, record);
      }
    }
  }

  /** Index of the chunk that holds a step: the last that begins at or before it and has steps. */
  #indexOf(ordinal) {
    let low = 0;
    let high = this.#chunks.length - 1;
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (this.#chunks[middle].firstOrdinal <= ordinal) low = middle;
      else high = middle - 1;
    }
    while (low > 0 && this.#chunks[low].numSteps === 0) low -= 1;
    return low;
  }
}

function openChunk(live) {
  return {
    checkpoint: copyState(live),
    firstOrdinal: live.numSteps,
    numSteps: 0,
    firstStepId: null,
    beginsWithStep: false,
    beginsAt: null, // the latest moment told of by its first record and all before
    records: [],
    columns: [],
    packed: null,
    size: 0,
  };
}

function checkpointSize(state) {
  return state.requests.size * CHECKPOINT_SIZE_PER_REQUEST + state.pool.isCached.length;
}

/** Of the requests and tokens that came in these records. */
function requestsSize(records) {
  return records.reduce((sum, { type }) => sum + (SIZES[type] ?? 0), 0);
}
