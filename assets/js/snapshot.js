// A snapshot: the server's word for everything before the records that follow it.

import { addTokenTime, isInFlight, requestFrom, startSpan } from './request.js';
import { hidesSteps, withGauges } from './gauges.js';
import { poolFromSnapshot } from './pool.js';

/** Go on from the server's word: what was in flight and is not in it has ended unseen. */
export function applySnapshot(state, snapshot) {
  for (const request of state.requests.values()) {
    if (isInFlight(request)) state.requests.delete(request.id);
  }
  for (const known of snapshot.requests) {
    const request = requestFromSnapshot(known, snapshot.time, state);
    state.requests.set(request.id, request);
  }
  state.lanes = new Map();
  state.column = null;
  state.queues = null;
  state.gauges = snapshot.gauges.reduce(withGauges, new Map());
  state.pool = poolFromSnapshot(snapshot, state.header?.engine.num_blocks, state.pool);
  Object.assign(state.totals, snapshot.totals);
}

function requestFromSnapshot(known, time, { owner, header }) {
  const request = requestFrom(known.arrived, owner, !hidesSteps(header));
  request.firstScheduledTime = known.first_scheduled_time;
  request.firstTokenTime = known.first_token_time;
  request.lastTokenTime = known.last_token_time;
  request.numTokens = known.num_output_tokens;
  request.numDelivered = known.num_output_tokens;
  request.tokensComputed = known.sum_tokens_computed;
  request.attentionPairs = known.sum_attention_pairs;
  request.numPreemptions = known.num_preemptions;
  request.blocks = known.blocks.slice();
  request.filledSlots = known.filled_slots;
  request.reservedSlots = known.reserved_slots;
  if (known.last_token_time !== null) addTokenTime(request, known.last_token_time);
  request.numMissingTokens = request.numTokens - request.numTokenTimes;
  if (known.first_scheduled_time !== null) startSpan(request, 'prefill', known.first_scheduled_time);
  if (known.first_token_time !== null) startSpan(request, 'decode', known.first_token_time);
  const isAnswered = request.status === 'sent' && known.first_token_time !== null;
  if (known.running || isAnswered) request.status = 'running';
  else if (known.num_preemptions > 0) {
    request.status = 'preempted';
    startSpan(request, 'preempted', time); // since then at the latest
  }
  return request;
}
