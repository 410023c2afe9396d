// An engine with blocks: the whole pool, who holds what, and how full it is.

import { h, setText } from '../dom.js';
import { letter } from '../pen.js';
import { count } from '../format.js';
import { isInFlight } from '../request.js';
import { legend } from './panel.js';
import { seatLetter } from '../seats.js';
import { Gauge } from './gauge.js';

const SMALLEST_BLOCK = 7; // below that, several blocks share a cell
const LETTER_FROM = 13;
const FADED = 0.2;

/**
 * What each block holds. Pure.
 * @returns {{owners: (object|null)[], filled: number[], numSlotsFilled: number}} owner and filled
 *   slots by block id; a shared block counts once, with the first request that has it
 */
export function blockMap(state) {
  const { num_blocks: numBlocks, block_size: blockSize } = state.header.engine;
  const owners = new Array(numBlocks ?? 0).fill(null);
  const filled = new Array(numBlocks ?? 0).fill(0);
  for (const request of state.requests.values()) {
    if (!isInFlight(request)) continue;
    request.blocks.forEach((block, place) => {
      const slots = Math.max(0, Math.min(blockSize, (request.filledSlots ?? 0) - place * blockSize));
      filled[block] = Math.max(filled[block] ?? 0, slots);
      owners[block] ??= request;
    });
  }
  return { owners, filled, numSlotsFilled: filled.reduce((sum, slots) => sum + slots, 0) };
}

/** Columns, rows and size of the cells that fill a space; `perCell` blocks in each. Pure. */
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

export class BlocksView {
  #map = null;
  #grid = null;

  constructor(tools, store) {
    const { words } = tools;
    this.tools = tools;
    this.store = store;
    this.blocks = new Gauge(words('panel.kv.blocks.used'), words('panel.kv.blocks.used.meaning'), tools);
    this.slots = new Gauge(words('panel.kv.blocks.slots'), words('panel.kv.blocks.slots.meaning'), tools);
    this.table = h('div', { class: 'scope-block-table' });
    this.details = [h('div', { class: 'scope-gauges' }, this.blocks.element, this.slots.element), this.table];
    this.footer = [
      h(
        'div',
        { class: 'scope-legends' },
        ...['filled', 'shared', 'cached', 'cached_free', 'free'].map((kind) =>
          legend(kind, words(`panel.kv.blocks.${kind}`)),
        ),
      ),
    ];
  }

  hasContent(view) {
    return view.state.header.engine.num_blocks !== null && view.state.pool.numFree !== null;
  }

  headline({ state }) {
    const { num_blocks: total } = state.header.engine;
    return this.tools.words('panel.kv.blocks.headline', {
      used: count(total - state.pool.numFree),
      total: count(total),
    });
  }

