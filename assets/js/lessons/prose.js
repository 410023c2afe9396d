// A lesson's text.

import { h } from '../dom.js';

/** The server's own rendering of a lesson's Markdown, in which HTML was escaped. */
export function prose(html) {
  const element = h('div', { class: 'lessons-prose' });
  element.innerHTML = html;
  for (const pre of element.querySelectorAll('pre')) pre.tabIndex = 0; // it may be wider than its place
  return element;
}
