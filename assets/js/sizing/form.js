// The calculator's fields. They hold text; `plan.js` makes a plan of it, the server says what is wrong.

import { h, setAttribute, setText } from '../dom.js';
import { CACHE_DTYPES, DTYPES } from './plan.js';

const GROUPS = {
  model: ['num_layers', 'num_attention_heads', 'num_kv_heads', 'head_dim', 'num_parameters', 'dtype'],
  card: ['total_memory', 'free_memory', 'other_memory', 'tensor_parallel_size'],
  engine: ['gpu_memory_utilization', 'max_model_len', 'max_num_seqs', 'block_size', 'kv_cache_dtype'],
};
const CHOICES = { dtype: DTYPES, kv_cache_dtype: CACHE_DTYPES };
const STEPS = {
  total_memory: '0.1',
  free_memory: '0.1',
  other_memory: '0.05',
  gpu_memory_utilization: '0.01',
  num_parameters: 'any',
};

export class Form {
  #inputs = new Map();
  #problems = new Map();

  /** @param {Function} words @param {() => void} onInput */
  constructor(words, onInput) {
    this.words = words;
    this.groups = Object.fromEntries(
      Object.entries(GROUPS).map(([group, names]) => [
        group,
        h(
          'fieldset',
          { class: 'sizing-group' },
          h('legend', {}, words(`sizing.group.${group}`)),
          h('div', { class: 'sizing-fields' }, ...names.map((name) => this.#field(name, onInput))),
        ),
      ]),
    );
  }

  get values() {
    return Object.fromEntries([...this.#inputs].map(([name, input]) => [name, input.value]));
  }

  fill(fields) {
    for (const [name, value] of Object.entries(fields)) this.#inputs.get(name).value = value;
  }

  /** Say at its field what is wrong; `null`: nothing is. Returns whether there is such a field. */
  complain(name, message) {
    for (const [field, problem] of this.#problems) {
      const isWrong = field === name;
      setText(problem, isWrong ? message : '');
      setAttribute(this.#inputs.get(field), 'aria-invalid', isWrong ? 'true' : null);
    }
    return this.#problems.has(name);
  }

  #field(name, oninput) {
    const id = `sizing-${name}`;
    const problem = h('p', { class: 'sizing-problem', id: `${id}-problem`, role: 'status' });
    const choices = CHOICES[name];
    const input =
      choices === undefined
        ? h('input', { id, type: 'number', min: '0', step: STEPS[name] ?? '1', inputmode: 'decimal', oninput })
        : h('select', { id, onchange: oninput }, ...choices.map((choice) => h('option', { value: choice }, choice)));
    input.setAttribute('aria-describedby', problem.id);
    this.#inputs.set(name, input);
    this.#problems.set(name, problem);
    const note = this.words(`sizing.note.${name}`);
    return h(
      'div',
      { class: 'sizing-field', title: note },
      h('label', { for: id }, this.words(`sizing.field.${name}`), h('code', {}, name)),
      input,
      problem,
    );
  }
}
