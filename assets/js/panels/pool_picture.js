// Drawing the pool: a block by itself, or a cell that stands for several.

import { boxOf } from './pool_layout.js';
import { count } from '../format.js';
import { hatch, label, letter } from '../pen.js';
import { heightsOf } from './pool_map.js';

const LETTER_FROM = 13;
const SMALLEST_LETTER = 8; // for the first block of a request, when blocks are small
const BADGE = 12; // width of a reference count
const FADED = 0.2;

/** @param {{layout: object, map: object, cells: object[]|null, words: Function}} scene and the view's */
export function drawPool(context, scene) {
  const { layout, cells, map, words } = scene;
  scene = { ...scene, litHolder: scene.state.requests.get(scene.lit) ?? null };
  const { whole, closeUp } = layout;
  const { null_block: nullBlock = null } = scene.state.header.engine;
  if (cells === null) {
    for (let block = 0; block < whole.numCells; block += 1) {
      if (block === nullBlock) drawNull(context, boxOf(whole, block), scene.palette);
      else drawBlock(context, scene, boxOf(whole, block), block);
    }
    context.globalAlpha = 1;
    return;
  }
  drawLabel(context, scene, whole, words('panel.kv.blocks.whole', { number: count(whole.perCell) }));
  cells.forEach((cell, index) => drawCell(context, scene, boxOf(whole, index), cell));
  context.globalAlpha = 1;
  if (closeUp === null) return;
  drawLabel(context, scene, closeUp, words('panel.kv.blocks.close_up', { number: count(map.held.length) }));
  map.held.forEach((block, index) => {
    const isFirst = map.owners.get(block) !== map.owners.get(map.held[index - 1]);
    drawBlock(context, scene, boxOf(closeUp, index), block, isFirst ? SMALLEST_LETTER : LETTER_FROM);
  });
  context.globalAlpha = 1;
}

function drawLabel(context, { palette }, { labelY }, text) {
  label(context, text, 0, labelY, { font: palette.text, colour: palette.mute });
}

/** A shared block is drawn as the lit request's, where that is one of those who hold it. */
function drawBlock(context, scene, box, block, letterFrom = LETTER_FROM) {
  const { state, palette, lit, map, litHolder } = scene;
  const owner = litHolder?.blocks.includes(block) ? litHolder : (map.owners.get(block) ?? null);
  const references = state.pool.refCounts.get(block) ?? 0;
  context.globalAlpha = 1;
  context.fillStyle = palette.free;
  context.fillRect(box.x, box.y, box.width, box.height);
  if (owner !== null) {
    const share = map.filled.get(block) / state.header.engine.block_size;
    const badge = references > 1 ? BADGE : 0;
    drawOwned(context, palette, { box, owner, share, lit, letterFrom, badge });
  }
  if (state.pool.isCached[block] === 1) drawCached(context, box, palette, owner);
  if (references > 1) drawShared(context, box, palette, references);
}

/** The engine's own: neither free nor used. */
function drawNull(context, box, palette) {
  context.globalAlpha = 1;
  context.fillStyle = hatch(context, palette.mute, 'x');
  context.fillRect(box.x, box.y, box.width, box.height);
  context.strokeStyle = palette.mute;
  context.lineWidth = 1;
  context.strokeRect(box.x + 0.5, box.y + 0.5, box.width - 1, box.height - 1);
}

function drawOwned(context, palette, { box, owner, share, lit, letterFrom, badge }) {
  const { fill, ink } = palette.seat(owner.seat);
  const height = Math.round(box.height * share);
  context.globalAlpha = lit === null || lit === owner.id ? 1 : FADED;
  context.fillStyle = fill;
  context.fillRect(box.x, box.y + box.height - height, box.width, height);
  context.strokeStyle = fill;
  context.lineWidth = 1;
  context.strokeRect(box.x + 0.5, box.y + 0.5, box.width - 1, box.height - 1);
  const smallest = Math.min(box.width, box.height);
  if (smallest < letterFrom) return;
  const size = smallest < LETTER_FROM ? smallest * 0.9 : Math.min(13, box.height * 0.55, box.width * 0.6);
  const room = box.width < 3 * BADGE ? box.width - badge : box.width; // beside the reference count
  const [x, y] = [box.x + room / 2, box.y + box.height / 2];
  letter(context, palette, owner.seat, x, y, size, share > 0.6 ? ink : palette.ink);
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
  context.fillRect(box.x + box.width - BADGE, box.y, BADGE, 11);
  context.font = palette.letter(9);
  context.fillStyle = palette.card;
  context.textAlign = 'center';
  context.textBaseline = 'middle';
  context.fillText(`${references}`, box.x + box.width - BADGE / 2, box.y + 6);
}

/** Several blocks: from below the shares of their owners, what is cached, and the engine's own. */
function drawCell(context, { palette, lit }, box, cell) {
  context.globalAlpha = 1;
  context.fillStyle = palette.free;
  context.fillRect(box.x, box.y, box.width, box.height);
  if (cell.owners.size === 0 && cell.numCached === 0 && !cell.hasNull) return;
  const parts = [...cell.owners].map(([owner, number]) => ({
    number,
    fill: palette.seat(owner.seat).fill,
    alpha: lit === null || lit === owner.id ? 1 : FADED,
  }));
  parts.push({ number: cell.numCached, fill: palette.cached, alpha: 1 });
  if (cell.hasNull) parts.push({ number: 1, fill: palette.mute, alpha: 1 });
  const heights = heightsOf(parts.map(({ number }) => number), cell.size, box.height);
  let bottom = box.y + box.height;
  parts.forEach(({ fill, alpha }, index) => {
    context.globalAlpha = alpha;
    context.fillStyle = fill;
    context.fillRect(box.x, bottom - heights[index], box.width, heights[index]);
    bottom -= heights[index];
  });
}
