// The Sizing tab: a form, and what the server makes of it. `POST /sizing` is the one place that computes.

import { h } from '../dom.js';
import { Form } from './form.js';
import { PRESETS, engineChoices, fieldsOf, fieldsOfEngine, gib, planOf } from './plan.js';
import { drawBar, drawReported, drawTable, drawVerdict } from './result.js';

const DELAY = 150; // after the last key, so that a number typed is asked for once

export function create(root, { words }) {
  return new Sizing(root, words);
}

class Sizing {
  #abort = new AbortController();
  #asking = null; // of the latest question: an answer that comes late is not drawn
  #timer = null;
  #known = { models: [], engines: [], machine: {} };

  constructor(root, words) {
    this.root = root;
    this.words = words;
    this.form = new Form(words, () => this.#soon());
    this.presets = h('div', { class: 'sizing-presets' });
    this.model = h('select', { id: 'sizing-model', onchange: () => this.#takeModel() });
    this.source = h('p', { class: 'sizing-quiet' });
    this.engine = h('select', { id: 'sizing-engine', onchange: () => this.#ask() });
    this.problem = h('p', { class: 'sizing-problem', role: 'alert' });
    this.verdict = h('div', { class: 'sizing-card', id: 'sizing-verdict', 'aria-live': 'polite' });
    this.bar = h('div', { class: 'sizing-card' });
    this.table = h('div', { class: 'sizing-card sizing-scroll' });
    this.reported = h('div', {});
    root.classList.add('sizing');
    root.replaceChildren(this.#formColumn(), this.#resultColumn());
    this.#begin();
  }

  unmount() {
    this.#abort.abort();
    this.#asking?.abort();
    clearTimeout(this.#timer);
  }

  #formColumn() {
    const { words, form } = this;
    return h(
      'form',
      { class: 'sizing-card sizing-form', onsubmit: (event) => event.preventDefault() },
      h('h2', {}, words('sizing.title')),
      h('p', { class: 'sizing-quiet' }, words('sizing.about')),
      this.presets,
      h('label', { class: 'sizing-wide', for: 'sizing-model' }, words('sizing.model')),
      this.model,
      this.source,
      this.#configBox(),
      form.groups.engine,
      form.groups.card,
      form.groups.model,
    );
  }

  #configBox() {
    const { words } = this;
    const text = h('textarea', { id: 'sizing-config', rows: '5', spellcheck: 'false', placeholder: '{"architectures": …}' });
    const problem = h('p', { class: 'sizing-problem', role: 'alert' });
    const read = h('button', { type: 'button', class: 'sizing-button', onclick: () => this.#readConfig(text.value, problem) }, words('sizing.config.read'));
    return h(
      'details',
      { class: 'sizing-config' },
      h('summary', {}, words('sizing.config')),
      h('label', { class: 'sizing-wide', for: 'sizing-config' }, words('sizing.config.paste')),
      text,
      read,
      problem,
    );
  }

  #resultColumn() {
    const { words } = this;
    return h(
      'div',
      { class: 'sizing-result' },
      this.problem,
      this.verdict,
      this.bar,
      h(
        'section',
        { class: 'sizing-card' },
        h(
          'div',
          { class: 'sizing-head' },
          h('h3', {}, words('sizing.reported')),
          h('label', { class: 'scope-hidden', for: 'sizing-engine' }, words('sizing.reported.engine')),
          this.engine,
        ),
        this.reported,
      ),
      this.table,
    );
  }

  async #begin() {
    if (!(await this.#look())) return;
    this.form.fill({ other_memory: gib(this.#known.other_memory) });
    this.#takePreset(PRESETS[0]);
  }

  /** An engine may have come up since. */
  async reopened() {
    const [model, engine] = [this.model.value, this.engine.value];
    if (model === '') return this.#begin();
    if (!(await this.#look())) return null;
    this.model.value = model;
    if (engine !== '') this.engine.value = engine;
    return this.#ask();
  }

  /** Offer what there is: models, engines that run. */
  async #look() {
    const known = await this.#request('sizing', { signal: this.#abort.signal });
    if (known === null) return false;
    this.#known = known;
    const { models } = known;
    const choices = engineChoices(known.engines);
    const option = (value, label) => h('option', { value }, label);
    this.model.replaceChildren(
      ...choices.map(({ engine, title, model }) => option(`engine:${engine}`, this.words('sizing.running', { engine: title, model }))),
      ...models.map(({ name }) => option(`model:${name}`, name)),
      option('own', this.words('sizing.own')),
    );
    this.engine.replaceChildren(...choices.map(({ engine, title }) => option(engine, title)));
    this.engine.hidden = choices.length < 2;
    this.presets.replaceChildren(
      ...PRESETS.map((preset) => this.#preset(this.words(`sizing.preset.${preset.name}`), () => this.#takePreset(preset))),
      ...choices.map((engine) => this.#preset(this.words('sizing.preset.running', { engine: engine.title }), () => this.#takeEngine(engine))),
    );
    return true;
  }

  #preset(label, onclick) {
    return h('button', { type: 'button', class: 'sizing-button', onclick }, label);
  }

  #takePreset({ model, form }) {
    this.form.fill({ other_memory: gib(this.#known.other_memory), ...form });
    this.model.value = `model:${model}`;
    this.#takeModel(form.dtype);
  }

  #takeEngine(engine) {
    this.model.value = `engine:${engine.engine}`;
    this.engine.value = engine.engine;
    this.form.fill(fieldsOfEngine(engine, this.#known.machine));
    this.#tellSource(engine.hardware, 'hardware');
    this.#ask();
  }

  /** A model from the list. `dtype`: what it is to be held in, where that is not its own. */
  #takeModel(dtype = null) {
    const [kind, ...rest] = this.model.value.split(':');
    const name = rest.join(':');
    if (kind === 'engine') return this.#takeEngine(this.#known.engines.find(({ engine }) => engine === name));
    if (kind === 'model') {
      const model = this.#known.models.find((known) => known.name === name);
      this.form.fill({ ...fieldsOf(model), ...(dtype === null ? {} : { dtype }) });
      this.#tellSource(model.source);
    } else this.#tellSource('');
    return this.#ask();
  }

  #tellSource(source, kind = 'source') {
    const parts = source === '' ? [] : [`${this.words(`sizing.${kind}`)} `, h('code', {}, source)];
    this.source.replaceChildren(...parts);
  }

  async #readConfig(text, problem) {
    problem.textContent = '';
    const answer = await fetch(new URL('sizing/config', document.baseURI), {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: text,
      signal: this.#abort.signal,
    });
    const told = await answer.json();
    if (!answer.ok) {
      problem.textContent = told.error.message;
      return;
    }
    this.model.value = 'own';
    this.form.fill(fieldsOf(told));
    this.#tellSource(`config.json: ${told.architecture}`);
    this.#ask();
  }

  #soon() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#ask(), DELAY);
  }

  async #ask() {
    clearTimeout(this.#timer);
    this.#asking?.abort();
    const asking = (this.#asking = new AbortController());
    const plan = planOf(this.form.values);
    const engine = this.engine.value;
    const told = await this.#request(`sizing${engine === '' ? '' : `?engine=${encodeURIComponent(engine)}`}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(plan),
      signal: asking.signal,
    });
    if (told === null || this.#asking !== asking) return;
    const result = { ...told, plan, figures: new Map(told.figures.map((figure) => [figure.key, figure])) };
    this.verdict.replaceChildren(...drawVerdict(result, this.words));
    this.bar.replaceChildren(drawBar(result, this.words));
    this.table.replaceChildren(drawTable(result, this.words));
    this.reported.replaceChildren(...drawReported(told.reported, this.words));
    this.root.dataset.settled = 'true';
  }

  /** The answer; `null` where there is none to draw: what is wrong is said where it belongs. */
  async #request(path, options) {
    let response;
    try {
      response = await fetch(new URL(path, document.baseURI), options);
    } catch (error) {
      if (error.name !== 'AbortError') this.#complain(null, this.words('sizing.unreachable'));
      return null;
    }
    const told = await response.json();
    if (response.ok) {
      this.#complain(null, '');
      return told;
    }
    this.#complain(told.error.field, told.error.message);
    return null;
  }

  #complain(field, message) {
    const isShown = this.form.complain(field, message);
    this.problem.textContent = isShown ? '' : message;
    this.root.dataset.wrong = String(message !== '');
  }
}
