// The way of one token: seven places, and the measured time of each hop. A light goes along it.

import { h, setText } from '../dom.js';
import { count } from '../format.js';
import { PLACES, hopsOf, totalOf } from './journey.js';

const SHOW_SECONDS = 4; // how long the light takes, however short the way was
const LEAST_SHARE = 0.04; // of that, so that the shortest hop is seen

export class JourneyCard {
  #animations = [];

  /** @param {Function} words @param {() => void} send send a request that tells its way */
  constructor(words, send) {
    this.words = words;
    this.times = new Map();
    this.notes = new Map();
    this.places = PLACES.map((place) => this.#place(place));
    this.summary = h('p', { class: 'api-quiet', id: 'api-journey-summary' }, words('api.waiting'));
    this.send = h(
      'button',
      { type: 'button', class: 'api-button', id: 'api-trace', disabled: true, onclick: send },
      words('api.journey.send'),
    );
    this.element = h(
      'section',
      { class: 'api-card api-wide', id: 'api-journey' },
      h(
        'div',
        { class: 'api-row api-spread' },
        h('h3', {}, words('api.journey')),
        this.send,
      ),
      h('ol', { class: 'api-path' }, ...this.places),
      this.summary,
    );
  }

  /** There is an engine to send a request to. */
  ready() {
    this.send.disabled = false;
    setText(this.summary, this.words('api.journey.empty'));
  }

  /** @param {{trace: object, arrival: number, first: object}} token */
  show({ trace, arrival, first }) {
    const hops = hopsOf(trace, arrival, first);
    for (const { place, seconds, note } of hops) {
      const time = seconds === null ? this.words('api.journey.unknown') : milliseconds(seconds, place);
      setText(this.times.get(place), time);
      setText(this.notes.get(place), note === null ? '' : this.words(`api.journey.note.${note}`));
    }
    const total = totalOf(trace);
    setText(
      this.summary,
      this.words('api.journey.summary', {
        index: count(trace.index),
        step: count(trace.step_id),
        total: total === null ? this.words('api.journey.unknown') : milliseconds(total),
      }),
    );
    this.#light(hops);
  }

  #place(place) {
    const time = h('span', { class: 'api-hop mono' }, '–');
    const note = h('span', { class: 'api-note' });
    this.times.set(place, time);
    this.notes.set(place, note);
    return h(
      'li',
      { 'data-place': place, title: this.words(`api.place.${place}.about`) },
      h('b', {}, this.words(`api.place.${place}`)),
      time,
      note,
    );
  }

  /** Each place is lit as long as its hop took, all of them slowed alike. */
  #light(hops) {
    for (const animation of this.#animations) animation.cancel();
    if (matchMedia('(prefers-reduced-motion: reduce)').matches) return;
    const known = hops.map(({ place, seconds }) => (place === 'screen' ? 0 : (seconds ?? 0)));
    const sum = known.reduce((total, seconds) => total + seconds, 0);
    let at = 0;
    this.#animations = this.places.map((element, index) => {
      const share = Math.max(LEAST_SHARE, sum > 0 ? known[index] / sum : 0);
      const timing = { delay: at * SHOW_SECONDS * 1000, duration: share * SHOW_SECONDS * 1000, easing: 'ease-in-out' };
      at += share;
      return element.animate(
        ['0', '3px', '0'].map((width) => ({ boxShadow: `0 0 0 ${width} var(--accent)` })),
        timing,
      );
    });
  }
}

function milliseconds(seconds, place = null) {
  const value = seconds * 1000;
  const digits = Math.abs(value) < 10 ? 2 : 1;
  const sign = value < 0 ? '−' : place === 'screen' ? '+' : '';
  return `${sign}${Math.abs(value).toFixed(digits)} ms`;
}
