// The line under the transport: what the engine is, how it is, and what went wrong.

import { h, setAttribute, setText } from './dom.js';
import { count, percent } from './format.js';

const GONE = ['crashed', 'restarting'];

export class StatusLine {
  #said = null;

  constructor(tools) {
    this.tools = tools;
    this.dot = h('i', { class: 'scope-dot' });
    this.text = h('span', { class: 'scope-status-text', role: 'status' });
    this.model = h('span', { class: 'scope-facts-model' });
    this.limits = h('span');
    this.facts = h('span', { class: 'scope-facts' }, this.model, this.limits);
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
    this.facts.hidden = GONE.includes(engine?.state); // they were those of a process that is gone
    setText(this.model, state.header === null ? '' : `${modelOf(state.header)} · `);
    setText(this.limits, state.header === null ? '' : limitsOf(state.header, this.tools.words));
    setAttribute(
      this.facts,
      'title',
      state.header === null ? null : allFactsOf(state.header, this.tools.words),
    );
  }

  #sentence(store, engine) {
    const { words } = this.tools;
    const { connection, backend } = store;
    if (connection.phase === 'lost') return words('transport.lost');
    if (connection.phase === 'outdated') return words('transport.outdated');
    if (connection.phase === 'refused') return words('transport.refused', { reason: connection.reason });
    if (engine === undefined)
      return words(connection.phase === 'open' ? 'state.idle.sentence' : 'transport.connecting', {
        backend: store.titleOf(backend),
      });
    return stateSentence(engine, store.titleOf(backend), words);
  }
}

/** An engine's state in words, and why. How far it is changes too often to be read out. */
export function stateSentence(engine, title, words) {
  const head = words(`state.${engine.state}.sentence`, { backend: title });
  return engine.reason ? `${head} · ${engine.reason}` : head;
}

const modelOf = ({ model, dtype, device }) => [model, dtype, device].join(' · ');

function limitsOf({ engine }, words) {
  const limits = [
    'batch_size',
    'max_num_seqs',
    'max_num_batched_tokens',
    'block_size',
    'num_blocks',
    'max_model_len',
  ];
  return limits
    .filter((name) => engine[name] !== null)
    .map((name) => words(`transport.fact.${name}`, { value: count(engine[name]) }))
    .join(' · ');
}

/** One a line: also what the line has no room for. */
function allFactsOf(header, words) {
  return [
    modelOf(header),
    limitsOf(header, words),
    ...(header.engine.kernels ? [words('transport.fact.kernels', { value: header.engine.kernels })] : []),
    header.hardware,
    ...Object.entries(header.versions).map(([name, version]) => `${name} ${version}`),
  ].join('\n');
}
