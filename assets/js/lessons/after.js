// What a run shows, in words: told once it has run, or when the reader asks for it.

import { h } from '../dom.js';
import { prose } from './prose.js';

export class AfterRun {
  /** @param {string} html @param {boolean} isShown @param {() => void} onAsked */
  constructor(html, isShown, words, onAsked) {
    Object.assign(this, { html });
    this.heading = h('h3', { tabindex: '-1' }, words('lessons.after'));
    this.body = h(
      'div',
      { class: 'lessons-sealed' },
      h('p', {}, words('lessons.after.sealed')),
      h(
        'button',
        {
          type: 'button',
          class: 'lessons-button',
          onclick: () => {
            onAsked();
            this.show();
            this.heading.focus();
          },
        },
        words('lessons.after.show'),
      ),
    );
    this.element = h('section', { class: 'lessons-card lessons-after' }, this.heading, this.body);
    if (isShown) this.show();
  }

  show() {
    this.body.replaceWith((this.body = prose(this.html)));
  }
}
