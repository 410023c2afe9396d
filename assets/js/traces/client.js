// What the server offers: recordings, what its engines did until now, and what a record looks like.

import { messageOf } from '../control.js';

/** The server's own words for why not. */
export class Refused extends Error {}

/** There was no answer. */
export class Unreachable extends Error {}

/** @returns {Promise<{opens_with: string|null, recordings: object[]}>} */
export const askForRecordings = async () => (await get('traces')).json();

/** @returns {Promise<object>} a JSON schema */
export const askForSchema = async () => (await get('record-schema')).json();

/**
 * @returns {Promise<{name: string, title: string, model: string, problem: string|null}[]|null>} engines
 *   that have recorded something, and why that is not written to a file as it should be; `null` where
 *   there is none at all
 */
export async function askForEngines() {
  const { backends } = await (await get('health')).json();
  const entries = Object.entries(backends);
  if (entries.length === 0) return null;
  return entries
    .filter(([, { model }]) => model !== null)
    .map(([name, { title, model, record_problem: problem }]) => ({ name, title, model, problem }));
}

/** @returns {Promise<Blob>} the lines */
export const fetchRecording = async (name) => (await get(`traces/${encodeURIComponent(name)}`)).blob();

/** @returns {Promise<Blob>} what an engine's log holds now */
export const fetchTraceOf = async (backend) =>
  (await get(`telemetry/${encodeURIComponent(backend)}/trace`)).blob();

/** @returns {Promise<string>} of a file under assets/ */
export const readAsset = async (path) => (await get(`assets/${path}`)).text();

async function get(path) {
  const response = await fetch(new URL(path, document.baseURI)).catch((error) => {
    throw new Unreachable(error.message); // fetch only fails when there was no answer
  });
  if (!response.ok) throw new Refused(await messageOf(response));
  return response;
}
