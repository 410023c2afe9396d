// A recording on the screen: what it is, how to move in it, and the four panels that the live page has.

import { Player } from './player.js';
import { ReplayTransport } from './replay_transport.js';
import { Scope } from '../scope.js';
import { h } from '../dom.js';

const TAKES_KEYS = 'input, select, textarea, button, a, canvas, summary, [contenteditable]';

export class Replay {
  #abort = new AbortController();
  #scope;

  /**
   * @param {{store: object}} recording
   * @param {{words: Function, view: string|null, actions?: Element[]}} options
   */
  constructor(recording, { words, view, actions = [] }) {
    const { store } = recording;
    this.player = new Player(store);
    const root = h('div', { id: 'replay' });
    this.element = h('div', { class: 'traces-replay' }, headingOf(recording, words, actions), root);
    const transport = (tools) => new ReplayTransport(tools, store, this.player);
    this.#scope = new Scope(root, { store, words, view, transport, prefix: 'replay-' });
    document.addEventListener('keydown', (event) => this.#key(event), { signal: this.#abort.signal });
  }

  /** Aborted when it is taken away. */
  get signal() {
    return this.#abort.signal;
  }

  unmount() {
    this.player.pause();
    this.#abort.abort();
    this.#scope.unmount();
  }

  #key(event) {
    const isOurs = this.element.checkVisibility() && !event.target.closest?.(TAKES_KEYS);
    if (!isOurs || event.ctrlKey || event.metaKey || event.altKey) return;
    const act = KEYS[event.key];
    if (act === undefined) return;
    event.preventDefault();
    act(this.player);
  }
}

const KEYS = {
  ' ': (player) => player.toggle(),
  ArrowLeft: (player) => player.stepBy(-1),
  ArrowRight: (player) => player.stepBy(1),
  Home: (player) => player.store.lookAt(player.store.history.first),
  End: (player) => player.store.goLive(),
};

/** Nobody may take a recording for what happens now: the word comes first, then what, where and when. */
function headingOf({ title, store }, words, actions) {
  const { header } = store;
  const { backend, model, dtype, device, hardware, versions, started_at: startedAt } = header;
  const facts = [
    words('traces.recorded', { when: moment(startedAt) }),
    hardware,
    ...Object.entries(versions).map(([library, version]) => `${library} ${version}`),
  ];
  return h(
    'header',
    { class: 'traces-heading' },
    h('span', { class: 'traces-badge' }, words('traces.recording')),
    h(
      'div',
      { class: 'traces-what' },
      h('h2', {}, title),
      h('p', {}, [backend, model, dtype, device].join(' · ')),
      h('p', { class: 'traces-facts' }, facts.join(' · ')),
    ),
    h('div', { class: 'traces-actions' }, ...actions),
  );
}

/** "2026-08-01T10:00:00.123+00:00" → "2026-08-01 10:00 UTC"; what is no time stays as it is. */
export function moment(text) {
  const time = new Date(text);
  return Number.isNaN(time.getTime()) ? text : `${time.toISOString().slice(0, 16).replace('T', ' ')} UTC`;
}
