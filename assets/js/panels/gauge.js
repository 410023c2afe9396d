// A gauge: a word, a bar, and the two numbers it stands for.

import { h, setText } from '../dom.js';
import { explain } from '../tooltip.js';
import { DASH, count, percent } from '../format.js';

export class Gauge {
  #fill = h('i');
  #numbers = h('span', { class: 'scope-gauge-numbers' });

  constructor(name, meaning, tools) {
    this.element = h(
      'div',
      { class: 'scope-gauge', tabindex: '0' },
      h('span', {}, name),
      h('span', { class: 'scope-gauge-bar' }, this.#fill),
      this.#numbers,
    );
    explain(this.element, () => ({ title: name, note: meaning }), tools);
  }

  set(value, most) {
    const share = most > 0 ? value / most : 0;
    this.#fill.style.width = `${share * 100}%`;
    setText(this.#numbers, most > 0 ? `${count(value)} / ${count(most)}  ${percent(share)}` : DASH);
  }
}
