// The transport: hold, step and slow the engine; go back through what it did, and return to now.

import { ControlError } from './control.js';
import { h, icon, setAttribute, setFace } from './dom.js';
import { EngineMenu } from './engine_menu.js';
import { KeyForm } from './key_form.js';
import { Scrub } from './scrub.js';
import { SpeedChoice } from './speed_choice.js';
import { StatusLine } from './status_line.js';

const STEERABLE = ['ready', 'paused'];
const OF_STEPS = ['pause', 'resume', 'step', 'speed'];

export class Transport {
  #pending = false;
  #underWay = null; // a promise
  #isWaiting = false;

  /** @param {{words: Function, signal: AbortSignal}} tools */
  constructor(tools, store, control) {
    this.tools = tools;
    this.store = store;
    this.control = control;
    const { words } = tools;
    this.pause = this.#button('pause', () => this.#send(this.#isPaused() ? 'resume' : 'pause'));
    this.step = this.#button('step', () => this.#step());
    this.speed = new SpeedChoice(tools, (delay) => this.#send('speed', { step_delay: delay }));
    this.scrub = new Scrub(tools, store);
    this.live = h(
      'button',
      { type: 'button', class: 'scope-button scope-live' },
      h('i'),
      words('transport.live'),
    );
    this.menu = new EngineMenu(tools, (action) => this.#send(action));
    this.key = new KeyForm(tools, control);
    this.status = new StatusLine(tools);
    this.element = h(
      'section',
      { id: `${tools.prefix}transport`, class: 'scope-transport', 'aria-label': words('transport.title') },
      h(
        'div',
        { class: 'scope-controls' },
        this.pause,
        this.step,
        this.speed.element,
        this.scrub.slider,
        this.scrub.position,
        this.live,
        this.menu.element,
      ),
      this.status.element,
      this.key.element,
    );
    const { signal } = tools;
    this.live.addEventListener('click', () => store.goLive(), { signal });
  }

  draw(view) {
    const { store } = this;
    const { words } = this.tools;
    const isPaused = this.#isPaused();
    this.#face(this.pause, isPaused ? 'resume' : 'pause');
    this.#offer(this.pause, isPaused ? 'resume' : 'pause', null);
    this.#offer(this.step, 'step', isPaused ? null : words('transport.step.needs_pause'));
    this.#offer(this.speed.element, 'speed', null);
    this.speed.show(store.engines.get(store.backend)?.step_delay ?? 0);
    const recorded = { backend: store.backend, header: store.history.live.header };
    this.menu.draw((action) => this.#unavailable(action), this.#pending, recorded);
    this.scrub.draw(view);
    setAttribute(this.live, 'data-live', String(store.isLive));
    setAttribute(this.live, 'aria-pressed', String(store.isLive));
    this.status.draw(view, store);
  }

  #isPaused() {
    return this.store.engines.get(this.store.backend)?.state === 'paused';
  }

  #button(name, onClick) {
    const face = h('span');
    const button = h(
      'button',
      { type: 'button', class: 'scope-button', 'data-action': name },
      icon(name),
      face,
    );
    button.addEventListener('click', onClick, { signal: this.tools.signal });
    this.#face(button, name);
    return button;
  }

  #face(button, name) {
    setFace(button, name, this.tools.words(`transport.${name}`));
  }

  /** Enabled, or disabled with the reason. A call under way disables nothing: that would take the focus. */
  #offer(control, action, reason) {
    const why = this.#unavailable(action) ?? this.#notReady() ?? reason;
    setAttribute(control, 'disabled', why !== null);
    setAttribute(control, 'title', why ?? this.tools.words(`transport.${action}.hint`));
  }

  /** Why an action cannot be had whatever the engine's state; a worker that is gone can be restarted. */
  #unavailable(action) {
    const { words } = this.tools;
    const { backend, connection, controls } = this.store;
    if (connection.phase !== 'open') return words('transport.no_connection');
    const note = this.store.history.live.header?.notes?.transport; // known once the engine runs
    if (note !== undefined && OF_STEPS.includes(action)) return note;
    const has = controls.get(backend)?.includes(action) ?? true; // until told otherwise the server decides
    return has ? null : words('transport.no_control', { backend: this.store.titleOf(backend) });
  }

  #notReady() {
    const { words } = this.tools;
    const { backend, engines } = this.store;
    const state = engines.get(backend)?.state ?? 'idle';
    return STEERABLE.includes(state)
      ? null
      : words('transport.not_ready', {
          backend: this.store.titleOf(backend),
          state: words(`state.${state}`),
        });
  }

  async #step() {
    this.store.goLive();
    await this.#send('step');
  }

  /** While one call is under way, one more waits for it. */
  async #send(action, body) {
    if (this.#isWaiting) return;
    this.#isWaiting = true;
    await Promise.allSettled([this.#underWay]);
    this.#isWaiting = false;
    this.#underWay = this.#ask(action, body);
    await this.#underWay;
  }

  async #ask(action, body) {
    const { store } = this;
    this.#pending = true;
    this.status.say(null);
    store.notify();
    try {
      await this.control.send(store.backend, action, body);
      this.key.close();
    } catch (error) {
      if (!(error instanceof ControlError)) throw error;
      this.#refused(error, () => this.#send(action, body));
    } finally {
      this.#pending = false;
      store.notify();
    }
  }

  #refused(error, again) {
    const { words } = this.tools;
    if (error.status === 401) this.key.ask(again);
    const known = {
      0: 'transport.error.unreachable',
      401: 'transport.error.key',
      409: 'transport.error.nothing_to_step',
    };
    const key = known[error.status];
    this.status.say(
      key === undefined ? words('transport.error.refused', { message: error.message }) : words(key),
    );
  }
}
