// What the visitor says before anything runs: a number, or one of a few answers.

import { h } from '../dom.js';

const SUFFIX = { share: '%', count: '' };

/**
 * @param {{question: string, unit: string, choices: object, least: number, most: number}} prediction
 * @param {string|null} entered before
 * @returns {{element: HTMLElement, value: string|null, lock: (on: boolean) => void}}
 */
export function predictionForm(prediction, words, entered, { onChange, onSubmit }) {
  const choices = Object.entries(prediction.choices);
  const part = choices.length > 0 ? choiceOf(prediction, choices, entered) : numberOf(prediction, words, entered);
  const form = h(
    'form',
    {
      class: 'lessons-prediction',
      oninput: onChange,
      onsubmit: (event) => {
        event.preventDefault();
        onSubmit();
      },
    },
    part.element,
  );
  return {
    element: form,
    get value() {
      return part.value();
    },
    lock(on) {
      for (const input of form.querySelectorAll('input')) input.disabled = on;
    },
  };
}

/** What was said, as the value it is compared with: a share is said in percent. */
export function asPrediction(said, { unit, choices }) {
  if (Object.keys(choices).length > 0) return said;
  return unit === 'share' ? Number(said) / 100 : Number(said);
}

function numberOf({ question, unit, least, most }, words, entered) {
  const suffix = SUFFIX[unit] ?? words(`lessons.unit.${unit}`);
  const input = h('input', {
    type: 'number',
    inputmode: 'decimal',
    step: 'any',
    min: String(least),
    max: String(most),
    value: entered,
    required: true,
    autocomplete: 'off',
    'aria-label': question,
  });
  return {
    element: h(
      'label',
      { class: 'lessons-ask' },
      h('span', { class: 'lessons-question' }, question),
      h('span', { class: 'lessons-answer' }, input, h('span', { 'aria-hidden': 'true' }, suffix)),
    ),
    value: () => (input.value !== '' && input.validity.valid ? input.value : null),
  };
}

function choiceOf({ question }, choices, entered) {
  const inputs = choices.map(([value]) =>
    h('input', { type: 'radio', name: 'lessons-choice', value, checked: value === entered }),
  );
  return {
    element: h(
      'fieldset',
      {},
      h('legend', { class: 'lessons-question' }, question),
      ...choices.map(([, sentence], place) => h('label', { class: 'lessons-choice' }, inputs[place], sentence)),
    ),
    value: () => inputs.find((input) => input.checked)?.value ?? null,
  };
}
