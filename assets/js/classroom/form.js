// The form of a workload: what is in it, what is wrong with it, and which engines race.

import { ARRIVALS, WorkloadError, checked, numberFrom, numbersFrom } from './workload.js';
import { h, setAttribute, setText } from '../dom.js';
import { EngineList } from './engine_list.js';

const FIRST_WINDOW = 10; // seconds, when arrivals are no burst any more

export class WorkloadForm {
  start; // the button and what the server refused stand where the race is
  problem;

  #limits = null;
  #fields = new Map(); // name → {inputs, problem}

  /** @param {{onChange: () => void, onStart: () => void}} hear */
  constructor(tools, store, { onChange, onStart }) {
    this.tools = tools;
    const { words } = tools;
    this.onChange = onChange;
    this.engines = new EngineList(tools, store, () => this.#changed());
    this.start = h(
      'button',
      { type: 'submit', form: 'classroom-form', class: 'classroom-button classroom-primary' },
      words('classroom.start'),
    );
    this.problem = h('p', { class: 'classroom-problem', role: 'alert', hidden: true });
    this.element = h(
      'form',
      { class: 'card classroom-form', id: 'classroom-form', novalidate: true },
      h('h2', {}, words('classroom.workload')),
      ...this.#inputs(),
      this.engines.element,
    );
    this.element.addEventListener('input', () => this.#changed());
    this.element.addEventListener('submit', (event) => {
      event.preventDefault();
      onStart();
    });
  }

  /** What the server takes. Fields can be checked from now on. */
  setLimits(limits) {
    this.#limits = limits;
    setAttribute(this.#field('students').inputs[0], 'max', limits.students);
  }

  get limits() {
    return this.#limits;
  }

  /** @throws {WorkloadError} with the field, which shows it */
  read() {
    const text = (name, index = 0) => this.#field(name).inputs[index].value;
    const arrivals = this.#field('arrivals').inputs.find((input) => input.checked)?.value;
    const given = {
      students: numberFrom(text('students')),
      arrivals,
      window: arrivals === 'burst' ? 0 : numberFrom(text('window')),
      prompt_words: [numberFrom(text('prompt_words')), numberFrom(text('prompt_words', 1))],
      shared_words: numberFrom(text('shared_words')),
      output_tokens: numbersFrom(text('output_tokens')),
      seed: numberFrom(text('seed')),
    };
    try {
      const workload = checked(given, this.#limits);
      this.showProblem(null);
      return workload;
    } catch (error) {
      if (error instanceof WorkloadError) this.showProblem(error);
      throw error;
    }
  }

  fill(workload) {
    const set = (name, value, index = 0) => {
      this.#field(name).inputs[index].value = String(value);
    };
    for (const name of ['students', 'window', 'shared_words', 'seed']) set(name, workload[name]);
    workload.prompt_words.forEach((words, index) => set('prompt_words', words, index));
    set('output_tokens', workload.output_tokens.join(', '));
    for (const input of this.#field('arrivals').inputs) input.checked = input.value === workload.arrivals;
    this.#followArrivals();
    this.showProblem(null);
  }

  /** At its field, or beside the button; `null` takes it away. @param {WorkloadError|null} problem */
  showProblem(problem) {
    for (const { inputs, problem: line } of this.#fields.values()) {
      line.hidden = true;
      for (const input of inputs) setAttribute(input, 'aria-invalid', null);
    }
    this.problem.hidden = true;
    if (problem === null) return;
    const field = this.#fields.get(problem.field);
    const line = field?.problem ?? this.problem;
    const sentence = this.tools.words(`classroom.problem.${problem.key}`, problem.values);
    setText(line, field === undefined ? `${problem.field}: ${sentence}` : sentence);
    line.hidden = false;
    for (const input of field?.inputs ?? []) setAttribute(input, 'aria-invalid', 'true');
  }

  /** What the server refused, in its words. */
  showRefusal(message) {
    setText(this.problem, message ?? '');
    this.problem.hidden = message === null;
  }

  focusProblem() {
    this.element.querySelector('[aria-invalid]')?.focus();
  }

  #changed() {
    this.#followArrivals();
    this.onChange();
  }

  #followArrivals() {
    const isBurst = this.#field('arrivals').inputs.find((input) => input.checked)?.value === 'burst';
    const [input] = this.#field('window').inputs;
    if (!isBurst && numberFrom(input.value) === 0) input.value = String(FIRST_WINDOW);
    input.disabled = isBurst;
  }

  #field(name) {
    return this.#fields.get(name);
  }

  #inputs() {
    const number = (name, props = {}) =>
      h('input', { type: 'number', step: '1', min: '0', inputmode: 'numeric', name, ...props });
    const words = [number('prompt_words_from', { min: '1' }), number('prompt_words_to', { min: '1' })];
    return [
      this.#labelled('students', number('students', { min: '1' })),
      this.#labelled('seed', number('seed')),
      this.#arrivals(),
      this.#labelled('window', number('window', { step: 'any' })),
      this.#group('prompt_words', words),
      this.#labelled('shared_words', number('shared_words')),
      this.#labelled('output_tokens', h('input', { type: 'text', name: 'output_tokens', inputmode: 'text' })),
    ];
  }

  /** One input with its name before it, its problem below it, what it means on hover. */
  #labelled(name, input) {
    const { words } = this.tools;
    const problem = this.#problemOf(name, [input]);
    input.id = `classroom-${name}`;
    return h(
      'div',
      { class: 'classroom-field' },
      h(
        'label',
        { for: input.id, title: words(`classroom.field.${name}.meaning`) },
        words(`classroom.field.${name}`),
      ),
      input,
      problem,
    );
  }

  #group(name, inputs) {
    const { words } = this.tools;
    inputs.forEach((input, index) =>
      setAttribute(input, 'aria-label', words(`classroom.field.${name}.${index === 0 ? 'from' : 'to'}`)),
    );
    const label = h(
      'span',
      { class: 'classroom-label', title: words(`classroom.field.${name}.meaning`) },
      words(`classroom.field.${name}`),
    );
    const pair = h('span', { class: 'classroom-pair' }, inputs[0], '–', inputs[1]);
    return h('div', { class: 'classroom-field' }, label, pair, this.#problemOf(name, inputs));
  }

  #arrivals() {
    const { words } = this.tools;
    const inputs = ARRIVALS.map((value) => h('input', { type: 'radio', name: 'arrivals', value }));
    const choices = inputs.map((input) =>
      h(
        'label',
        { class: 'classroom-choice', title: words(`classroom.arrivals.${input.value}.meaning`) },
        input,
        h('span', {}, words(`classroom.arrivals.${input.value}`)),
      ),
    );
    const legend = h('legend', { class: 'classroom-label' }, words('classroom.field.arrivals'));
    return h(
      'fieldset',
      { class: 'classroom-field classroom-arrivals' },
      legend,
      h('span', { class: 'classroom-choices' }, ...choices),
      this.#problemOf('arrivals', inputs),
    );
  }

  #problemOf(name, inputs) {
    const problem = h('p', { class: 'classroom-problem', id: `classroom-${name}-problem`, hidden: true });
    for (const input of inputs) setAttribute(input, 'aria-describedby', problem.id);
    this.#fields.set(name, { inputs, problem });
    return problem;
  }
}
