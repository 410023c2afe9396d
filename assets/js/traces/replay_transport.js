// The transport of a recording: play with the true gaps, hold, go step by step, scrub.

import { SPEEDS } from './player.js';
import { Scrub } from '../scrub.js';
import { duration } from '../format.js';
import { h, icon, setAttribute, setFace, setText } from '../dom.js';
import { stateSentence } from '../status_line.js';

export class ReplayTransport {
  /** @param {{words: Function, signal: AbortSignal, prefix: string}} tools */
  constructor(tools, store, player) {
    this.tools = tools;
    this.store = store;
    this.player = player;
    const { words } = tools;
    this.play = this.#button('play', 'resume', () => player.toggle());
    this.play.append(h('span'));
    this.back = this.#button('back', 'back', () => player.stepBy(-1));
    this.next = this.#button('next', 'step', () => player.stepBy(1));
    this.scrub = new Scrub(tools, store);
    this.speed = this.#speedChoice();
    this.dot = h('i', { class: 'scope-dot' });
    this.state = h('span', { class: 'scope-status-text' });
    this.time = h('span', { class: 'scope-facts' });
    this.element = h(
      'section',
      { id: `${tools.prefix}transport`, class: 'scope-transport', 'aria-label': words('traces.transport') },
      h(
        'div',
        { class: 'scope-controls' },
        this.play,
        this.back,
        this.next,
        this.speed,
        this.scrub.slider,
        this.scrub.position,
      ),
      h('div', { class: 'scope-status' }, this.dot, this.state, this.time),
    );
  }

  draw(view) {
    const { store, player } = this;
    const { words } = this.tools;
    if (player.isPlaying) setFace(this.play, 'pause', words('traces.pause'));
    else setFace(this.play, 'resume', words('traces.play'));
    setAttribute(this.back, 'disabled', store.history.isEmpty || store.shown <= store.history.first);
    setAttribute(this.next, 'disabled', store.history.isEmpty || store.shown >= store.history.last);
    this.speed.value = String(player.speed);
    this.scrub.draw(view);
    const { engine } = view.state;
    setAttribute(this.dot, 'data-state', engine?.state ?? 'idle');
    setText(this.state, engine === null ? '' : stateSentence(engine, store.titleOf(store.backend), words));
    const { start, end } = store.timeline;
    setText(
      this.time,
      words('traces.time', { now: duration(store.time - start), all: duration(end - start) }),
    );
  }

  #button(name, face, onClick) {
    const label = this.tools.words(`traces.${name}.hint`);
    const button = h(
      'button',
      { type: 'button', class: 'scope-button', 'data-action': name, title: label, 'aria-label': label },
      icon(face),
    );
    button.addEventListener('click', onClick, { signal: this.tools.signal });
    return button;
  }

  #speedChoice() {
    const { words, signal } = this.tools;
    const choice = h(
      'select',
      { class: 'scope-select', 'aria-label': words('traces.speed'), 'data-action': 'speed' },
      ...SPEEDS.map((speed) => h('option', { value: String(speed) }, words('traces.speed.times', { speed }))),
    );
    choice.addEventListener('change', () => this.player.setSpeed(Number(choice.value)), { signal });
    return choice;
  }
}
