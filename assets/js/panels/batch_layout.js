// Where everything in the batch picture lies. Pure: sizes in, places out.
//
//      slot  ┌──────────── columns, newest at the right ────────────┐ who is there
//      0     │ ▮▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬                         │ A
//      1     │          ▮▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬│ B
//   waiting  │                 ▨▨▨▨▨▨▨                              │
//   duration │ ▂▂▃▂▂▂▂▂▂█▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂│
//    step    └ 1,156                                          1,204 ┘

export const GUTTER_LEFT = 44;
export const GUTTER_RIGHT = 22;
const CELL = 9;
const BARS = 40;
const LOW_BARS = 26;
const AXIS = 15;
const GAP = 8;
const WAITING_ROW = 9;
const WAITING_ROWS = 4;
const LOW_WAITING_ROWS = 2;
const GROUP_LABEL = 13;
const LOW = 200; // a lower picture leaves what it has to the lanes
const TALLEST_LANE = 40;
const READABLE_LANE = 14; // high enough for a letter; where all slots would be lower, as many as are not

/** How many steps fit, and how wide each is. */
export function columnsThatFit(width, scale = 1) {
  const room = Math.max(0, width - (GUTTER_LEFT + GUTTER_RIGHT) * scale);
  const cell = Math.round(CELL * Math.min(scale, 1.4));
  return { cell, count: Math.max(1, Math.floor(room / cell)) };
}

/**
 * @param {{width: number, height: number, scale: number, columns: object[], engine: object|null,
 *   occupied: Map<string, number>}} input `occupied`: pool → lanes in use now
 */
export function layoutBatch({ width, height, scale, columns, engine, occupied }) {
  const { cell } = columnsThatFit(width, scale);
  const right = width - GUTTER_RIGHT * scale;
  const left = right - columns.length * cell;
  const bottom = height - AXIS * scale;
  const isLow = height < LOW * scale;
  const bars = { top: bottom - (isLow ? LOW_BARS : BARS) * scale, bottom };
  const waitingRows = isLow ? LOW_WAITING_ROWS : WAITING_ROWS;
  const waitingHeight = waitingRows * WAITING_ROW * scale;
  const waiting = {
    top: bars.top - GAP * scale - waitingHeight,
    rowHeight: WAITING_ROW * scale,
    rows: waitingRows,
  };
  const room = waiting.top - GAP * scale;
  const groups = groupsOf(columns, engine, occupied, Math.floor(room / (READABLE_LANE * scale)));
  placeLanes(groups, room, scale);
  return {
    cell,
    left,
    right,
    plotLeft: GUTTER_LEFT * scale,
    bars,
    waiting,
    groups,
    axisY: height - (AXIS * scale) / 2,
    xOf: (index) => left + index * cell,
    indexAt: (x) => (x < left || x >= right ? null : Math.floor((x - left) / cell)),
  };
}

/** One group of lanes for each pool that is in use or in the picture. */
function groupsOf(columns, engine, occupied, mostReadable) {
  const used = new Map([...occupied].filter(([, lanes]) => lanes > 0));
  for (const column of columns) {
    used.set(column.pool, Math.max(used.get(column.pool) ?? 0, ...column.lanes.map((lane) => lane + 1)));
  }
  const slots = engine?.batch_size ?? engine?.max_num_seqs ?? 0;
  const names = [...used.keys()].sort((a, b) =>
    a === 'streaming' ? -1 : b === 'streaming' ? 1 : a.localeCompare(b),
  );
  const pools = names.length > 0 ? names : [''];
  const readable = Math.floor(mostReadable / pools.length);
  const always = slots <= readable ? slots : Math.floor(readable / 4) * 4;
  return pools.map((pool) => ({ pool, numLanes: Math.max(always, roundUp(used.get(pool) ?? 0, readable), 1) }));
}

/** In fours, so that the picture does not rearrange for every request that comes; in twos where fours would be
 * too low to read. */
function roundUp(lanes, readable) {
  const inFours = Math.ceil(lanes / 4) * 4;
  return inFours <= readable ? inFours : Math.ceil(lanes / 2) * 2;
}

function placeLanes(groups, height, scale) {
  const labels = groups.some((group) => group.pool !== '') ? GROUP_LABEL * scale : 0;
  const total = groups.reduce((sum, group) => sum + group.numLanes, 0);
  const room = height - groups.length * labels;
  const laneHeight = Math.max(3, Math.min(TALLEST_LANE * scale, Math.floor(room / total)));
  let y = 0;
  for (const group of groups) {
    group.labelY = y + labels / 2;
    group.top = y + labels;
    group.laneHeight = laneHeight;
    y = group.top + group.numLanes * laneHeight;
    group.bottom = y;
  }
}

/**
 * Padding of each row, where it follows from the record: the batch is padded to one width, and what
 * the rows lack of it adds up to what the engine counted. `null` otherwise.
 */
export function paddingOfRows(step) {
  const shape = step.input_shape;
  if (!step.num_padding_tokens || shape?.length !== 2 || shape[0] !== step.rows.length) return null;
  const padding = step.rows.map((row) => shape[1] - row.num_scheduled_tokens);
  const sum = padding.reduce((total, tokens) => total + tokens, 0);
  return sum === step.num_padding_tokens && Math.min(...padding) >= 0 ? padding : null;
}

/** The part of a step's computed tokens that was padding; `null` if the engine does not tell. */
export function paddingShare(step) {
  if (step.num_padding_tokens === null) return null;
  const total = scheduledTokens(step) + step.num_padding_tokens;
  return total > 0 ? step.num_padding_tokens / total : 0;
}

export const scheduledTokens = (step) => step.rows.reduce((sum, row) => sum + row.num_scheduled_tokens, 0);
