// Where the blocks of a pool are drawn. Pure: sizes in, places out.
//
// A pool that fits is drawn block by block. A larger one twice: the whole pool, several blocks to a
// cell, and below it those in use, each by itself, in the order of the block tables.
//
//   whole pool: 1 cell = 6 blocks
//   ▁▃▅▇▇▂░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░
//   ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░
//   in use: 1 cell = 1 block
//   █A█ █A█ ▄A▄ █B█ █B█ ▂B▂

const SMALLEST_BLOCK = 7; // below that, several blocks share a cell
const SMALLEST_CELL = 9; // of several blocks: their parts must be told apart
const CLOSE_UP_SIZES = [26, 20, 16, 13, 10, 8]; // the largest at which all fit, so that it seldom changes
const CLOSE_UP_SHARE = 0.45;
const LABEL = 16;

/**
 * @param {{numBlocks: number, numHeld: number, width: number, height: number, scale: number}} input
 * @returns {{whole: object, closeUp: object|null}} grids with the y where each begins, and of its label
 */
export function layoutPool({ numBlocks, numHeld, width, height, scale }) {
  const single = gridOf(numBlocks, width, height, SMALLEST_BLOCK * scale);
  if (single.perCell === 1) return { whole: { ...single, top: 0, labelY: null }, closeUp: null };
  const label = LABEL * scale;
  const closeUp = closeUpOf(numHeld, width, height * CLOSE_UP_SHARE - label, scale);
  const room = closeUp === null ? height : height * (1 - CLOSE_UP_SHARE) - label / 2;
  const whole = gridOf(numBlocks, width, room - label, SMALLEST_CELL * scale);
  const top = height * (1 - CLOSE_UP_SHARE) + label;
  return {
    whole: { ...whole, top: label, labelY: label / 2 },
    closeUp: closeUp === null ? null : { ...closeUp, top, labelY: top - label / 2 },
  };
}

/** `null` when so many are in use that they would not fit: then the whole pool says enough. */
function closeUpOf(numHeld, width, height, scale) {
  for (const wanted of CLOSE_UP_SIZES) {
    const size = wanted * scale;
    const columns = Math.max(1, Math.floor(width / size));
    if (Math.ceil(numHeld / columns) * size > height) continue;
    const cell = width / columns;
    return { columns, perCell: 1, numCells: numHeld, size, cellWidth: cell, cellHeight: size };
  }
  return null;
}

/** Columns, rows and size of the cells that fill a space; `perCell` blocks in each. */
export function gridOf(numBlocks, width, height, smallest = SMALLEST_BLOCK) {
  const most = Math.max(1, Math.floor(width / smallest) * Math.floor(height / smallest));
  const perCell = Math.ceil(numBlocks / most);
  const numCells = Math.ceil(numBlocks / perCell);
  let best = { columns: numCells, rows: 1, size: 0 };
  for (let columns = 1; columns <= numCells; columns += 1) {
    const rows = Math.ceil(numCells / columns);
    const size = Math.min(width / columns, height / rows);
    if (size > best.size) best = { columns, rows, size };
    if (width / columns < smallest) break;
  }
  return {
    ...best,
    perCell,
    numCells,
    cellWidth: width / best.columns,
    cellHeight: Math.min(height / best.rows, best.size * 1.3),
  };
}

/** The place of a cell on whole pixels, with a gap to the next. */
export function boxOf(grid, cell) {
  const column = cell % grid.columns;
  const row = Math.floor(cell / grid.columns);
  const x = Math.round(column * grid.cellWidth);
  const y = Math.round(grid.top + row * grid.cellHeight);
  const gap = grid.size > 16 ? 3 : grid.size > 9 ? 2 : 1;
  const right = Math.round((column + 1) * grid.cellWidth);
  const bottom = Math.round(grid.top + (row + 1) * grid.cellHeight);
  return { x, y, width: right - x - gap, height: bottom - y - gap };
}

/** The cell under a point, or `null`. */
export function cellAt(grid, x, y) {
  const column = Math.floor(x / grid.cellWidth);
  const row = Math.floor((y - grid.top) / grid.cellHeight);
  const cell = row * grid.columns + column;
  return column < 0 || column >= grid.columns || row < 0 || cell >= grid.numCells ? null : cell;
}
