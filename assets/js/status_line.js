// The line under the transport: what the engine is, how it is, and what went wrong.

import { h, setAttribute, setText } from './dom.js';
import { count, percent } from './format.js';

export class StatusLine {
  #said = null;

  constructor(tools) {
    this.tools = tools;
    this.dot = h('i', { class: 'scope-dot' });
    this.text = h('span', { class: 'scope-status-text', role: 'status' });
    this.facts = h('span', { class: 'scope-facts' });
    this.bar = h('i');
    this.progress = h(
      'span',
      {
        class: 'scope-progress',
        role: 'progressbar',
        'aria-label': tools.words('state.starting'),
        hidden: true,
      },
      this.bar,
    );
    this.share = h('span', { class: 'scope-share', 'aria-hidden': 'true' });
    this.element = h(
      'div',
      { class: 'scope-status' },
      this.dot,
      this.text,
      this.progress,
      this.share,
      this.facts,
    );
  }

  /** Why the last control call did nothing; `null` when a new one is made. */
  say(sentence) {
    this.#said = sentence;
  }

  draw({ state }, store) {
    const engine = store.engines.get(store.backend);
    const { phase } = store.connection;
    const isCut = !['open', 'connecting'].includes(phase);
    setAttribute(this.dot, 'data-state', isCut ? 'crashed' : (engine?.state ?? 'idle'));
    setText(this.text, this.#said ?? this.#sentence(store, engine));
    setAttribute(this.element, 'data-alarm', this.#said !== null || isCut || engine?.state === 'crashed');
    const progress = phase === 'open' ? (engine?.progress ?? null) : null;
    this.progress.hidden = progress === null;
    setText(this.share, progress === null ? '' : percent(progress));
    if (progress !== null) {
      this.bar.style.width = `${progress * 100}%`;
      setAttribute(this.progress, 'aria-valuenow', Math.round(progress * 100));
    }
    setText(this.facts, factsOf(state.header, this.tools.words));
    setAttribute(this.facts, 'title', state.header === null ? null : versionsOf(state.header));
  }

  #sentence({ connection, backend }, engine) {
    const { words } = this.tools;
    if (connection.phase === 'lost') return words('transport.lost');
    if (connection.phase === 'outdated') return words('transport.outdated');
    if (connection.phase === 'refused') return words('transport.refused', { reason: connection.reason });
    if (engine === undefined)
      return words(connection.phase === 'open' ? 'state.idle.sentence' : 'transport.connecting', { backend });
    return stateSentence(engine, words);
  }
}

/** An engine's state in words, and why. How far it is changes too often to be read out. */
export function stateSentence(engine, words) {
  const head = words(`state.${engine.state}.sentence`, { backend: engine.backend });
  return engine.reason ? `${head} · ${engine.reason}` : head;
}

function factsOf(header, words) {
  if (header === null) return '';
  const { engine } = header;
  const limits = [
    'batch_size',
    'max_num_seqs',
    'max_num_batched_tokens',
    'block_size',
    'num_blocks',
    'max_model_len',
  ];
  const told = limits
    .filter((name) => engine[name] !== null)
    .map((name) => words(`transport.fact.${name}`, { value: count(engine[name]) }));
  return [header.model, header.dtype, header.device, ...told].join(' · ');
}

function versionsOf(header) {
  return [
    header.hardware,
    ...Object.entries(header.versions).map(([name, version]) => `${name} ${version}`),
  ].join('\n');
}
