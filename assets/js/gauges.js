// What servers tell of themselves in sums, where the steps of an engine cannot be seen. Pure.
//
//   state.gauges   server (null where there is one) → its last samples, the newest last
//
// A map of arrays that are replaced, never changed, so that copies of a state can share them.

const MOST_SAMPLES = 240; // of each server: what a line in a panel can show
const CLOSEST = 0.25; // seconds: an engine may tell after every step; of closer ones the last is kept

/** Steps are not exposed: who runs and who waits is known from sums only, if at all. */
export const hidesSteps = (header) => header?.measured.batch === 'not_exposed';

/** @returns {Map<number|null, object[]>} with one more sample, in order of the servers */
export function withGauges(gauges, record) {
  const server = record.server ?? null;
  const known = gauges.get(server) ?? [];
  const isClose = known.length > 1 && known.at(-1).time - known.at(-2).time < CLOSEST;
  const samples = [...(isClose ? known.slice(0, -1) : known), record].slice(-MOST_SAMPLES);
  const entries = [...gauges].filter(([other]) => other !== server);
  return new Map([...entries, [server, samples]].sort(([a], [b]) => (a ?? -1) - (b ?? -1)));
}

/** The last sample of each server. */
export const latestGauges = ({ gauges }) => [...gauges.values()].map((samples) => samples.at(-1));

/** Over all servers; `null` unless each of them tells. */
export function sumOf(latest, field) {
  const values = latest.map((record) => record[field]);
  if (values.length === 0 || values.includes(null)) return null;
  return values.reduce((sum, value) => sum + value, 0);
}

/** Hits / queries; `null` where they are not told or nothing was looked up. */
export function hitRate({ prefix_cache_queries: queries, prefix_cache_hits: hits }) {
  return queries > 0 && hits !== null ? hits / queries : null;
}
