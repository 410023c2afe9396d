// A request of one's own, and the frames of its answer exactly as they arrive.

import { h, setText } from '../dom.js';
import { count } from '../format.js';
import { FrameReader, dataOf, visible } from './frames.js';

const MOST_FRAMES = 400; // shown; older ones go, and are counted
const ROUTES = {
  generate_stream: (backend, prompt, max_tokens) => [
    `generate_stream?backend=${encodeURIComponent(backend)}`,
    { prompt, max_tokens },
  ],
  trace: (backend, prompt, max_tokens) => [
    `generate_stream?backend=${encodeURIComponent(backend)}&trace=1`,
    { prompt, max_tokens },
  ],
  chat: (backend, prompt, max_tokens) => [
    'v1/chat/completions',
    { model: backend, messages: [{ role: 'user', content: prompt }], max_tokens, stream: true },
  ],
};

export class SendCard {
  #asking = null;
  #frames = 0;
  #first = null; // of the first traced token: {sent, arrival}

  /** @param {Function} onToken gets {trace, arrival, first} of a traced token that came or was chosen */
  constructor(words, engine, onToken, signal) {
    this.words = words;
    this.engine = engine;
    this.onToken = onToken;
    signal.addEventListener('abort', () => this.#asking?.abort());
    this.route = h(
      'select',
      { id: 'api-send-route' },
      h('option', { value: 'generate_stream' }, 'POST /generate_stream'),
      h('option', { value: 'trace' }, 'POST /generate_stream?trace=1'),
      h('option', { value: 'chat' }, 'POST /v1/chat/completions'),
    );
    this.prompt = h('textarea', { id: 'api-prompt', rows: '2' });
    this.prompt.value = words('api.prompt.default');
    this.length = h('input', { id: 'api-max-tokens', type: 'number', min: '1', value: '20' });
    this.send = h(
      'button',
      { type: 'submit', class: 'api-button api-primary', id: 'api-send', disabled: true },
      words('api.send'),
    );
    const stop = () => this.#asking?.abort();
    this.stop = h(
      'button',
      { type: 'button', class: 'api-button', id: 'api-stop', disabled: true, onclick: stop },
      words('api.stop'),
    );
    this.status = h('p', { class: 'api-quiet', id: 'api-status', role: 'status' }, words('api.waiting'));
    this.list = h('ol', { class: 'api-frames', id: 'api-frames', tabindex: '0', 'aria-label': words('api.frames') });
    this.element = h(
      'section',
      { class: 'api-card' },
      h('h3', {}, words('api.frames')),
      h(
        'form',
        { class: 'api-form', onsubmit: (event) => this.#submit(event) },
        field(words('api.route'), this.route),
        field(words('api.max_tokens'), this.length),
        field(words('api.prompt'), this.prompt),
        h('div', { class: 'api-row' }, this.send, this.stop, this.status),
      ),
      this.list,
    );
  }

  /** The engine to ask is known. */
  ready() {
    this.send.disabled = false;
    setText(this.status, '');
  }

  /** Send it so that the way of its tokens is told. */
  trace() {
    this.route.value = 'trace';
    this.#run();
  }

  #submit(event) {
    event.preventDefault();
    this.#run();
  }

  async #run() {
    this.#asking?.abort();
    const asking = (this.#asking = new AbortController());
    const [path, body] = ROUTES[this.route.value](this.engine(), this.prompt.value, Number(this.length.value));
    this.#reset();
    const start = performance.now();
    const seconds = () => (performance.now() - start) / 1000;
    this.#setBusy(true);
    try {
      const response = await fetch(new URL(path, document.baseURI), {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'Servescope-Visitor': window.servescope.visitor },
        body: JSON.stringify(body),
        signal: asking.signal,
      });
      this.#say('api.status.answered', { status: response.status, time: stamp(seconds()) });
      await this.#read(response.body, seconds);
      this.#say('api.status.done', { status: response.status, frames: count(this.#frames), time: stamp(seconds()) });
    } catch (error) {
      if (this.#asking !== asking) return; // another one has been sent meanwhile
      const key = error.name === 'AbortError' ? 'api.status.stopped' : 'api.status.broken';
      this.#say(key, { frames: count(this.#frames), time: stamp(seconds()) });
    }
    if (this.#asking === asking) this.#setBusy(false);
  }

  async #read(body, seconds) {
    const reader = new FrameReader();
    const decoder = new TextDecoder();
    const bytes = body.getReader();
    for (let part = await bytes.read(); !part.done; part = await bytes.read()) {
      const now = seconds();
      for (const frame of reader.read(decoder.decode(part.value, { stream: true }))) this.#add(frame, now);
    }
    const rest = reader.rest + decoder.decode();
    if (rest !== '') this.#add(rest, seconds()); // an error is no event stream
  }

  #add(frame, arrival) {
    const trace = dataOf(frame)?.trace ?? null;
    const gap = this.#frames === 0 ? '' : `+${((arrival - this.last) * 1000).toFixed(1)}`;
    this.last = arrival;
    this.#frames += 1;
    const item = h(
      'li',
      {},
      h('span', { class: 'api-time' }, stamp(arrival)),
      h('span', { class: 'api-gap' }, gap),
      h('code', {}, ...visible(frame).map(([text, isEnd]) => (isEnd ? h('b', {}, text) : text))),
    );
    const isAtEnd = this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight < 40;
    this.list.append(item);
    if (trace !== null) this.#trace(item, trace, arrival);
    while (this.list.childElementCount > MOST_FRAMES) this.list.firstElementChild.remove();
    if (isAtEnd) this.list.scrollTop = this.list.scrollHeight;
  }

  #trace(item, trace, arrival) {
    this.#first ??= { sent: trace.sent, arrival };
    const token = { trace, arrival, first: this.#first };
    const choose = () => {
      for (const other of this.list.children) other.toggleAttribute('data-chosen', other === item);
      this.onToken(token);
    };
    const label = this.words('api.journey.of', { index: count(trace.index) });
    const props = { type: 'button', class: 'api-way', 'aria-label': label, onclick: choose };
    item.append(h('button', props, this.words('api.journey.show')));
    choose();
  }

  #reset() {
    this.list.replaceChildren();
    this.#frames = 0;
    this.#first = null;
    setText(this.status, '');
  }

  #setBusy(isBusy) {
    this.send.disabled = isBusy;
    this.stop.disabled = !isBusy;
    this.list.setAttribute('aria-busy', String(isBusy));
  }

  #say(key, values) {
    setText(this.status, this.words(key, values));
  }
}

function field(label, control) {
  return h('div', { class: 'api-field' }, h('label', { for: control.id }, label), control);
}

/** Milliseconds since the request was sent. */
function stamp(seconds) {
  return `${(seconds * 1000).toFixed(1)} ms`;
}
