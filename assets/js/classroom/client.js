// Races over HTTP: begin, follow, stop. Every refusal is an error with the server's own words.

import { ControlError, keyHeader, messageOf } from '../control.js';

const PAUSE = 250; // between two looks, so that a burst of news is one
const AGAIN = 1500; // after the server could not be reached

const hasEnded = ({ state }) => state === 'done' || state === 'stopped';

/** Engines, modes and limits, for whoever asks. */
export const options = () => call('workloads/options');

/** How phones find the server. */
export const join = () => call('join');

/** @param {{workload, entries, together, visitor}} race @returns {Promise<string>} its id */
export async function begin(race) {
  return (await call('workloads/races', 'POST', race)).race_id;
}

/** Everything known of a race. */
export const raceOf = (id) => onceReached(() => call(`workloads/races/${id}`));

export const stop = (id) => call(`workloads/races/${id}`, 'DELETE');

/** Hands over every news of a race, one after the other, until it has ended. */
export async function follow(id, onNews) {
  let news = { version: -1, state: 'queued' };
  while (!hasEnded(news)) {
    news = await onceReached(() => call(`workloads/races/${id}/events?since=${news.version}`));
    await onNews(news);
    if (!hasEnded(news)) await pause(PAUSE);
  }
}

/** Ask again and again while the server cannot be reached. */
async function onceReached(ask) {
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      if (error.status !== 0) throw error;
      await pause(AGAIN);
    }
  }
}

async function call(path, method = 'GET', body = undefined) {
  const headers = { ...keyHeader(), ...(body === undefined ? {} : { 'Content-Type': 'application/json' }) };
  const response = await fetch(new URL(path, document.baseURI), {
    method,
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
  }).catch((error) => {
    throw new ControlError(0, error.message); // fetch only fails when there was no answer
  });
  if (!response.ok) throw new ControlError(response.status, await messageOf(response));
  return response.json();
}

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
