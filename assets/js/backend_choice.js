// The backend choice is the page's; here its options get their state, and we hear what is chosen.

import { setAttribute, setText } from './dom.js';
import { stateSentence } from './status_line.js';

/** The chosen backend, or `null` before the page has the choice. */
export function chosenBackend() {
  return document.querySelector('#backend-choice input[type="radio"]:checked')?.value ?? null;
}

/** Calls back with the name when another backend is chosen, also when the page changes it by itself. */
export function watchChoice(onChoice, signal, { tellNow }) {
  const tell = () => {
    const name = chosenBackend();
    if (name !== null) onChoice(name);
  };
  document.addEventListener('change', (event) => {
    if (event.target.closest?.('#backend-choice')) tell();
  }, { signal });
  if (tellNow) tell();
}

/** State on each option (drawn by CSS), and the reason of the chosen one in #backend-state. */
export function showStates(engines, chosen, words) {
  for (const input of document.querySelectorAll('#backend-choice input[type="radio"]')) {
    const engine = engines.get(input.value);
    const label = input.closest('label');
    setAttribute(label, 'data-state', engine?.state ?? 'idle');
    setAttribute(label, 'title', engine === undefined ? null : stateSentence(engine, words));
    setAttribute(input, 'aria-description', words(`state.${engine?.state ?? 'idle'}`));
  }
  const line = document.getElementById('backend-state');
  if (line === null) return;
  const engine = engines.get(chosen);
  setText(line, engine === undefined ? words('state.idle.sentence', { backend: chosen ?? '' }) : stateSentence(engine, words));
  setAttribute(line, 'data-state', engine?.state ?? 'idle');
}
