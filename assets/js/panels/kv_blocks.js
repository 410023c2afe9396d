// An engine with blocks: the whole pool, who holds what, and how full it is.

import { h, setText } from '../dom.js';
import { blockMap, cellsOf, holdersOf, numFreeIn } from './pool_map.js';
import { cellAt, layoutPool } from './pool_layout.js';
import { count } from '../format.js';
import { drawPool } from './pool_picture.js';
import { legend } from './panel.js';
import { numUsableBlocks } from '../pool.js';
import { seatLetter } from '../seats.js';
import { Gauge } from './gauge.js';

const LEGEND = ['filled', 'shared', 'cached', 'cached_free', 'free', 'null'];

export class BlocksView {
  #map = null;
  #mapOf = []; // what the map was made from
  #cells = null;
  #layout = null;

  constructor(tools, store) {
    const { words } = tools;
    this.tools = tools;
    this.store = store;
    this.blocks = new Gauge(words('panel.kv.blocks.used'), words('panel.kv.blocks.used.meaning'), tools);
    this.slots = new Gauge(words('panel.kv.blocks.slots'), words('panel.kv.blocks.slots.meaning'), tools);
    this.table = h('div', { class: 'scope-block-table' });
    this.details = [h('div', { class: 'scope-gauges' }, this.blocks.element, this.slots.element), this.table];
    const entries = LEGEND.map((kind) => legend(kind, words(`panel.kv.blocks.${kind}`)));
    this.nullEntry = entries.at(-1);
    this.footer = [h('div', { class: 'scope-legends' }, ...entries)];
  }

  hasContent({ state }) {
    return state.header.engine.num_blocks !== null && state.pool.numFree !== null;
  }

  headline({ state }) {
    const total = numUsableBlocks(state.header.engine);
    const used = total - state.pool.numFree;
    return this.tools.words('panel.kv.blocks.headline', { used: count(used), total: count(total) });
  }

  updateDetails({ state, chosen }) {
    this.#updateMap(state);
    const total = numUsableBlocks(state.header.engine);
    this.blocks.set(total - state.pool.numFree, total);
    this.slots.set(this.#map.numSlotsFilled, total * state.header.engine.block_size);
    this.nullEntry.hidden = nullBlockOf(state) === null;
    setText(this.table, this.#tableOf(chosen));
  }

  /** While all of these stay as they are, so does the picture. */
  dependsOn({ palette, lit, width, height }) {
    return [this.#map, palette, lit, width, height];
  }

  draw(context, scene) {
    const { state, palette, width, height } = scene;
    const { num_blocks: numBlocks } = state.header.engine;
    const numHeld = this.#map.held.length;
    this.#layout = layoutPool({ numBlocks, numHeld, width, height, scale: palette.scale });
    const { perCell } = this.#layout.whole;
    this.#cells =
      perCell === 1
        ? null
        : cellsOf(this.#map, { pool: state.pool, numBlocks, nullBlock: nullBlockOf(state), perCell });
    const { words } = this.tools;
    drawPool(context, { ...scene, layout: this.#layout, map: this.#map, cells: this.#cells, words });
  }

  find(x, y) {
    if (this.#layout === null) return null;
    const { whole, closeUp } = this.#layout;
    const near = closeUp === null ? null : cellAt(closeUp, x, y);
    if (near !== null) return this.#findBlock(this.#map.held[near]);
    const cell = cellAt(whole, x, y);
    if (cell === null) return null;
    return this.#cells === null ? this.#findBlock(cell) : this.#findCell(this.#cells[cell]);
  }

  inWords({ state, chosen }) {
    const total = numUsableBlocks(state.header.engine);
    const text = this.tools.words('panel.kv.blocks.summary', {
      used: count(total - state.pool.numFree),
      total: count(total),
      filled: count(this.#map.numSlotsFilled),
      slots: count(total * state.header.engine.block_size),
    });
    return `${text} ${this.#tableOf(chosen)}`;
  }

  /** Made anew only when a block has changed its state or its owner. */
  #updateMap(state) {
    const now = [state.header, state.pool.version];
    if (now.every((value, index) => value === this.#mapOf[index])) return;
    this.#mapOf = now;
    this.#map = blockMap(state);
  }

  #tableOf(request) {
    const { words } = this.tools;
    if (request === null) return words('panel.kv.blocks.no_table');
    if (request.blocks.length === 0)
      return words('panel.kv.blocks.no_blocks', { seat: seatLetter(request.seat) });
    const pairs = request.blocks.map((block, place) => `${place}→${block}`).join('  ');
    return words('panel.kv.blocks.table', { seat: seatLetter(request.seat), blocks: pairs });
  }

  #findBlock(block) {
    const { words } = this.tools;
    const { state } = this.store;
    const title = words('panel.kv.blocks.block', { block: count(block) });
    if (block === nullBlockOf(state)) {
      return { id: null, ordinal: null, content: { title, note: words('panel.kv.blocks.null.meaning') } };
    }
    const holders = [...holdersOf(state, block).keys()];
    const owner = holders[0] ?? null;
    const isCached = state.pool.isCached[block] === 1;
    const references = state.pool.refCounts.get(block) ?? (owner === null ? 0 : 1);
    const size = state.header.engine.block_size;
    const lines = [
      [words('panel.kv.blocks.filled'), `${count(this.#map.filled.get(block) ?? 0)} / ${count(size)}`],
      [words('panel.kv.blocks.references'), count(references)],
      [words('panel.kv.blocks.findable'), words(isCached ? 'panel.yes' : 'panel.no')],
    ];
    if (owner !== null) lines.unshift([words('panel.kv.blocks.logical'), count(owner.blocks.indexOf(block))]);
    if (holders.length > 1) {
      const seats = holders.map((request) => seatLetter(request.seat)).join(' ');
      lines.unshift([words('panel.kv.blocks.holders'), seats]);
    }
    const content = owner === null ? { title, lines } : { seat: owner.seat, title, lines };
    return { id: owner?.id ?? null, ordinal: null, content };
  }

  /** Which blocks a cell stands for, and whose they are; the one who holds most of them lights up. */
  #findCell(cell) {
    const { words } = this.tools;
    const holders = holdersOf(this.store.state, cell.first, cell.size);
    const owners = [...holders].sort(([, a], [, b]) => b - a);
    const lines = [
      ...owners.map(([owner, number]) => [
        words('panel.kv.blocks.held_by', { seat: seatLetter(owner.seat) }),
        count(number),
      ]),
      [words('panel.kv.blocks.cached_free'), count(cell.numCached)],
      [words('panel.kv.blocks.free'), count(numFreeIn(cell))],
    ];
    if (cell.hasNull) lines.push([words('panel.kv.blocks.null'), count(1)]);
    const title = words('panel.kv.blocks.range', {
      first: count(cell.first),
      last: count(cell.first + cell.size - 1),
    });
    const note = words('panel.kv.blocks.cell', { number: count(cell.size) });
    return { id: owners[0]?.[0].id ?? null, ordinal: null, content: { title, lines, note } };
  }
}

const nullBlockOf = ({ header }) => header.engine.null_block ?? null;
