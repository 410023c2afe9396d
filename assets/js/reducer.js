// Records → state. Pure of everything but the state it is given: no clock, no page.
// The same function draws live, scrubs history and plays a trace.
//
//   const state = initialState();
//   for (const record of records) apply(state, record);
//
// A state is changed in place. `copyState` gives an independent one at the cost of the requests in
// flight, not of everything that happened: see request.js.

import { applyKV, copyPool, emptyPool } from './pool.js';
import { applySnapshot } from './snapshot.js';
import { assignLanes } from './lanes.js';
import {
  addStep,
  addToken,
  copyRequest,
  finish,
  isInFlight,
  isWaiting,
  requestFrom,
  startSpan,
} from './request.js';
import { hidesSteps, withGauges } from './gauges.js';

/** Finished requests kept to look at; the oldest go first. */
export const MAX_FINISHED = 200;

const GONE = ['crashed', 'restarting'];

export function initialState() {
  return {
    owner: {}, // identity: which requests this state may change
    header: null,
    engine: null, // the last `state` record of this backend
    time: null, // latest moment any record tells of
    numSteps: 0, // steps seen, also before what is kept: the ordinal of the next one
    column: null, // the last step with the lane and the seat of each of its rows
    requests: new Map(), // id → request, in order of arrival: in flight, and the last finished
    numFinishedKept: 0,
    lanes: new Map(), // pool → ids by lane
    queues: null, // the last `queues` record
    gauges: new Map(), // server → its last `gauges` records: see gauges.js
    pool: emptyPool(),
    totals: {
      steps: 0,
      tokens_computed: 0,
      attention_pairs: null, // null until an engine exposes one
      padding_tokens: null,
      output_tokens: 0,
      requests_finished: 0,
      preemptions: 0,
    },
  };
}

/** An independent state. Both give up the requests they share: whoever changes one copies it first. */
export function copyState(state) {
  state.owner = {};
  return {
    ...state,
    owner: {},
    requests: new Map(state.requests),
    lanes: new Map([...state.lanes].map(([pool, ids]) => [pool, ids.slice()])),
    pool: copyPool(state.pool),
    totals: { ...state.totals },
  };
}

/** Fold one record in. Throws on a type it does not know: the page is then older than the server. */
export function apply(state, record) {
  const fold = FOLDS[record.type];
  if (fold === undefined) throw new TypeError(`Unknown record type ${JSON.stringify(record.type)}`);
  fold(state, record);
}

/** The moment a record tells of. */
export function timeOf(record) {
  if (record.type === 'step') return record.start_time + record.duration;
  return record.type === 'header' ? record.start_time : record.time;
}

const FOLDS = {
  header(state, record) {
    state.header = record;
    state.pool = emptyPool(record.engine.num_blocks, state.pool); // a new process: nothing in its cache
    state.gauges = new Map(); // and nothing told yet
    if (hidesSteps(record)) loseSightOfWaiting(state, record.start_time);
    see(state, record.start_time);
  },

  state(state, record) {
    if (state.header !== null && record.backend !== state.header.backend) return;
    state.engine = record;
    if (GONE.includes(record.state) && state.pool.numFree !== null)
      state.pool = emptyPool(state.header?.engine.num_blocks, state.pool); // it went with its process
    see(state, record.time);
  },

  arrived(state, record) {
    const request = requestFrom(record, state.owner, !hidesSteps(state.header));
    state.requests.set(request.id, request);
    see(state, record.time);
  },

  step: applyStep,

  kv(state, record) {
    applyKV(state.pool, record.kv, (id) => own(state, id));
    see(state, record.time);
  },

  token(state, record) {
    state.totals.output_tokens += 1;
    see(state, record.time);
    const request = own(state, record.request_id);
    if (request !== null) addToken(request, record.time);
  },

  queues(state, record) {
    state.queues = record;
    see(state, record.time);
    for (const [id, depth] of Object.entries(record.streams)) {
      const request = own(state, id);
      if (request !== null) request.streamDepth = depth;
    }
  },

  gauges(state, record) {
    state.gauges = withGauges(state.gauges, record);
    see(state, record.time);
  },

  finished(state, record) {
    state.totals.requests_finished += 1;
    see(state, record.time);
    const request = own(state, record.request_id);
    if (request === null || !isInFlight(request)) return;
    finish(request, record);
    state.totals.output_tokens += request.numTokens - request.numDelivered;
    state.pool.version += 1; // its blocks have no owner any more
    state.numFinishedKept += 1;
    dropOldestFinished(state);
  },

  snapshot(state, record) {
    applySnapshot(state, record);
    see(state, record.time);
  },
};

