// Which requests the timeline shows, and the time axis they share. Pure.

import { isInFlight } from '../request.js';
import { niceCeiling } from '../format.js';

const ROW = 22;
const SMALLEST_ROW = 13;
const SHORTEST_SPAN = 5;
const LONGEST_SPAN = 120; // seconds; what is older has left the picture, not the history

/**
 * Rows in order of arrival: everything in flight, then the last finished, as many as fit; the lit
 * request always. The axis ends now and reaches back to the first arrival, in steps of 1, 2, 5.
 * @returns {{rows: object[], numHidden: number, rowHeight: number, start: number, end: number}}
 */
export function layoutTimeline({ requests, now, height, scale, lit }) {
  const recent = requests.filter(
    (request) => isInFlight(request) || request.finishedTime > now - LONGEST_SPAN,
  );
  const most = Math.max(1, Math.floor(height / (SMALLEST_ROW * scale)));
  const rows = choose(recent, most, lit);
  const start = rows.reduce((first, request) => Math.min(first, request.arrivedTime), now);
  const span = Math.min(Math.max(niceCeiling(now - start), SHORTEST_SPAN), LONGEST_SPAN);
  return {
    rows,
    numHidden: requests.length - rows.length,
    rowHeight: Math.min(ROW * scale, height / Math.max(1, rows.length)),
    start: now - span,
    end: now,
  };
}

function choose(requests, most, lit) {
  if (requests.length <= most) return requests;
  const byRank = [...requests].sort((a, b) => rank(b, lit) - rank(a, lit) || b.arrivedTime - a.arrivedTime);
  const kept = new Set(byRank.slice(0, most));
  return requests.filter((request) => kept.has(request));
}

function rank(request, lit) {
  if (request.id === lit) return 3;
  if (request.status === 'running') return 2;
  return isInFlight(request) ? 1 : 0;
}

/** Round times of the axis, as seconds before `end`. */
export function ticksOf(start, end, most = 6) {
  const span = end - start;
  const step = niceCeiling(span / most);
  const ticks = [];
  for (let ago = 0; ago <= span + 1e-9; ago += step) ticks.push(Math.round(ago * 1e6) / 1e6);
  return ticks;
}
