// Asking for the instructor key, only once the server has asked for it.

import { h } from './dom.js';

export class KeyForm {
  #again = null;

  constructor({ words, signal }, control) {
    this.input = h('input', {
      type: 'password',
      class: 'scope-input',
      autocomplete: 'off',
      required: true,
      'aria-label': words('transport.key'),
      placeholder: words('transport.key'),
    });
    const cancel = h('button', { type: 'button', class: 'scope-button' }, words('transport.key.cancel'));
    this.element = h(
      'form',
      { class: 'scope-key', hidden: true },
      h('span', {}, words('transport.key.why')),
      this.input,
      h('button', { type: 'submit', class: 'scope-button scope-primary' }, words('transport.key.use')),
      cancel,
    );
    this.element.addEventListener(
      'submit',
      (event) => {
        event.preventDefault();
        control.setKey(this.input.value);
        const again = this.#again;
        this.close();
        again?.();
      },
      { signal },
    );
    cancel.addEventListener('click', () => this.close(), { signal });
  }

  /** @param {() => void} again what to do once there is a key */
  ask(again) {
    this.#again = again;
    this.element.hidden = false;
    this.input.value = '';
    this.input.focus();
  }

  close() {
    this.#again = null;
    this.element.hidden = true;
  }
}
