// Races over HTTP: begin, follow, stop. Every refusal is an error with the server's own words.

import { ControlError, keyHeader, messageOf } from '../control.js';

const PAUSE = 250; // between two looks, so that a burst of news is one
const AGAIN = 1500; // after the server could not be reached

export const hasEnded = ({ state }) => state === 'done' || state === 'stopped';

/** Engines, modes and limits, for whoever asks. */
export const options = () => call('workloads/options');

/** @returns {Promise<string>} the race's id */
export async function begin(workload, entries, visitor) {
  return (await call('workloads/races', 'POST', { workload, entries, visitor })).race_id;
}

export const raceOf = (id) => call(`workloads/races/${id}`);

export const stop = (id) => call(`workloads/races/${id}`, 'DELETE');

/** Calls back with every news of a race until it has ended. @param {AbortSignal} signal */
export async function follow(id, onNews, signal) {
  let since = -1;
  while (!signal.aborted) {
    const news = await lookOnceMore(`workloads/races/${id}/events?since=${since}`, signal);
    if (news === null || signal.aborted) return;
    since = news.version;
    onNews(news);
    if (hasEnded(news)) return;
    await pause(PAUSE);
  }
}

/** Again and again while the server cannot be reached; `null` once nobody wants to know. */
async function lookOnceMore(path, signal) {
  while (!signal.aborted) {
    try {
      return await call(path, 'GET', undefined, signal);
    } catch (error) {
      if (error.status !== 0) throw error;
      await pause(AGAIN);
    }
  }
  return null;
}

async function call(path, method = 'GET', body = undefined, signal = undefined) {
  const headers = { ...keyHeader(), ...(body === undefined ? {} : { 'Content-Type': 'application/json' }) };
  const response = await fetch(new URL(path, document.baseURI), {
    method,
    headers,
    signal,
    body: body === undefined ? undefined : JSON.stringify(body),
  }).catch((error) => {
    throw new ControlError(0, error.message); // fetch only fails when there was no answer
  });
  if (!response.ok) throw new ControlError(response.status, await messageOf(response));
  return response.json();
}

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
