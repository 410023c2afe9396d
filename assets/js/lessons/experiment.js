// Predict, run, compare. Nothing measured is shown before there is a prediction.

import { engineForm } from './engine.js';
import { elementsOf } from './outcome.js';
import { asPrediction, predictionForm } from './prediction.js';
import { recordingsOf } from './recordings.js';
import { eventsOfRun, stopRun } from './run.js';
import { verdictOf } from './values.js';
import { h, setAttribute, setText } from '../dom.js';
import { percent } from '../format.js';

export class Experiment {
  #abort = null; // of the run under way
  #runId = null; // its name on the server, once told

  /**
   * @param {object} lesson
   * @param {{entered: string|null, said: string|null, outcome: object|null}} known what stands in the form, and
   *   what stood there when the outcome's run began
   */
  constructor(lesson, known, { words, onDone }) {
    Object.assign(this, { lesson, known, words, onDone });
    this.form = predictionForm(lesson.prediction, words, known.entered, {
      onChange: () => {
        known.entered = this.form.value;
        this.#draw();
      },
      onSubmit: () => this.run(),
    });
    this.engine = engineForm(lesson.engine_choice, words);
    this.start = h('button', { type: 'button', class: 'lessons-primary', onclick: () => this.run() });
    this.cancel = h(
      'button',
      { type: 'button', class: 'lessons-button', onclick: () => this.#end() },
      words('lessons.stop'),
    );
    this.status = h('p', { class: 'lessons-status', role: 'status' });
    this.bar = h('progress', { max: '1', 'aria-label': words('lessons.progress') });
    this.verdict = h('p', { class: 'lessons-verdict', role: 'status' }); // there before it speaks, so it is heard
    this.result = h('div', { class: 'lessons-result' });
    this.controls = h(
      'div',
      {},
      this.form.element,
      this.engine.element,
      h('div', { class: 'lessons-actions' }, this.start, this.cancel, this.bar),
    );
    this.element = h(
      'section',
      { class: 'lessons-card lessons-experiment' },
      h('h3', {}, words('lessons.predict')),
      this.controls,
      this.status,
      recordingsOf(lesson.recordings, words),
      h('div', { class: 'lessons-outcome' }, this.verdict, this.result),
    );
    if (lesson.missing !== null) this.#say(words('lessons.missing', { why: lesson.missing }), 'missing');
    this.#draw();
    this.#showOutcome();
  }

  get isRunning() {
    return this.#abort !== null;
  }

  /** Ask the server for the experiment, again and again while it has too many under way. */
  async run() {
    const said = this.form.value;
    if (said === null || this.isRunning || this.lesson.missing !== null) return;
    this.known.said = said;
    this.known.outcome = null;
    const abort = new AbortController();
    const { signal } = abort;
    this.#showOutcome();
    this.#say(this.words('lessons.run.asking'));
    this.#setRun(abort);
    const failure = await this.#follow(signal);
    this.#runId = null;
    this.bar.removeAttribute('value');
    if (signal.aborted) this.#say(this.words('lessons.run.stopped'));
    else if (failure !== null) this.#say(failure.sentence, failure.kind);
    this.#setRun(null);
  }

  /** What was pressed goes away or is locked: the focus passes to the button that takes its place. */
  #setRun(abort) {
    const hadFocus = this.controls.contains(document.activeElement);
    this.#abort = abort;
    this.#draw();
    if (hadFocus) (this.isRunning ? this.cancel : this.start).focus();
  }

  /** Nobody looks any more: the server ends it when the connection closes. */
  stop() {
    this.#abort?.abort();
  }

  /** Stop pressed: the stream ends when the engines are gone, so the next run finds the place free. */
  #end() {
    if (this.cancel.ariaDisabled === 'true') return;
    if (this.#runId === null) {
      this.stop();
      return;
    }
    this.#say(this.words('lessons.run.stopping'));
    setAttribute(this.cancel, 'aria-disabled', true); // it keeps the focus
    stopRun(this.#runId);
  }

  /** @returns {Promise<{sentence: string, kind: string}|null>} why there is no outcome */
  async #follow(signal) {
    for await (const { event, data } of eventsOfRun(this.lesson.slug, this.engine.value, signal)) {
      if (event === 'run') this.#runId = data.run;
      if (event === 'error') return this.#failure(data.error);
      if (event === 'lost') return { sentence: this.words('lessons.run.lost'), kind: 'error' };
      if (event === 'busy') this.#say(this.words('lessons.run.busy', { why: data.error.message }));
      if (event === 'progress') this.#tell(data);
      if (event === 'outcome') {
        this.known.outcome = { ...data, run: this.#runId };
        this.#say('');
        this.#showOutcome();
        this.onDone();
        return null;
      }
    }
    return { sentence: this.words('lessons.run.lost'), kind: 'error' };
  }

  #failure({ code, message }) {
    if (code === 'run_stopped') return { sentence: this.words('lessons.run.stopped'), kind: '' };
    return { sentence: this.words('lessons.run.failed', { why: message }), kind: 'error' };
  }

  #tell({ engine, state, fraction, num_ended: ended, num_requests: all }) {
    if (all > 0) {
      this.bar.value = ended / all;
      this.#say(this.words('lessons.run.requests', { engine, ended, all }));
      return;
    }
    if (fraction === null) this.bar.removeAttribute('value');
    else this.bar.value = fraction;
    const key = state === 'ready' || state === 'paused' ? 'lessons.run.ready' : 'lessons.run.starting';
    this.#say(this.words(key, { engine, share: fraction === null ? '' : percent(fraction) }));
  }

  #say(sentence, kind = '') {
    setText(this.status, sentence);
    this.status.dataset.kind = kind;
  }

  #draw() {
    const { words, known } = this;
    setText(this.start, words(known.outcome === null ? 'lessons.run' : 'lessons.run.again'));
    this.start.disabled = this.isRunning || this.form.value === null || this.lesson.missing !== null;
    this.start.hidden = this.isRunning;
    this.cancel.hidden = !this.isRunning;
    setAttribute(this.cancel, 'aria-disabled', null);
    this.bar.hidden = !this.isRunning;
    this.form.lock(this.isRunning);
    this.engine.lock(this.isRunning);
  }

  #showOutcome() {
    const { outcome } = this.known;
    this.result.replaceChildren(...(outcome === null ? [] : elementsOf(outcome, this.lesson, this.words)));
    const { verdict, sentence } = outcome === null ? { verdict: null, sentence: '' } : this.#judge();
    setAttribute(this.verdict, 'data-verdict', verdict);
    setText(this.verdict, sentence);
  }

  /** What was said against what was measured. */
  #judge() {
    const { prediction } = this.lesson;
    const measured = this.known.outcome.measured.find(({ name }) => name === prediction.compares);
    const said = asPrediction(this.known.said, prediction);
    return verdictOf(said, measured, this.words, prediction.choices);
  }
}
