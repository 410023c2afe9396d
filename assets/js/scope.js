// One scope on the page: transport and four panels over one store. `mount` builds it into an
// element; `unmount` leaves nothing behind.

import { BatchPanel } from './panels/batch.js';
import { Frames } from './frames.js';
import { KVPanel } from './panels/kv.js';
import { LatencyPanel } from './panels/latency.js';
import { QueuesPanel } from './panels/queues.js';
import { Tooltip } from './tooltip.js';
import { count } from './format.js';
import { h } from './dom.js';
import { readPalette, watchTheme } from './palette.js';

export class Scope {
  #abort = new AbortController();
  #palette = null;

  /**
   * @param {HTMLElement} root
   * @param {{store: object, words: Function, view: string|null, prefix?: string,
   *   transport: (tools: object, store: object) => object}} options  `prefix`: of the ids in it, where
   *   the page has another one
   */
  constructor(root, { store, words, view, transport, prefix = '' }) {
    this.root = root;
    this.store = store;
    this.words = words;
    this.tooltip = new Tooltip();
    this.frames = new Frames(() => this.#draw());
    const tools = { words, tooltip: this.tooltip, signal: this.#abort.signal, prefix };
    const redraw = () => this.frames.soon();
    this.transport = transport(tools, store);
    this.panels = [
      new BatchPanel(tools, store, redraw),
      new KVPanel(tools, store, redraw),
      new QueuesPanel(tools, store, redraw),
      new LatencyPanel(tools, store),
    ];
    root.classList.add('scope');
    root.dataset.view = view ?? 'full';
    root.replaceChildren(
      this.transport.element,
      h('div', { class: 'scope-panels' }, ...this.panels.map((panel) => panel.element)),
    );
    this.#listen();
    this.frames.soon();
  }

  unmount() {
    this.#abort.abort();
    this.frames.stop();
    this.tooltip.remove();
    for (const panel of this.panels) panel.stop();
  }

  #listen() {
    const { signal } = this.#abort;
    const { store } = this;
    let pointed = store.lit;
    let crosshair = store.crosshair;
    const unsubscribe = store.subscribe(() => {
      const isHand = pointed !== store.lit || crosshair !== store.crosshair;
      pointed = store.lit;
      crosshair = store.crosshair;
      if (isHand) this.frames.soon();
      else this.frames.request();
    });
    const unwatch = watchTheme(() => {
      this.#palette = null;
      this.frames.soon();
    });
    signal.addEventListener('abort', () => {
      unsubscribe();
      unwatch();
    });
    this.root.addEventListener(
      'keydown',
      (event) => {
        if (event.key === 'Escape') store.set({ pinned: null });
      },
      { signal },
    );
  }

  #draw() {
    if (!this.root.isConnected) return;
    this.#palette ??= readPalette(this.root);
    const { store } = this;
    const { state } = store;
    const requests = [...store.requests(state)];
    const isPinVisible = requests.some((request) => request.id === store.pinned);
    const view = {
      state,
      requests,
      history: store.history,
      palette: this.#palette,
      lit: store.pointed ?? (isPinVisible ? store.pinned : null),
      crosshair: store.crosshair,
      moment: this.#moment(),
      focusColumn: store.history.column(store.crosshair ?? store.shown),
      chosen: store.chosen(state),
      emptySentence: (panel) => this.#emptySentence(panel),
      redraw: () => this.frames.request(),
    };
    this.transport.draw(view);
    for (const panel of this.panels) panel.draw(view);
  }

  /** What a time axis ends with. */
  #moment() {
    const { store } = this;
    if (store.isLive) return this.words('panel.now');
    return this.words('panel.batch.tip.step', {
      step: count(store.history.column(store.shown)?.step.step_id),
    });
  }

  /** What will appear in a panel, and how to make it appear or why it does not yet. */
  #emptySentence(panel) {
    return `${this.words(`panel.${panel}.empty`)} ${this.words(`panel.empty.${this.store.beginning}`)}`;
  }
}