  updateDetails({ state, chosen }) {
    this.#map = blockMap(state);
    const { num_blocks: numBlocks, block_size: blockSize } = state.header.engine;
    this.blocks.set(numBlocks - state.pool.numFree, numBlocks);
    this.slots.set(this.#map.numSlotsFilled, numBlocks * blockSize);
    setText(this.table, this.#tableOf(chosen));
  }

  draw(context, scene) {
    const { state, palette, width, height } = scene;
    const numBlocks = state.header.engine.num_blocks;
    this.#grid = gridOf(numBlocks, width, height, SMALLEST_BLOCK * palette.scale);
    const drawOne = this.#grid.perCell > 1 ? drawSeveral : drawBlock;
    for (let cell = 0; cell < this.#grid.numCells; cell += 1)
      drawOne(context, scene, this.#map, this.#grid, cell);
    context.globalAlpha = 1;
  }

  find(x, y) {
    const grid = this.#grid;
    if (grid === null) return null;
    const column = Math.floor(x / grid.cellWidth);
    const block = (Math.floor(y / grid.cellHeight) * grid.columns + column) * grid.perCell;
    if (column >= grid.columns || block >= this.#map.owners.length) return null;
    const owner = this.#map.owners[block];
    return { id: owner?.id ?? null, ordinal: null, content: this.#contentOf(block, owner) };
  }

  inWords({ state, chosen }) {
    const { num_blocks: total, block_size: size } = state.header.engine;
    const text = this.tools.words('panel.kv.blocks.summary', {
      used: count(total - state.pool.numFree),
      total: count(total),
      filled: count(this.#map.numSlotsFilled),
      slots: count(total * size),
    });
    return `${text} ${this.#tableOf(chosen)}`;
  }

  #tableOf(request) {
    const { words } = this.tools;
    if (request === null || request.blocks.length === 0) return words('panel.kv.blocks.no_table');
    const pairs = request.blocks.map((block, place) => `${place}→${block}`).join('  ');
    return words('panel.kv.blocks.table', { seat: seatLetter(request.seat), blocks: pairs });
  }

  #contentOf(block, owner) {
    const { words } = this.tools;
    const { state } = this.store;
    const isCached = state.pool.isCached[block] === 1;
    const references = state.pool.refCounts.get(block) ?? (owner === null ? 0 : 1);
    const lines = [
      [
        words('panel.kv.blocks.filled'),
        `${count(this.#map.filled[block])} / ${count(state.header.engine.block_size)}`,
      ],
      [words('panel.kv.blocks.references'), count(references)],
      [words('panel.kv.blocks.findable'), words(isCached ? 'panel.yes' : 'panel.no')],
    ];
    if (owner !== null) lines.unshift([words('panel.kv.blocks.logical'), count(owner.blocks.indexOf(block))]);
    const title = words('panel.kv.blocks.block', { block: count(block) });
    return owner === null ? { title, lines } : { seat: owner.seat, title, lines };
  }
}

function boxOf(grid, cell) {
  const x = Math.round((cell % grid.columns) * grid.cellWidth);
  const y = Math.round(Math.floor(cell / grid.columns) * grid.cellHeight);
  const gap = grid.size > 16 ? 3 : grid.size > 9 ? 2 : 1;
  const right = Math.round(((cell % grid.columns) + 1) * grid.cellWidth);
  const bottom = Math.round((Math.floor(cell / grid.columns) + 1) * grid.cellHeight);
  return { x, y, width: right - x - gap, height: bottom - y - gap };
}

function drawBlock(context, { state, palette, lit }, map, grid, block) {
  const box = boxOf(grid, block);
  const owner = map.owners[block];
  context.globalAlpha = 1;
  context.fillStyle = palette.free;
  context.fillRect(box.x, box.y, box.width, box.height);
  if (owner !== null)
    drawOwned(context, palette, {
      box,
      owner,
      share: map.filled[block] / state.header.engine.block_size,
      lit,
    });
  const isCached = state.pool.isCached[block] === 1;
  if (isCached) drawCached(context, box, palette, owner);
  const references = state.pool.refCounts.get(block) ?? 0;
  if (references > 1) drawShared(context, box, palette, references);
}

function drawOwned(context, palette, { box, owner, share, lit }) {
  const { fill, ink } = palette.seat(owner.seat);
  const height = Math.round(box.height * share);
  context.globalAlpha = lit === null || lit === owner.id ? 1 : FADED;
  context.fillStyle = fill;
  context.fillRect(box.x, box.y + box.height - height, box.width, height);
  context.strokeStyle = fill;
  context.lineWidth = 1;
  context.strokeRect(box.x + 0.5, box.y + 0.5, box.width - 1, box.height - 1);
  if (Math.min(box.width, box.height) >= LETTER_FROM) {
    const size = Math.min(13, box.height * 0.55, box.width * 0.6);
    letter(
      context,
      palette,
      owner.seat,
      box.x + box.width / 2,
      box.y + box.height / 2,
      size,
      share > 0.6 ? ink : palette.ink,
    );
  }
}

/** Findable: a dashed outline for a block nobody holds, a notch in the corner of one in use. */
function drawCached(context, box, palette, owner) {
  if (owner === null) {
    context.strokeStyle = palette.mute;
    context.lineWidth = 1;
    context.setLineDash([3, 2]);
    context.strokeRect(box.x + 0.5, box.y + 0.5, box.width - 1, box.height - 1);
    context.setLineDash([]);
    return;
  }
  const size = Math.min(7, box.width * 0.35);
  const [right, bottom] = [box.x + box.width, box.y + box.height];
  context.fillStyle = palette.card;
  context.beginPath();
  context.moveTo(right, bottom - size);
  context.lineTo(right, bottom);
  context.lineTo(right - size, bottom);
  context.fill();
}

function drawShared(context, box, palette, references) {
  context.globalAlpha = 1;
  context.strokeStyle = palette.ink;
  context.lineWidth = 2;
  context.strokeRect(box.x + 1, box.y + 1, box.width - 2, box.height - 2);
  if (Math.min(box.width, box.height) < LETTER_FROM + 4) return;
  context.fillStyle = palette.ink;
  context.fillRect(box.x + box.width - 12, box.y, 12, 11);
  context.font = palette.letter(9);
  context.fillStyle = palette.card;
  context.textAlign = 'center';
  context.textBaseline = 'middle';
  context.fillText(`${references}`, box.x + box.width - 6, box.y + 6);
}

/** A cell of several blocks: filled from below by the shares of its owners. */
function drawSeveral(context, { state, palette, lit }, map, grid, cell) {
  const box = boxOf(grid, cell);
  const first = cell * grid.perCell;
  const blocks = Math.min(grid.perCell, map.owners.length - first);
  context.globalAlpha = 1;
  context.fillStyle = palette.free;
  context.fillRect(box.x, box.y, box.width, box.height);
  let bottom = box.y + box.height;
  for (let block = first; block < first + blocks; block += 1) {
    const owner = map.owners[block];
    if (owner === null && state.pool.isCached[block] !== 1) continue;
    const height = box.height / blocks;
    context.globalAlpha = owner === null || lit === null || lit === owner.id ? 1 : FADED;
    context.fillStyle = owner === null ? palette.cached : palette.seat(owner.seat).fill;
    context.fillRect(box.x, bottom - height, box.width, height);
    bottom -= height;
  }
}
