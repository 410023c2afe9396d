// The way of one token in hops, from the stamps in its frame. Pure.
// The server's stamps share one clock. The browser's clock is another: only gaps can be compared.

export const PLACES = ['worker', 'result_queue', 'thread', 'event_loop', 'own_queue', 'sse', 'screen'];

/**
 * @param {object} trace stamps of this token, see backends/api/journey.py
 * @param {number} arrival seconds on the browser's clock
 * @param {{sent: number, arrival: number}} first of the first token of the same answer
 * @returns {{place: string, seconds: number|null, note: string|null}[]} `null`: not measured
 */
export function hopsOf(trace, arrival, first) {
  const { step_start, step_end, emitted, handed, queued, taken, sent } = trace;
  // an engine that stamps a token with the end of its step says nothing of the way behind it
  const isApart = emitted !== null && step_end !== null && emitted > step_end;
  const leaves = isApart ? emitted : (step_end ?? emitted);
  const later = arrival - first.arrival - (sent - first.sent);
  return [
    hop('worker', step_start, step_end),
    isApart ? hop('result_queue', step_end, emitted) : { place: 'result_queue', seconds: null, note: 'with_next' },
    hop('thread', leaves, handed, isApart ? null : 'with_previous'),
    hop('event_loop', handed, queued),
    hop('own_queue', queued, taken),
    hop('sse', taken, sent),
    { place: 'screen', seconds: later, note: sent === first.sent ? 'first' : 'relative' },
  ];
}

function hop(place, from, to, note = null) {
  const isKnown = from !== null && to !== null;
  return { place, seconds: isKnown ? Math.max(0, to - from) : null, note: isKnown ? note : 'not_measured' };
}

/** From the beginning of its step to the socket, on the server's clock. */
export function totalOf({ step_start, emitted, sent }) {
  const from = step_start ?? emitted;
  return from === null ? null : sent - from;
}
