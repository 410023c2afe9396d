// Lanes of a race on one time axis: the results as requests that the timeline can draw. Pure.

import { addTokenTime, finish, requestFrom, startSpan } from '../request.js';
import { niceCeiling } from '../format.js';

const MARGIN = 1.02; // of the axis beyond the last end

/** The request of a lane, its letter that of its student on every engine; `null` if it was refused. */
export function requestOfLane(lane, isSeen) {
  if (lane.arrived === null) return null;
  const arrived = {
    request_id: String(lane.student),
    seat: lane.student,
    num_prompt_tokens: null,
    max_tokens: lane.max_tokens,
    source: 'workload',
    stream: true,
    time: lane.arrived,
  };
  const request = requestFrom(arrived, null, isSeen);
  for (const { time, kind } of changesOf(lane)) startSpan(request, kind, time);
  for (const time of lane.token_times) addTokenTime(request, time);
  request.firstScheduledTime = lane.first_scheduled;
  request.firstTokenTime = lane.token_times[0] ?? null;
  request.lastTokenTime = lane.token_times.at(-1) ?? null;
  request.numTokens = lane.num_tokens;
  request.numPreemptions = lane.preempted.length;
  if (lane.ended !== null) finish(request, { time: lane.ended, reason: lane.reason, message: lane.error });
  return request;
}

/** What a request did from when on. After a preemption its tokens are computed again, then it goes on. */
function changesOf(lane) {
  const changes = [];
  const add = (time, kind) => time !== null && time !== undefined && changes.push({ time, kind });
  add(lane.first_scheduled, 'prefill');
  add(lane.token_times[0], 'decode');
  for (const [lost, resumed] of lane.preempted) {
    add(lost, 'preempted');
    add(resumed, 'prefill');
    if (resumed !== null)
      add(
        lane.token_times.find((time) => time > resumed),
        'decode',
      );
  }
  return changes.sort((a, b) => a.time - b.time);
}

/** The last moment that a result tells of. */
export function endOf(result) {
  const times = result.lanes.flatMap(({ arrived, token_times: tokens, ended }) => [
    arrived ?? 0,
    tokens.at(-1) ?? 0,
    ended ?? 0,
  ]);
  return Math.max(0, ...times);
}

/** @returns {{end: number, ticks: number[]}} from 0, the same for all engines */
export function axisOf(results, most = 8) {
  const end = Math.max(0.1, ...results.map(endOf)) * MARGIN;
  const step = niceCeiling(end / most);
  const ticks = [];
  for (let time = 0; time <= end; time += step) ticks.push(Math.round(time * 1e6) / 1e6);
  return { end, ticks };
}

/** Height of a lane, so that a letter can be read in it and a room of sixty fits on a page or two. */
export const laneHeight = (numLanes, scale) => (numLanes > 20 ? 12 : 15) * scale;
