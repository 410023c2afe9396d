// The small menu of what one rarely wants: save what was recorded, restart the engine, kill its worker.

import { h, icon, setAttribute, setText } from './dom.js';

const ACTIONS = ['restart', 'kill-worker'];

export class EngineMenu {
  #items = new Map(); // action → its button

  constructor({ words, signal }, onChoose) {
    this.words = words;
    const name = words('transport.more');
    this.summary = h('summary', { class: 'scope-button', 'aria-label': name, title: name }, icon('more'));
    this.save = h(
      'a',
      { class: 'scope-menu-item', download: true },
      h('b', {}, words('transport.save')),
      h('span', {}, words('transport.save.hint')),
    );
    const items = ACTIONS.map((action) => this.#item(action, onChoose, signal));
    this.element = h(
      'details',
      { class: 'scope-menu' },
      this.summary,
      h('div', { class: 'scope-menu-items' }, this.save, ...items),
    );
    document.addEventListener('pointerdown', (event) => this.#closeUnlessIn(event), { signal });
    this.element.addEventListener('keydown', (event) => this.#closeOnEscape(event), { signal });
  }

  /**
   * @param {(action: string) => string|null} whyNot the reason an action cannot be had now
   * @param {{backend: string, header: object|null}} recorded  without a header nothing is recorded yet
   */
  draw(whyNot, isPending, { backend, header }) {
    const path = `telemetry/${encodeURIComponent(backend)}/trace?packed=true`;
    setAttribute(this.save, 'href', header === null ? null : new URL(path, document.baseURI).href);
    for (const [action, button] of this.#items) {
      const why = whyNot(action);
      setAttribute(button, 'disabled', why !== null || isPending);
      setText(button.lastChild, why ?? this.words(`transport.${action}.hint`));
    }
  }

  #item(action, onChoose, signal) {
    const choose = () => {
      this.element.open = false;
      onChoose(action);
    };
    const button = h(
      'button',
      { type: 'button', class: 'scope-menu-item' },
      h('b', {}, this.words(`transport.${action}`)),
      h('span'),
    );
    button.addEventListener('click', choose, { signal });
    this.#items.set(action, button);
    return button;
  }

  #closeUnlessIn(event) {
    if (!this.element.contains(event.target)) this.element.open = false;
  }

  #closeOnEscape(event) {
    if (event.key !== 'Escape') return;
    this.element.open = false;
    this.summary.focus();
  }
}
