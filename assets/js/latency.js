// Latencies of requests, in the words of the field. Pure; `null` where there is nothing to say yet.
//
//   arrival        first scheduled     first token                 last token
//   │◄─ queue time ─►│                   │◄gap►│◄gap►│ …             │
//   │◄─────────────── TTFT ─────────────►│                           │
//   │◄────────────────────────── E2E latency ───────────────────────►│
//
// ITL: one value per gap between what arrived; a gap of zero counts, and is marked wherever it counts.
// TPOT: (last − first token) / (n − 1), one value per request. Where several tokens come in one chunk
// the gaps are between chunks, and the number of tokens is what the server says at the end. Tokens
// that all came at once have no TPOT.

import { tokenTimes } from './request.js';

/** Linear between the two nearest ranks, as numpy's default. `sorted` ascends. */
export function percentile(sorted, share) {
  if (sorted.length === 0) return null;
  const place = share * (sorted.length - 1);
  const below = Math.floor(place);
  const above = Math.min(below + 1, sorted.length - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (place - below);
}

/** Gaps between consecutive tokens whose times are known, in order. */
export function gapsOf(request) {
  const times = tokenTimes(request);
  return times.slice(1).map((time, index) => time - times[index]);
}

export function latencyOf(request) {
  const { arrivedTime, firstScheduledTime, firstTokenTime, lastTokenTime, numTokens, numDelivered } = request;
  const decoding = since(firstTokenTime, lastTokenTime);
  const gaps = gapsOf(request);
  const sorted = [...gaps].sort((a, b) => a - b);
  const elapsed = since(arrivedTime, lastTokenTime);
  return {
    queueTime: since(arrivedTime, firstScheduledTime),
    ttft: since(arrivedTime, firstTokenTime),
    itlP50: percentile(sorted, 0.5),
    itlP95: percentile(sorted, 0.95),
    tpot: decoding > 0 && numTokens > 1 ? decoding / (numTokens - 1) : null,
    e2e: request.finishedTime === null ? null : elapsed, // once no more tokens will come
    numTokens,
    tokensPerSecond: elapsed > 0 ? numTokens / elapsed : null,
    gaps,
    numGaps: gaps.length,
    numZeroGaps: gaps.filter((gap) => gap === 0).length,
    hasChunks: numTokens !== numDelivered,
  };
}

const since = (start, end) => (start === null || end === null ? null : end - start);

/** It ran to its end: neither aborted nor failed. */
export const isComplete = (request) => ['stop', 'length'].includes(request.finishReason);

/**
 * Medians over requests; the ITL percentiles are over all gaps of all of them. TPOT, E2E and tokens
 * per second are of those that ran to their end.
 * @param {{request: object, latency: object}[]} measured
 */
export function summaryOf(measured) {
  const complete = measured.filter(({ request }) => isComplete(request));
  const gaps = measured.flatMap(({ latency }) => latency.gaps).sort((a, b) => a - b);
  return {
    numRequests: measured.length,
    numComplete: complete.length,
    queueTime: median(measured, 'queueTime'),
    ttft: median(measured, 'ttft'),
    itlP50: percentile(gaps, 0.5),
    itlP95: percentile(gaps, 0.95),
    tpot: median(complete, 'tpot'),
    e2e: median(complete, 'e2e'),
    numTokens: measured.reduce((sum, { latency }) => sum + latency.numTokens, 0),
    tokensPerSecond: median(complete, 'tokensPerSecond'),
    numGaps: gaps.length,
    numZeroGaps: gaps.filter((gap) => gap === 0).length,
    hasChunks: measured.some(({ latency }) => latency.hasChunks),
  };
}

function median(measured, field) {
  const values = measured.map(({ latency }) => latency[field]).filter((value) => value !== null);
  return percentile(
    values.sort((a, b) => a - b),
    0.5,
  );
}

/**
 * Tokens per second of the whole engine: tokens of the last `window` seconds before `now`, over that
 * time or the time since the first of these requests arrived, whichever is shorter.
 */
export function throughput(requests, now, window = 10) {
  let tokens = 0;
  let start = now;
  for (const request of requests) {
    const { lastTokenTime } = request;
    if (lastTokenTime === null || lastTokenTime <= now - window) continue;
    tokens += countAfter(request, now - window);
    const known = request.numMissingTokens > 0 ? request.series.tokenTimes[0] : request.arrivedTime;
    start = Math.min(start, known);
  }
  const seconds = Math.min(window, now - start);
  return tokens > 0 && seconds > 0 ? tokens / seconds : null;
}

/**
 * Tokens with a known time after `time`; times ascend, so from the end. All tokens of a request are
 * as many as its server says; of a part of it only what was delivered is known.
 */
function countAfter(request, time) {
  if (request.firstTokenTime > time && request.numMissingTokens === 0) return request.numTokens;
  const { tokenTimes: times } = request.series;
  let place = request.numTokenTimes;
  while (place > 0 && times[place - 1] > time) place -= 1;
  return request.numTokenTimes - place;
}
