// A recording as a Chrome trace, which Perfetto and chrome://tracing open. Pure.
//
//   process 1, the engine     a track a pool with its steps; counters: rows, waiting, queues, KV blocks
//   process 2, the requests   a track a request with its spans, and its first token
//
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU

import { Timeline } from './timeline.js';
import { apply, initialState } from '../reducer.js';
import { numUsableBlocks } from '../pool.js';
import { seatLetter } from '../seats.js';
import { spansOf } from '../request.js';

const ENGINE = 1;
const REQUESTS = 2;

/** @param {Iterable<object>} records @returns {{traceEvents: object[], displayTimeUnit: string, otherData: object}} */
export function perfettoOf(records) {
  const conversion = new Conversion();
  for (const record of records) conversion.add(record);
  return conversion.result();
}

/** The same, record by record. */
export class Conversion {
  #events = [];
  #state = initialState();
  #timeline = new Timeline();
  #pools = new Map(); // pool → its track
  #numRequests = 0;
  #header = null;

  add(record) {
    this.#timeline.add(record);
    apply(this.#state, record);
    this.#header ??= record;
    if (record.type === 'step') this.#addStep(record);
    if (record.type === 'kv') this.#countBlocks(record.time);
    if (record.type === 'queues') this.#count('queues', record.time, record.queues);
    if (record.type === 'finished') this.#addRequest(this.#state.requests.get(record.request_id));
  }

  result() {
    for (const request of this.#state.requests.values()) {
      if (request.finishedTime === null) this.#addRequest(request);
    }
    const { backend, model, device, dtype, hardware, started_at: startedAt, versions } = this.#header;
    return {
      traceEvents: [
        name('process_name', ENGINE, 0, `${backend} · ${model}`),
        name('process_name', REQUESTS, 0, 'requests'),
        ...this.#events,
      ],
      displayTimeUnit: 'ms',
      otherData: { backend, model, device, dtype, hardware, started_at: startedAt, ...versions },
    };
  }

  #addStep(step) {
    const track = this.#trackOf(step.pool);
    this.#span(ENGINE, track, `step ${step.step_id}`, step.start_time, step.start_time + step.duration, {
      rows: step.rows.map((row) => `${this.#letterOf(row.request_id)} ${row.phase} ${row.num_scheduled_tokens}`),
      tokens: step.rows.reduce((sum, row) => sum + row.num_scheduled_tokens, 0),
      padding_tokens: step.num_padding_tokens,
      attention_pairs: step.attention_pairs,
      input_shape: step.input_shape,
    });
    this.#count(`rows${step.pool === null ? '' : ` (${step.pool})`}`, step.start_time, { rows: step.rows.length });
    this.#count('waiting', step.start_time, { requests: step.waiting_ids.length });
    if (step.kv !== null) this.#countBlocks(step.start_time + step.duration);
  }

  #trackOf(pool) {
    if (!this.#pools.has(pool)) {
      this.#pools.set(pool, this.#pools.size + 1);
      this.#events.push(
        name('thread_name', ENGINE, this.#pools.get(pool), pool === null ? 'steps' : `steps (${pool})`),
      );
    }
    return this.#pools.get(pool);
  }

  #letterOf(id) {
    return seatLetter(this.#state.requests.get(id)?.seat ?? null);
  }

  #countBlocks(time) {
    const { pool, header } = this.#state;
    if (pool.numFree === null || header.engine.num_blocks === null) return;
    this.#count('KV blocks used', time, { blocks: numUsableBlocks(header.engine) - pool.numFree });
  }

  /** What of a request is kept when it ends, or when the recording does. */
  #addRequest(request) {
    if (request === undefined) return; // never announced: it arrived before the recording begins
    const track = (this.#numRequests += 1);
    this.#events.push(name('thread_name', REQUESTS, track, `${seatLetter(request.seat)} · ${request.id}`));
    for (const { kind, start, end } of spansOf(request, this.#state.time)) {
      this.#span(REQUESTS, track, kind, start, end, {});
    }
    if (request.firstTokenTime === null) return;
    this.#events.push({
      ...{ ph: 'i', s: 't', pid: REQUESTS, tid: track, name: 'first token' },
      ts: this.#micros(request.firstTokenTime),
    });
  }

  #span(pid, tid, label, start, end, args) {
    const ts = this.#micros(start);
    this.#events.push({ ph: 'X', pid, tid, name: label, ts, dur: rounded(this.#micros(end) - ts), args });
  }

  #count(label, time, args) {
    this.#events.push({ ph: 'C', pid: ENGINE, name: label, ts: this.#micros(time), args });
  }

  /** Microseconds since the recording begins; what began earlier is cut off there. */
  #micros(time) {
    return rounded(Math.max(0, time - this.#timeline.start) * 1e6);
  }
}

const rounded = (micros) => Math.round(micros * 1000) / 1000;
const name = (kind, pid, tid, text) => ({ ph: 'M', name: kind, pid, tid, args: { name: text } });
