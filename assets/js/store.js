// What the panels share: the history, where in it we look, and what is pointed at.

import { History } from './history.js';
import { isInFlight } from './request.js';

const HOW_TO_BEGIN = {
  starting: 'starting',
  restarting: 'starting',
  crashed: 'starting',
  unavailable: 'unavailable',
};

export class Store {
  #listeners = new Set();

  backend = null; // whose history it is
  history = new History();
  position = null; // ordinal of the step looked at; null: live
  pinned = null; // request id that a click keeps lit
  pointed = null; // request id under the pointer or the focus
  crosshair = null; // ordinal of the step under the pointer
  mine = new Set(); // ids of this visitor's own chat requests
  lastMine = null;
  clearedTime = null; // requests that finished until then are not shown
  engines = new Map(); // backend → its last `state` record
  titles = new Map(); // backend → what it is called, once the server has told
  controls = new Map(); // backend → names of the controls it has, once the server has told
  connection = { phase: 'connecting' };
  waitingForStep = null; // step id of a deep link, until that step is there

  /** @returns {() => void} stop listening */
  subscribe(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Change what changed; listeners hear of it only if something did. */
  set(changes) {
    let changed = false;
    for (const [name, value] of Object.entries(changes)) {
      if (this[name] === value) continue;
      this[name] = value;
      changed = true;
    }
    if (changed) this.notify();
  }

  notify() {
    for (const listener of this.#listeners) listener();
  }

  titleOf(backend) {
    return this.titles.get(backend) ?? backend ?? '';
  }

  /** What has to happen before there is something to see: the last part of a word's key. */
  get beginning() {
    return HOW_TO_BEGIN[this.engines.get(this.backend)?.state] ?? 'send';
  }

  get isLive() {
    return this.position === null;
  }

  /** The request lit up everywhere: what is pointed at, else what is pinned. */
  get lit() {
    return this.pointed ?? this.pinned;
  }

  /** Ordinal of the step shown; −1 before there is one. */
  get shown() {
    return this.position ?? this.history.last;
  }

  /** The state at the step shown. */
  get state() {
    return this.isLive ? this.history.live : this.history.seek(this.position);
  }

  /** Look at a step; the latest one means live. */
  lookAt(ordinal) {
    const { first, last } = this.history;
    const place = Math.max(first, Math.min(ordinal, last));
    this.set({ position: place >= last ? null : place, waitingForStep: null });
  }

  goLive() {
    this.set({ position: null, waitingForStep: null });
  }

  /** Click: keep it lit, or let go. */
  togglePin(id) {
    this.set({ pinned: this.pinned === id ? null : id });
  }

  /** Records of the shown backend came. */
  add(records) {
    for (const record of records) {
      if (record.type === 'state') this.engines.set(record.backend, record);
      if (record.type !== 'state' || record.backend === this.backend) this.history.push(record);
    }
    if (this.position !== null && this.position < this.history.first) this.position = this.history.first;
    this.notify();
  }

  /** Requests to show, in order of arrival: those not cleared away. */
  *requests(state = this.state) {
    for (const request of state.requests.values()) {
      if (isInFlight(request) || this.clearedTime === null || request.finishedTime > this.clearedTime)
        yield request;
    }
  }

  /**
   * The request a panel about one request shows: lit, else one's own once it has
   * been in a step, else the oldest in flight, else the last.
   */
  chosen(state = this.state) {
    const lit = state.requests.get(this.lit);
    if (lit !== undefined) return lit;
    const mine = state.requests.get(this.lastMine);
    if (mine !== undefined && mine.numSteps > 0) return mine;
    let chosen = null;
    for (const request of this.requests(state)) {
      if (request.numSteps === 0) continue;
      if (isInFlight(request)) return request; // the oldest in flight, so that it stays a while
      chosen = request;
    }
    return chosen;
  }
}
