// A recording, read line by line. Nothing in it is trusted: every line is checked, lengths and the
// total are bounded, and an error names its line. Each record goes to whoever reads; none is kept here.

import { Mismatch } from './check.js';

export const SCHEMA_VERSION = 1; // of the records: backends/records.py
const MIB = 1024 * 1024;
export const LIMITS = {
  bytes: 512 * MIB, // uncompressed
  lineBytes: 4 * MIB,
  blocks: 4 * MIB, // of a KV cache, which takes memory here
};
const GZIP = [0x1f, 0x8b];
const LINE_BREAK = 10;
const PIECE_BYTES = 16 * 1024;

/** `key` and `values` of a sentence: traces.problem.<key>. */
export class TraceError extends Error {
  constructor(line, key, values = {}) {
    super(`line ${line}: ${key} ${JSON.stringify(values)}`);
    Object.assign(this, { line, key, values });
  }
}

/** `size` of the file in MiB; `null`: it is compressed, and becomes larger than the limit. */
export class FileTooLarge extends Error {
  constructor(size, limit) {
    super(`${size ?? 'more than the limit, uncompressed'}: ${limit}`);
    Object.assign(this, { size: size === null ? null : Math.ceil(size / MIB), limit: limit / MIB });
  }
}

/**
 * The bytes of a file as they are written, whether it is compressed or not.
 * @param {Blob} blob @returns {Promise<ReadableStream<Uint8Array>>} throws `FileTooLarge`
 */
export async function unpacked(blob, limits = LIMITS) {
  if (blob.size > limits.bytes) throw new FileTooLarge(blob.size, limits.bytes);
  const head = new Uint8Array(await blob.slice(0, GZIP.length).arrayBuffer());
  if (GZIP.some((byte, index) => head[index] !== byte)) return blob.stream();
  const unpacking = () => inPieces(blob.stream()).pipeThrough(new DecompressionStream('gzip'));
  if (await isLargerThan(limits.bytes, unpacking())) throw new FileTooLarge(null, limits.bytes);
  return unpacking();
}

/** Small ones, since all that a piece becomes is in memory at once, and that can be a thousand times as much. */
function inPieces(stream) {
  const cut = (bytes, into) => {
    for (let at = 0; at < bytes.length; at += PIECE_BYTES) into.enqueue(bytes.subarray(at, at + PIECE_BYTES));
  };
  return stream.pipeThrough(new TransformStream({ transform: cut }));
}

/** Counted before anything is parsed, which takes far longer. What fails is told by whoever reads it. */
async function isLargerThan(most, stream) {
  const reader = stream.getReader();
  let size = 0;
  try {
    for (let part = await reader.read(); !part.done && size <= most; part = await reader.read()) {
      size += part.value.length;
    }
  } catch {
    return false;
  }
  reader.cancel().catch(() => {});
  return size > most;
}

/**
 * @param {ReadableStream<Uint8Array>} stream
 * @param {{check: (value: any) => object, onRecord: (record: object) => void,
 *   onProgress?: (numBytes: number) => void, limits?: object}} options
 * @returns {Promise<number>} of records; throws `TraceError`
 */
export async function readTrace(stream, { check, onRecord, onProgress = () => {}, limits = LIMITS }) {
  const lines = new Lines(limits);
  const reader = stream.getReader();
  const take = (line) => onRecord(recordOf(line, lines.number, check, limits));
  try {
    for (;;) {
      const { done, value } = await next(reader, lines.number + 1);
      if (done) break;
      for (const line of lines.add(value)) take(line);
      onProgress(lines.numBytes);
    }
    for (const line of lines.rest()) take(line);
  } finally {
    reader.cancel().catch(() => {}); // it has failed itself, and that was told
  }
  if (lines.number === 0) throw new TraceError(1, 'empty');
  return lines.number;
}

/** A stream fails where what it unpacks is cut off or damaged. */
async function next(reader, line) {
  try {
    return await reader.read();
  } catch (error) {
    throw new TraceError(line, 'damaged', { reason: error.message });
  }
}

/** Bytes in, whole lines out. */
class Lines {
  number = 0; // of the last line given
  numBytes = 0;

  #begun = []; // pieces of the line that has not ended
  #begunBytes = 0;
  #decoder = new TextDecoder('utf-8', { fatal: true });

  constructor(limits) {
    this.limits = limits;
  }

  *add(bytes) {
    this.numBytes += bytes.length;
    let start = 0;
    for (let end = bytes.indexOf(LINE_BREAK); end !== -1; end = bytes.indexOf(LINE_BREAK, start)) {
      this.#keep(bytes.subarray(start, end));
      yield this.#end();
      start = end + 1;
    }
    this.#keep(bytes.subarray(start));
    if (this.numBytes > this.limits.bytes) {
      throw new TraceError(this.number + 1, 'large', { limit: this.limits.bytes / MIB });
    }
  }

  /** What stands after the last line break. */
  *rest() {
    if (this.#begunBytes > 0) yield this.#end();
  }

  #keep(piece) {
    this.#begunBytes += piece.length;
    if (this.#begunBytes > this.limits.lineBytes) {
      throw new TraceError(this.number + 1, 'long', { limit: this.limits.lineBytes / MIB });
    }
    if (piece.length > 0) this.#begun.push(piece);
  }

  #end() {
    this.number += 1;
    const whole = new Uint8Array(this.#begunBytes);
    let place = 0;
    for (const piece of this.#begun) {
      whole.set(piece, place);
      place += piece.length;
    }
    this.#begun = [];
    this.#begunBytes = 0;
    try {
      return this.#decoder.decode(whole);
    } catch {
      throw new TraceError(this.number, 'utf8'); // the decoder fails for nothing else
    }
  }
}

function recordOf(line, number, check, limits) {
  try {
    const record = check(JSON.parse(line));
    checkPlace(record, number);
    checkBlocks(record, limits.blocks);
    return record;
  } catch (error) {
    if (error instanceof Mismatch) throw new TraceError(number, error.key, error.values);
    if (error instanceof SyntaxError) throw new TraceError(number, 'json', { reason: error.message });
    throw error;
  }
}

function checkPlace(record, number) {
  if (number === 1) {
    if (record.type !== 'header') throw new Mismatch('first', {});
    const { schema_version: version } = record;
    if (version !== SCHEMA_VERSION) throw new Mismatch('version', { version, known: SCHEMA_VERSION });
  } else if (record.type === 'snapshot' && number !== 2) throw new Mismatch('snapshot', {});
}

/** A pool is kept as one byte a block, so nobody may name a block at the end of the world. */
function checkBlocks(record, most) {
  for (const block of blocksIn(record)) {
    if (block > most) throw new Mismatch('block', { block, limit: most });
  }
}

function* blocksIn(record) {
  if (record.type === 'header') yield record.engine.num_blocks ?? 0;
  if (record.type === 'snapshot') yield* record.cached_blocks;
  if (record.kv) yield* [...record.kv.cached, ...record.kv.evicted];
}
