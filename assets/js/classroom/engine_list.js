// Which engines race, each mode by itself; what state they are in, and why one cannot run.

import { MOST_ENTRIES, nameOf } from './workload.js';
import { h, setAttribute, setText } from '../dom.js';

const UNSAID = ['idle', 'ready'];

export class EngineList {
  #rows = []; // {entry, input, row, reason}
  #wanted = []; // names from the address, until the engines are known

  constructor(tools, store, onChange) {
    this.tools = tools;
    this.store = store;
    this.onChange = onChange;
    this.list = h('div', { class: 'classroom-engines' });
    const { words } = tools;
    this.element = h(
      'fieldset',
      { class: 'classroom-field classroom-wide' },
      h('legend', { class: 'classroom-label' }, words('classroom.engines', { most: MOST_ENTRIES })),
      this.list,
      this.#together(),
    );
    store.subscribe(() => this.#showStates());
  }

  /** @param {{backend: string, title: string, modes: string[]}[]} engines in the operator's order */
  setEngines(engines) {
    this.#rows = engines.flatMap(({ backend, title, modes }) =>
      (modes.length === 0 ? [null] : modes).map((mode) => this.#row({ backend, mode }, title)),
    );
    this.list.replaceChildren(...this.#rows.map(({ row }) => row));
    this.choose(this.#wanted);
    this.#showStates();
  }

  /** Entries by name; a backend without its mode means its default. Without any that is here, the
   *  default mode of every engine. */
  choose(entries) {
    this.#wanted = entries;
    const first = new Map();
    for (const { entry } of this.#rows)
      if (!first.has(entry.backend)) first.set(entry.backend, nameOf(entry));
    const names = new Set(
      entries.map((entry) => (entry.mode === null ? first.get(entry.backend) : nameOf(entry))),
    );
    const isAny = this.#rows.some(({ entry }) => names.has(nameOf(entry)));
    const chosen = isAny ? names : new Set([...first.values()].slice(0, MOST_ENTRIES));
    for (const { entry, input } of this.#rows) input.checked = chosen.has(nameOf(entry));
    this.#bound();
  }

  /** Those that race, in the order of the list. */
  get chosen() {
    return this.#rows.filter(({ input }) => input.checked).map(({ entry }) => entry);
  }

  /** Rather than one after another. */
  get areTogether() {
    return this.together.checked;
  }

  #together() {
    const { words } = this.tools;
    this.together = h('input', { type: 'checkbox', name: 'together' });
    this.together.addEventListener('change', () => this.onChange());
    return h(
      'label',
      { class: 'classroom-together' },
      this.together,
      h('span', {}, words('classroom.together')),
      h('span', { class: 'classroom-reason' }, words('classroom.together.meaning')),
    );
  }

  #row(entry, title) {
    const { words } = this.tools;
    const input = h('input', { type: 'checkbox', name: 'engine', value: nameOf(entry) });
    input.addEventListener('change', () => {
      this.#bound();
      this.onChange();
    });
    const mode =
      entry.mode === null
        ? null
        : h('span', { class: 'classroom-mode' }, words(`classroom.mode.${entry.mode}`));
    const reason = h('span', { class: 'classroom-reason', hidden: true });
    const row = h(
      'label',
      { class: 'classroom-engine' },
      input,
      h('i', { class: 'classroom-dot', 'aria-hidden': 'true' }),
      h('span', { class: 'classroom-title' }, title),
      mode,
      reason,
    );
    return { entry, input, row, reason, title };
  }

  /** At most four can race: then the others wait until one is taken out. */
  #bound() {
    const isFull = this.chosen.length >= MOST_ENTRIES;
    for (const { input } of this.#rows) input.disabled = isFull && !input.checked;
  }

  #showStates() {
    const { words } = this.tools;
    for (const { entry, input, row, reason, title } of this.#rows) {
      const engine = this.store.engines.get(entry.backend);
      const state = engine?.state ?? 'idle';
      setAttribute(row, 'data-state', state);
      setAttribute(input, 'aria-description', words(`state.${state}`));
      const isSaid = engine !== undefined && !UNSAID.includes(state);
      const sentence = words(`state.${state}.sentence`, { backend: title });
      setText(reason, isSaid ? [sentence, engine.reason].filter(Boolean).join(' · ') : '');
      reason.hidden = !isSaid;
    }
  }
}
