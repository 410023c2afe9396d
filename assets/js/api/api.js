// The API tab: calls to copy, a request whose raw frames are shown, the way of one token, the code.

import { h } from '../dom.js';
import { Calls } from './calls_card.js';
import { CodeView } from './code_view.js';
import { JourneyCard } from './journey_card.js';
import { SendCard } from './send_card.js';

const AGAIN = 1500; // after the server could not be reached

export function create(root, { words, store }) {
  return new Api(root, words, store);
}

class Api {
  #abort = new AbortController();

  constructor(root, words, store) {
    const { signal } = this.#abort;
    const address = new URL('.', document.baseURI).href.replace(/\/$/, '');
    this.root = root;
    this.words = words;
    this.engine = h('select', { id: 'api-engine', disabled: true, onchange: () => this.calls.show(this.engine.value) });
    this.calls = new Calls(words, address);
    this.journey = new JourneyCard(words, () => this.send.trace());
    this.send = new SendCard(words, () => this.engine.value, (token) => this.journey.show(token), signal);
    this.code = new CodeView(words, signal);
    root.classList.add('api');
    root.replaceChildren(
      h(
        'section',
        { class: 'api-card' },
        h('h2', {}, words('api.title')),
        h('p', { class: 'api-quiet' }, words('api.about')),
        h('div', { class: 'api-row api-engine' }, h('label', { for: 'api-engine' }, words('api.engine')), this.engine),
        ...this.calls.elements,
      ),
      this.send.element,
      this.journey.element,
      this.code.element,
    );
    this.#begin(store.backend);
  }

  unmount() {
    this.#abort.abort();
  }

  async #begin(chosen) {
    const { signal } = this.#abort;
    const answer = await untilAnswered('health', signal);
    if (answer === null) return;
    const { backends, default: first } = answer;
    this.engine.disabled = false;
    this.engine.replaceChildren(...Object.entries(backends).map(([name, { title }]) => h('option', { value: name }, title)));
    this.engine.value = chosen !== null && chosen in backends ? chosen : first;
    this.calls.show(this.engine.value);
    this.send.ready();
    this.journey.ready();
    const [schema] = await Promise.all([ask('openapi.json', signal), this.code.begin()]);
    if (schema !== null) this.calls.listRoutes(schema);
    this.root.dataset.settled = 'true';
  }
}

/** What a route says; null where the server is away, and once the tab has gone. */
async function ask(path, signal) {
  try {
    const response = await fetch(new URL(path, document.baseURI), { signal });
    return response.ok ? await response.json() : null;
  } catch (error) {
    if (error.name === 'AbortError' || error instanceof TypeError) return null; // a fetch that failed
    throw error;
  }
}

/** The same, asked again and again; null once the tab has gone. */
async function untilAnswered(path, signal) {
  let answer = await ask(path, signal);
  while (answer === null && !signal.aborted) {
    await new Promise((resolve) => setTimeout(resolve, AGAIN));
    answer = await ask(path, signal);
  }
  return answer;
}
