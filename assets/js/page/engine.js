// The chosen engine: the address names it, and whoever listens to the choice hears of every change.

import { setParameter } from './address.js';

/** Gradio changes the choice without the event that a click would bring. */
export function keepEngineInAddress() {
  window.addEventListener('servescope:backend', ({ detail }) => {
    setParameter('backend', detail.name);
    requestAnimationFrame(() => {
      document.getElementById('backend-choice').dispatchEvent(new Event('change', { bubbles: true }));
    });
  });
}
