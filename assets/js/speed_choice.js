// Slow motion: how long the engine waits before every step.

import { h } from './dom.js';

const DELAYS = [0, 0.25, 1, 2]; // seconds

export class SpeedChoice {
  constructor({ words, signal }, onChoose) {
    this.words = words;
    this.element = h(
      'select',
      { class: 'scope-select', 'aria-label': words('transport.speed'), 'data-action': 'speed' },
      ...DELAYS.map((delay) => this.#option(delay)),
    );
    this.element.addEventListener('change', () => onChoose(Number(this.element.value)), { signal });
  }

  /** The engine's own delay, also one that is not among the choices; not while someone is choosing. */
  show(delay) {
    const value = String(delay);
    if (this.element.value === value || document.activeElement === this.element) return;
    const isKnown = [...this.element.options].some((option) => option.value === value);
    if (!isKnown) this.element.append(this.#option(delay));
    this.element.value = value;
  }

  #option(delay) {
    const text =
      delay === 0
        ? this.words('transport.speed.off')
        : this.words('transport.speed.delay', { seconds: delay });
    return h('option', { value: String(delay) }, text);
  }
}
