// The KV cache panel. Engines keep K and V in three ways, and each is shown as what it is:
// in blocks, in one reserved run a request, or not at all, so that everything is computed again.
// Of an engine whose steps are not seen, the sums that it tells are shown.

import { h, setAttribute } from '../dom.js';
import { BlocksView } from './kv_blocks.js';
import { GaugesView } from './kv_gauges.js';
import { Panel } from './panel.js';
import { bindPointing } from './pointing.js';
import { RecomputeView } from './kv_recompute.js';
import { ReservedView } from './kv_reserved.js';
import { hidesSteps } from '../gauges.js';

/** Which of them it is; `null` when the engine does not tell. */
export function kvKind(state) {
  const { header } = state;
  if (header === null) return null;
  if (hidesSteps(header) || header.measured.kv === 'not_exposed')
    return state.gauges.size > 0 ? 'gauges' : null; // where blocks are seen, they tell more
  if (header.engine.block_size !== null) return 'blocks';
  return state.pool.reserves || header.measured.kv === 'measured' ? 'reserved' : 'recompute';
}

export class KVPanel {
  #drawnFrom = []; // while it stays the same, so does the picture

  constructor(tools, store, onResize) {
    this.tools = tools;
    this.store = store;
    this.panel = new Panel('kv', tools);
    this.element = this.panel.element;
    this.panel.body.classList.add('scope-column');
    const host = h('div', { class: 'scope-body' });
    this.details = h('div', { class: 'scope-details' });
    this.panel.body.append(host, this.details);
    this.picture = this.panel.picture(host, onResize);
    this.views = {
      blocks: new BlocksView(tools, store),
      reserved: new ReservedView(tools, store),
      recompute: new RecomputeView(tools, store),
      gauges: new GaugesView(tools, store),
    };
    bindPointing(this.picture.canvas, {
      tools,
      store,
      find: (x, y) => this.view?.find(x, y) ?? null,
      neighbour: (id, by) => this.#neighbour(id, by),
    });
  }

  draw(view) {
    this.panel.setExposure(view.state.header);
    const kind = kvKind(view.state);
    this.#use(kind);
    const isEmpty = this.view === null || !this.view.hasContent(view);
    this.panel.setEmpty(isEmpty ? this.#emptySentence(view, kind) : null);
    this.panel.setHeadline(isEmpty ? '' : this.view.headline(view));
    if (isEmpty) return;
    this.view.updateDetails(view);
    if (this.picture.isVisible) this.#drawPicture(view);
    const { view: shown } = this; // the words are made later, when another engine may be chosen
    this.panel.setSummary(() => shown.inWords(view));
  }

  /** Only what would look different: a pool can have tens of thousands of blocks. */
  #drawPicture(view) {
    const { width, height, numSizes } = this.picture;
    const scene = { ...view, width, height };
    const from = [this.view, numSizes, ...(this.view.dependsOn?.(scene) ?? [{}])];
    if (from.length === this.#drawnFrom.length && from.every((one, i) => one === this.#drawnFrom[i])) return;
    this.#drawnFrom = from;
    this.view.draw(this.picture.begin(), scene);
  }

  stop() {
    this.picture.stop();
  }

  #use(kind) {
    const next = kind === null ? null : this.views[kind];
    if (this.view === next) return;
    this.view = next;
    setAttribute(this.element, 'data-kind', kind);
    this.details.replaceChildren(...(next?.details ?? []));
    this.panel.footer.replaceChildren(...(next?.footer ?? []));
  }

  #emptySentence(view, kind) {
    const { words } = this.tools;
    if (view.state.header === null) return view.emptySentence('kv');
    if (kind !== null) return view.emptySentence(`kv.${kind}`);
    return view.state.header.notes?.kv ?? words('panel.kv.not_exposed');
  }

  #neighbour(id, by) {
    const ids = [...this.store.requests()]
      .filter((request) => request.numSteps > 0)
      .map((request) => request.id);
    if (ids.length === 0) return null;
    const place = ids.indexOf(id);
    return ids[place === -1 ? ids.length - 1 : (place + by + ids.length) % ids.length];
  }
}
