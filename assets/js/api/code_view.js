// Each engine's files with their lines counted, and the source of what is chosen beside them.

import { h, setText } from '../dom.js';
import { count } from '../format.js';

export class CodeView {
  #engines = [];
  #asked = null;

  constructor(words, signal) {
    this.words = words;
    this.signal = signal;
    this.counts = h('div', { class: 'api-counts', role: 'group', 'aria-label': words('api.code.engines') });
    this.files = h('ul', { class: 'api-files' });
    this.path = h('code', { id: 'api-code-path' });
    this.symbols = h('select', { id: 'api-symbol', onchange: () => this.#show(this.symbols.value) });
    this.source = h('pre', { class: 'api-code api-source', id: 'api-source', tabindex: '0' });
    this.element = h(
      'section',
      { class: 'api-card api-wide', id: 'api-code' },
      h('h3', {}, words('api.code')),
      h('p', { class: 'api-quiet' }, words('api.code.about')),
      this.counts,
      h(
        'div',
        { class: 'api-split' },
        this.files,
        h(
          'div',
          { class: 'api-beside' },
          h(
            'div',
            { class: 'api-row' },
            h('label', { class: 'scope-hidden', for: 'api-symbol' }, words('api.code.symbol')),
            this.symbols,
            this.path,
          ),
          this.source,
        ),
      ),
    );
  }

  async begin() {
    const engines = await this.#ask('code/engines');
    if (engines === null) return;
    this.#engines = engines;
    const most = Math.max(...engines.map(({ code_lines }) => code_lines));
    this.counts.replaceChildren(
      ...engines.map(({ engine, code_lines, total_lines }) =>
        h(
          'button',
          { type: 'button', class: 'api-count', 'data-engine': engine, onclick: () => this.#open(engine) },
          h('b', {}, engine),
          h('span', { class: 'mono' }, this.words('api.code.lines', { lines: count(code_lines) })),
          h('small', {}, this.words('api.code.total', { lines: count(total_lines) })),
          h('i', { 'aria-hidden': 'true', style: `width: ${(code_lines / most) * 100}%` }),
        ),
      ),
    );
    await this.#open(engines[0].engine);
  }

  #open(name) {
    press(this.counts.children, (button) => button.dataset.engine === name);
    const { files } = this.#engines.find(({ engine }) => engine === name);
    this.files.replaceChildren(
      ...files.map((file) =>
        h(
          'li',
          {},
          h(
            'button',
            { type: 'button', 'data-path': file.path, onclick: () => this.#choose(file) },
            h('code', {}, file.path.split('/').at(-1)),
            h('span', { class: 'mono' }, count(file.code_lines)),
            h('small', { lang: 'en' }, file.about),
          ),
        ),
      ),
    );
    return this.#choose(files.reduce((longest, file) => (file.code_lines > longest.code_lines ? file : longest)));
  }

  #choose(file) {
    press(this.files.querySelectorAll('button'), (button) => button.dataset.path === file.path);
    this.symbols.replaceChildren(
      h('option', { value: file.path }, this.words('api.code.whole')),
      ...file.symbols.map((symbol) => h('option', { value: `${file.path}::${symbol}` }, symbol)),
    );
    return this.#show(file.path);
  }

  async #show(symbol) {
    this.#asked = symbol;
    const found = await this.#ask(`code?symbol=${encodeURIComponent(symbol)}`);
    if (found === null || this.#asked !== symbol) return;
    const last = found.first_line + found.num_lines - 1;
    const place = { path: found.path, first: count(found.first_line), last: count(last) };
    setText(this.path, this.words('api.code.place', place));
    setText(this.source, found.source);
    this.source.scrollTop = 0;
    this.source.dataset.symbol = symbol;
  }

  async #ask(path) {
    try {
      const response = await fetch(new URL(path, document.baseURI), { signal: this.signal });
      const told = await response.json();
      if (response.ok) return told;
      setText(this.source, told.error.message);
    } catch (error) {
      if (error.name !== 'AbortError') setText(this.source, this.words('api.unreachable'));
    }
    return null;
  }
}

function press(buttons, isPressed) {
  for (const button of buttons) button.setAttribute('aria-pressed', String(isPressed(button)));
}