function see(state, time) {
  if (state.time === null || time > state.time) state.time = time;
}

/** The request, ready to be changed; `null` for one that was never announced. */
function own(state, id) {
  const request = state.requests.get(id);
  if (request === undefined) return null;
  if (request.owner === state.owner) return request;
  const copy = copyRequest(request, state.owner);
  state.requests.set(id, copy);
  return copy;
}

/** An engine can stop showing its steps while requests wait in it: nobody will see when they run. */
function loseSightOfWaiting(state, time) {
  for (const id of [...state.requests.keys()]) {
    if (!isWaiting(state.requests.get(id))) continue;
    const request = own(state, id);
    request.status = 'sent';
    startSpan(request, 'sent', Math.max(time, state.time));
  }
}

function dropOldestFinished(state) {
  while (state.numFinishedKept > MAX_FINISHED) {
    for (const request of state.requests.values()) {
      if (isInFlight(request)) continue;
      state.requests.delete(request.id);
      state.numFinishedKept -= 1;
      break;
    }
  }
}

function applyStep(state, step) {
  const ordinal = state.numSteps;
  state.numSteps += 1;
  for (const row of step.rows) applyRow(state, step, row, ordinal);
  for (const id of step.preempted_ids) preempt(state, id, step.start_time);
  state.column = columnOf(state, step, ordinal);
  if (step.kv !== null) applyKV(state.pool, step.kv, (id) => own(state, id));
  addTotals(state.totals, step);
  see(state, step.start_time + step.duration);
}

function applyRow(state, step, row, ordinal) {
  const request = own(state, row.request_id);
  if (request === null || !isInFlight(request)) return; // done, but still in a static batch
  if (request.firstScheduledTime === null) {
    request.firstScheduledTime = step.start_time;
    request.numCachedTokens = row.num_cached_tokens;
  }
  if (row.phase !== 'finished') {
    request.status = 'running';
    startSpan(request, row.phase, step.start_time);
  }
  request.phase = row.phase;
  request.tokensComputed += row.num_scheduled_tokens;
  request.attentionPairs += attentionPairs(row);
  addStep(request, ordinal, row);
}

/** Query × key pairs of a row: L² without a cache, where nothing was computed before. */
export function attentionPairs(row) {
  return row.num_scheduled_tokens * (row.num_computed_tokens + row.num_scheduled_tokens);
}

function preempt(state, id, time) {
  const request = own(state, id);
  if (request === null || !isInFlight(request)) return;
  request.status = 'preempted';
  request.numPreemptions += 1;
  startSpan(request, 'preempted', time);
}

function columnOf(state, step, ordinal) {
  const pool = step.pool ?? '';
  const lanes = assignLanes(state.lanes.get(pool) ?? [], step.rows, state.requests);
  state.lanes.set(pool, lanes.ids);
  const seatOf = (id) => state.requests.get(id)?.seat ?? null;
  return {
    ordinal,
    step,
    pool,
    lanes: lanes.ofRow,
    seats: step.rows.map((row) => seatOf(row.request_id)),
    waitingSeats: step.waiting_ids.map(seatOf),
  };
}

function addTotals(totals, step) {
  totals.steps += 1;
  totals.preemptions += step.preempted_ids.length;
  for (const row of step.rows) totals.tokens_computed += row.num_scheduled_tokens;
  if (step.attention_pairs !== null)
    totals.attention_pairs = (totals.attention_pairs ?? 0) + step.attention_pairs;
  if (step.num_padding_tokens !== null) {
    totals.padding_tokens = (totals.padding_tokens ?? 0) + step.num_padding_tokens;
  }
}
