// The slider over the steps of a history, and where in it we are.

import { count } from './format.js';
import { h, setAttribute, setText } from './dom.js';
import { hidesSteps } from './gauges.js';

export class Scrub {
  /** @param {{words: Function, signal: AbortSignal}} tools @param {object} store */
  constructor({ words, signal }, store) {
    this.words = words;
    this.store = store;
    this.slider = h('input', {
      type: 'range',
      class: 'scope-slider',
      min: '0',
      max: '0',
      value: '0',
      step: '1',
      'aria-label': words('transport.scrub'),
    });
    this.position = h('output', { class: 'scope-position' });
    this.slider.addEventListener('input', () => store.lookAt(Number(this.slider.value)), { signal });
  }

  draw({ history }) {
    const { store } = this;
    const shown = Math.max(store.shown, history.first);
    setAttribute(this.slider, 'min', history.isEmpty ? 0 : history.first);
    setAttribute(this.slider, 'max', Math.max(history.last, history.first + 1));
    setAttribute(this.slider, 'disabled', history.isEmpty);
    const value = String(history.isEmpty ? 1 : shown);
    if (this.slider.value !== value) this.slider.value = value;
    const share = history.last > history.first ? (shown - history.first) / (history.last - history.first) : 1;
    this.slider.style.setProperty('--share', `${share * 100}%`);
    const text = this.#sentence(history);
    setText(this.position, text);
    setAttribute(this.slider, 'aria-valuetext', text);
  }

  #sentence(history) {
    const latest = history.column(history.last)?.step.step_id ?? null;
    if (latest === null)
      return this.words(hidesSteps(history.live.header) ? 'transport.steps_not_exposed' : 'transport.no_steps');
    const shown = history.column(this.store.shown)?.step.step_id ?? null;
    return this.words('transport.position', { step: count(shown), latest: count(latest) });
  }
}
