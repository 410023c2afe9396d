/** A state as plain data: what a reader of it can see, without what copies share or own. */
export function readable(state) {
  const requests = [...state.requests.values()].map(({ owner, series, ...request }) => ({
    ...request,
    tokenTimes: series.tokenTimes.slice(0, request.numTokenTimes),
    ordinals: series.ordinals.slice(0, request.numSteps),
    scheduled: series.scheduled.slice(0, request.numSteps),
    computed: series.computed.slice(0, request.numSteps),
    spanKinds: series.spanKinds.slice(0, request.numSpans),
    spanStarts: series.spanStarts.slice(0, request.numSpans),
  }));
  const { owner, ...rest } = state;
  const pool = { ...state.pool, isCached: [...state.pool.isCached], refCounts: [...state.pool.refCounts] };
  return { ...rest, requests, pool, lanes: [...state.lanes] };
}
