// What can be opened: the server's recordings, what its engines did until now, a file from here.

import { duration, count } from '../format.js';
import { h, setAttribute } from '../dom.js';

const FRAME = 2; // pixels around the recording that is open
const ENDINGS = '.jsonl,.gz,.jsonl.gz,application/gzip';

/** What an offered recording is called: one that is shipped has a title in the page's language. */
export function titleOf({ name, is_shipped: isShipped }, words) {
  return isShipped ? words(`traces.shipped.${name}`) : name;
}

export class Picker {
  #buttons = new Map(); // name of an offered recording → its button
  #marked = null;

  /** @param {{onName: (name: string) => void, onEngine: (name: string) => void, onFile: (file: File) => void}} on */
  constructor(words, signal, on) {
    this.words = words;
    this.signal = signal;
    this.on = on;
    this.offered = h('div', { class: 'traces-list' });
    this.engines = h('div', { class: 'traces-list' });
    this.element = h(
      'section',
      { class: 'traces-picker', 'aria-label': words('traces.choose') },
      this.#fileButton(),
      this.engines,
      this.offered,
    );
  }

  /**
   * @param {object[]} recordings
   * @param {{name: string, title: string, model: string, problem: string|null}[]|null} engines
   */
  show(recordings, engines) {
    const { words } = this;
    this.#buttons.clear();
    const items = recordings.map((recording) => this.#offeredButton(recording));
    this.#fill(this.offered, words('traces.offered'), items, words('traces.offered.none'));
    this.engines.hidden = engines === null;
    const running = (engines ?? []).map(({ name, title, model, problem }) => {
      const why = problem === null ? [] : [words('traces.engines.problem', { problem })];
      return this.#button(title, [model, ...why], () => this.on.onEngine(name));
    });
    this.#fill(this.engines, words('traces.engines'), running, words('traces.engines.none'));
    this.mark(this.#marked);
  }

  /** The recording that is open; `null`: none of these. */
  mark(name) {
    this.#marked = name;
    for (const [other, button] of this.#buttons) {
      setAttribute(button, 'aria-current', other === name ? 'true' : null);
    }
    const open = this.#buttons.get(name);
    if (open === undefined) return;
    bringIntoView(open, this.element); // beside the recording the whole picker scrolls,
    bringIntoView(open, open.closest('ul')); // above it, on a phone, the list
  }

  #offeredButton(recording) {
    const { name, backend, model, num_requests, num_steps, duration: seconds } = recording;
    const numbers = this.words('traces.numbers', {
      requests: count(num_requests),
      steps: count(num_steps),
      duration: duration(seconds),
    });
    const button = this.#button(titleOf(recording, this.words), [`${backend} · ${model}`, numbers], () => this.on.onName(name));
    this.#buttons.set(name, button);
    return button;
  }

  #button(title, lines, onClick) {
    const button = h(
      'button',
      { type: 'button', class: 'traces-item' },
      h('b', {}, title),
      ...lines.map((line) => h('span', {}, line)),
    );
    button.addEventListener('click', onClick, { signal: this.signal });
    return button;
  }

  #fill(place, title, items, none) {
    const list = items.length > 0 ? h('ul', {}, ...items.map((item) => h('li', {}, item))) : h('p', {}, none);
    place.replaceChildren(h('h2', {}, title), list);
  }

  /** A file is read here, in the browser: nothing is sent anywhere. */
  #fileButton() {
    const { words, signal } = this;
    const input = h('input', { type: 'file', accept: ENDINGS, hidden: true, 'aria-label': words('traces.file') });
    const button = h('button', { type: 'button', class: 'traces-button traces-open' }, words('traces.file'));
    button.addEventListener('click', () => input.click(), { signal });
    input.addEventListener(
      'change',
      () => {
        const [file] = input.files;
        if (file !== undefined) this.on.onFile(file);
        input.value = ''; // the same one may be chosen again
      },
      { signal },
    );
    return h('div', { class: 'traces-file' }, button, input, h('p', {}, words('traces.file.hint')));
  }
}

/**
 * Scroll one element, and nothing around it, so far that a part of it is seen with its frame: to whole
 * pixels, so that it ends at the same place whatever it scrolled before.
 */
function bringIntoView(part, scroller) {
  const { top, bottom } = part.getBoundingClientRect();
  const place = scroller.getBoundingClientRect();
  if (bottom + FRAME > place.bottom) {
    scroller.scrollTop = Math.ceil(scroller.scrollTop + bottom + FRAME - place.bottom);
  } else if (top - FRAME < place.top) {
    scroller.scrollTop = Math.floor(scroller.scrollTop + top - FRAME - place.top);
  }
}
