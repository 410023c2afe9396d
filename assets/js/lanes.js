// Lanes: the rows of the batch picture. A request stays in its lane while it is in the batch; the
// lane it leaves goes to the next that comes, so the picture shows who took whose place.
//
//   lane 0   A A A A D D D      A leaves, D enters in the next step
//   lane 1   B B B B B B B

/**
 * @param {(string|null)[]} before ids by lane, of the same pool's step before
 * @param {{request_id: string}[]} rows rows of the step, in the order of the batch
 * @param {Map<string, {status: string}>} requests
 * @returns {{ids: (string|null)[], ofRow: number[]}} ids by lane now, and the lane of each row
 */
export function assignLanes(before, rows, requests) {
  const inStep = new Set(rows.map((row) => row.request_id));
  const stays = (id) => inStep.has(id) || requests.get(id)?.status === 'running';
  const ids = before.map((id) => (id !== null && stays(id) ? id : null));
  const laneOf = new Map();
  ids.forEach((id, lane) => {
    if (id !== null) laneOf.set(id, lane);
  });
  const ofRow = rows.map((row) => {
    const lane = laneOf.get(row.request_id) ?? firstFree(ids);
    ids[lane] = row.request_id;
    return lane;
  });
  while (ids.length > 0 && ids.at(-1) === null) ids.pop();
  return { ids, ofRow };
}

function firstFree(ids) {
  const lane = ids.indexOf(null);
  return lane === -1 ? ids.length : lane;
}
