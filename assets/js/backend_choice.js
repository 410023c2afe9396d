// The backend choice is the page's; here its options get their state, and we hear what is chosen.

import { percent } from './format.js';
import { setAttribute, setText } from './dom.js';
import { stateSentence } from './status_line.js';

/** The chosen backend, or `null` before the page has the choice. */
export function chosenBackend() {
  return document.querySelector('#backend-choice input[type="radio"]:checked')?.value ?? null;
}

/** Is there such a backend to choose? */
export function hasOption(name) {
  return [...document.querySelectorAll('#backend-choice input[type="radio"]')].some(
    (input) => input.value === name,
  );
}

/**
 * Calls back with the name when another backend is chosen, by a person or by the page itself. The
 * choice comes with the page's components, after this script, and may be drawn anew.
 */
export function watchChoice(onChoice) {
  let known = null;
  const look = () => {
    const name = chosenBackend();
    if (name === null || name === known) return;
    known = name;
    onChoice(name);
  };
  document.addEventListener('change', look);
  const changes = { childList: true, subtree: true, attributes: true, attributeFilter: ['class'] };
  new MutationObserver(look).observe(document.documentElement, changes);
  look();
}

/** State on each option (drawn by CSS), and in #backend-state why the chosen one does not answer. */
export function showStates(store, words) {
  const { engines, backend: chosen } = store;
  for (const input of document.querySelectorAll('#backend-choice input[type="radio"]')) {
    const engine = engines.get(input.value);
    const label = input.closest('label');
    setAttribute(label, 'data-state', engine?.state ?? 'idle');
    setAttribute(label, 'title', engine === undefined ? null : stateSentence(engine, store.titleOf(input.value), words));
    setAttribute(input, 'aria-description', words(`state.${engine?.state ?? 'idle'}`));
  }
  const line = document.getElementById('backend-state');
  if (line === null) return;
  const engine = engines.get(chosen);
  const isUp = engine === undefined || ['ready', 'paused'].includes(engine.state);
  const progress = engine?.progress ?? null;
  const share = progress === null ? '' : ` · ${percent(progress)}`;
  setText(line, isUp ? '' : `${stateSentence(engine, store.titleOf(chosen), words)}${share}`);
  setAttribute(line, 'data-state', engine?.state ?? 'idle');
}
