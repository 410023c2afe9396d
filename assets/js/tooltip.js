// One tooltip for all panels: a title and lines of name and value. Text only.

import { h } from './dom.js';
import { seatColour, seatLetter } from './seats.js';

const MARGIN = 12;

export class Tooltip {
  #element = h('div', { class: 'scope-tooltip', role: 'tooltip', 'aria-live': 'polite', hidden: true });

  constructor() {
    document.body.append(this.#element);
  }

  /**
   * @param {{seat?: number|null, title: string, lines?: [string, string][], note?: string}} content
   * @param {{x: number, y: number}} at in window pixels
   */
  show(content, at) {
    const title = h('div', { class: 'scope-tooltip-title' });
    if (content.seat !== undefined) title.append(seatBadge(content.seat));
    title.append(content.title);
    const parts = [title];
    if (content.lines?.length) parts.push(h('dl', {}, ...content.lines.flatMap(line)));
    if (content.note) parts.push(h('p', {}, content.note));
    this.#element.replaceChildren(...parts);
    this.#element.hidden = false;
    this.#place(at);
  }

  hide() {
    this.#element.hidden = true;
  }

  remove() {
    this.#element.remove();
  }

  /** Beside the pointer, and always inside the window. */
  #place({ x, y }) {
    const { offsetWidth: width, offsetHeight: height } = this.#element;
    const left = x + MARGIN + width > innerWidth ? x - MARGIN - width : x + MARGIN;
    const top = y + MARGIN + height > innerHeight ? y - MARGIN - height : y + MARGIN;
    this.#element.style.left = `${Math.max(4, left)}px`;
    this.#element.style.top = `${Math.max(4, top)}px`;
  }
}

/** Show `content()` under an element for as long as it is pointed at or has the focus. */
export function explain(element, content, { tooltip, signal }) {
  const show = () => {
    const { left, bottom } = element.getBoundingClientRect();
    tooltip.show(content(), { x: left - MARGIN, y: bottom - MARGIN / 2 });
  };
  for (const type of ['pointerenter', 'focus', 'click']) element.addEventListener(type, show, { signal });
  for (const type of ['pointerleave', 'blur'])
    element.addEventListener(type, () => tooltip.hide(), { signal });
}

const line = ([name, value]) => [h('dt', {}, name), h('dd', {}, value)];

/** The seat as an element: letter and colour. */
export function seatBadge(seat) {
  const colour = seatColour(seat);
  return h(
    'span',
    { class: 'scope-seat', 'data-colour': colour === null ? 'none' : String(colour) },
    seatLetter(seat),
  );
}
