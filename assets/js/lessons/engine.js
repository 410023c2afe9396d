// On which engine an experiment runs, where the lesson leaves a choice.

import { h } from '../dom.js';

/** @param {{name: string, title: string}[]} choice the usual one first; none or one is no choice */
export function engineForm(choice, words) {
  if (choice.length < 2) return { element: null, value: null, lock() {} };
  const inputs = choice.map(({ name }, place) =>
    h('input', { type: 'radio', name: 'lessons-engine', value: name, checked: place === 0 }),
  );
  const element = h(
    'fieldset',
    { class: 'lessons-engines' },
    h('legend', {}, words('lessons.engine')),
    ...choice.map(({ title }, place) => h('label', { class: 'lessons-choice' }, inputs[place], title)),
  );
  return {
    element,
    get value() {
      return inputs.find((input) => input.checked).value;
    },
    lock(on) {
      for (const input of inputs) input.disabled = on;
    },
  };
}
