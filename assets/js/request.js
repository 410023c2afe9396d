// One request as the records tell it: a timeline that only ever grows.
//
// The long parts (token times, steps, spans) lie in `series`: append-only arrays that every copy of
// the request shares. A copy is a set of counts into them, so a checkpoint costs the same for a
// request of ten tokens and of ten thousand, and replaying from a checkpoint writes what is already
// there.
//
//   series.tokenTimes   ●──●──●──●──●──●──►      live:        numTokenTimes = 6
//                                ▲               checkpoint:  numTokenTimes = 4

/**
 * `sent`: no token yet, at an engine whose steps are not seen, so that nobody knows whether it waits.
 * @typedef {'queued'|'sent'|'prefill'|'decode'|'preempted'} SpanKind
 */

/**
 * @param {object} arrived a record of type `arrived`
 * @param {object} owner the state it belongs to
 * @param {boolean} isSeen whether the engine shows its steps
 */
export function requestFrom(arrived, owner, isSeen = true) {
  const request = emptyRequest(arrived, owner);
  request.status = isSeen ? 'waiting' : 'sent';
  startSpan(request, isSeen ? 'queued' : 'sent', arrived.time);
  return request;
}

function emptyRequest(arrived, owner) {
  return {
    owner,
    id: arrived.request_id,
    seat: arrived.seat,
    numPromptTokens: arrived.num_prompt_tokens,
    maxTokens: arrived.max_tokens,
    source: arrived.source,
    stream: arrived.stream,
    arrivedTime: arrived.time,
    status: null, // waiting, sent, running, preempted, finished
    phase: null,
    firstScheduledTime: null,
    firstTokenTime: null,
    lastTokenTime: null,
    numTokens: 0, // as its server counted at the end, else as many as were delivered
    numDelivered: 0, // `token` records: chunks, where several tokens can come in one
    numMissingTokens: 0, // emitted before this page could see their times
    tokensComputed: 0, // ΣL
    attentionPairs: 0, // ΣL² without a cache
    numCachedTokens: null,
    numPreemptions: 0,
    streamDepth: null, // of its own stream queue, when last sampled
    blocks: [], // block table, logical order
    filledSlots: null,
    reservedSlots: null,
    finishedTime: null,
    finishReason: null,
    message: null,
    numTokenTimes: 0,
    numSteps: 0,
    numSpans: 0,
    series: {
      tokenTimes: [],
      ordinals: [], // of the steps it had a row in
      scheduled: [],
      computed: [],
      spanKinds: [],
      spanStarts: [],
    },
  };
}

/** A copy that another state may change. */
export function copyRequest(request, owner) {
  return { ...request, owner, blocks: request.blocks.slice() };
}

export function addToken(request, time) {
  if (request.firstTokenTime === null) {
    request.firstTokenTime = time;
    if (request.status === 'sent') request.status = 'running';
    if (['prefill', 'sent'].includes(spanNow(request))) startSpan(request, 'decode', time);
  }
  request.lastTokenTime = time;
  request.numTokens += 1;
  request.numDelivered += 1;
  addTokenTime(request, time);
}

/** A time that is known, of a token that may have been counted already. */
export function addTokenTime(request, time) {
  request.series.tokenTimes[request.numTokenTimes] = time;
  request.numTokenTimes += 1;
}

/** Its end, with its server's own counts where it gives them: they are right, whatever was counted. */
export function finish(request, record) {
  request.status = 'finished';
  request.finishedTime = record.time;
  request.finishReason = record.reason;
  request.message = record.message;
  request.numPromptTokens = record.num_prompt_tokens ?? request.numPromptTokens;
  request.numTokens = record.num_output_tokens ?? request.numTokens;
}

export function addStep(request, ordinal, row) {
  const { series, numSteps } = request;
  series.ordinals[numSteps] = ordinal;
  series.scheduled[numSteps] = row.num_scheduled_tokens;
  series.computed[numSteps] = row.num_computed_tokens;
  request.numSteps += 1;
}

const spanNow = (request) => request.series.spanKinds[request.numSpans - 1];

/** From `time` on the request is in a span of that kind; nothing happens if it is already. */
export function startSpan(request, kind, time) {
  const { series, numSpans } = request;
  if (spanNow(request) === kind) return;
  series.spanKinds[numSpans] = kind;
  series.spanStarts[numSpans] = time;
  request.numSpans += 1;
}

/** Spans in order, each ending where the next begins; the last at its end or at `now`. */
export function* spansOf(request, now) {
  const { series, numSpans } = request;
  for (let i = 0; i < numSpans; i += 1) {
    const end = i + 1 < numSpans ? series.spanStarts[i + 1] : (request.finishedTime ?? now);
    yield { kind: series.spanKinds[i], start: series.spanStarts[i], end };
  }
}

/** Times of the tokens whose times are known, as an array that is never changed afterwards. */
export function tokenTimes(request) {
  return request.series.tokenTimes.slice(0, request.numTokenTimes);
}

export const isInFlight = (request) => request.status !== 'finished';
export const isWaiting = (request) => request.status === 'waiting' || request.status === 'preempted';
