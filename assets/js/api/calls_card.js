// One call at a time, in the language chosen, with a button that copies it; and every route there is.

import { h, setText } from '../dom.js';
import { callsOf } from './calls.js';

const LANGUAGES = ['curl', 'python', 'openai'];

export class Calls {
  #calls = [];
  #language = 'curl';

  constructor(words, address) {
    this.words = words;
    this.address = address;
    this.route = h('select', { id: 'api-route', disabled: true, onchange: () => this.#draw() });
    this.buttons = LANGUAGES.map((language) =>
      h(
        'button',
        {
          type: 'button',
          class: 'api-choice',
          'data-language': language,
          disabled: true,
          onclick: () => this.#speak(language),
        },
        words(`api.language.${language}`),
      ),
    );
    this.about = h('p', { class: 'api-quiet' });
    this.code = h('pre', { class: 'api-code', id: 'api-call', tabindex: '0' });
    this.copy = h(
      'button',
      { type: 'button', class: 'api-button', id: 'api-copy', disabled: true, onclick: () => this.#copy() },
      words('api.copy'),
    );
    this.copied = h('span', { class: 'api-quiet', role: 'status' });
    this.routes = h('tbody');
    this.elements = [
      h('h3', {}, words('api.calls')),
      h('label', { class: 'scope-hidden', for: 'api-route' }, words('api.route')),
      this.route,
      this.about,
      h(
        'div',
        { class: 'api-row' },
        h('div', { class: 'api-choices', role: 'group', 'aria-label': words('api.language') }, ...this.buttons),
        this.copy,
        this.copied,
      ),
      this.code,
      h(
        'details',
        { class: 'api-routes' },
        h('summary', {}, words('api.routes')),
        h('div', { class: 'api-scroll', tabindex: '0' }, h('table', { 'aria-label': words('api.routes') }, this.routes)),
      ),
    ];
  }

  /** Calls for this engine; until then there are none. */
  show(backend) {
    this.route.disabled = this.copy.disabled = false;
    const chosen = this.route.value;
    this.#calls = callsOf({ address: this.address, backend });
    this.route.replaceChildren(...this.#calls.map(({ name, method, path }) => h('option', { value: name }, `${method} ${path}`)));
    if (this.#calls.some(({ name }) => name === chosen)) this.route.value = chosen;
    this.#draw();
  }

  /** What the server itself says it has. */
  listRoutes({ paths }) {
    const rows = Object.entries(paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, { description = '' }]) => [method.toUpperCase(), path, description]),
    );
    this.routes.replaceChildren(
      ...rows.map(([method, path, about]) =>
        h('tr', {}, h('td', {}, h('code', {}, method)), h('td', {}, h('code', {}, path)), h('td', { lang: 'en' }, about)),
      ),
    );
  }

  get #call() {
    return this.#calls.find(({ name }) => name === this.route.value);
  }

  #speak(language) {
    this.#language = language;
    this.#draw();
  }

  #draw() {
    const call = this.#call;
    const language = call[this.#language] === undefined ? 'curl' : this.#language;
    for (const button of this.buttons) {
      button.disabled = call[button.dataset.language] === undefined;
      button.setAttribute('aria-pressed', String(button.dataset.language === language));
    }
    setText(this.about, this.words(`api.call.${call.name}`));
    setText(this.code, call[language]);
    setText(this.copied, '');
  }

  /** A page that is not served securely has no clipboard: the text is selected instead. */
  async #copy() {
    if (navigator.clipboard === undefined) {
      getSelection().selectAllChildren(this.code);
      setText(this.copied, this.words('api.selected'));
      return;
    }
    await navigator.clipboard.writeText(this.code.textContent);
    setText(this.copied, this.words('api.copied'));
  }
}
