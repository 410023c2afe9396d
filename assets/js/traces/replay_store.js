// A store whose history is a recording: all of it is there, and what is looked at is a moment in it.

import { Store } from '../store.js';
import { Timeline } from './timeline.js';

export class ReplayStore extends Store {
  timeline = new Timeline();
  time = 0; // of the moment shown
  until = Infinity; // nothing that came later is shown; Infinity: all that came before the next step
  position = -1; // a recording is never live
  beginning = 'recording';
  connection = { phase: 'open' };

  /** Records in order, the header first. Nobody is told: `lookAt` comes when all are there. */
  add(records) {
    for (const record of records) {
      if (record.type === 'header') this.backend ??= record.backend;
      this.timeline.add(record);
      this.history.push(record);
    }
  }

  get header() {
    return this.history.live.header;
  }

  get state() {
    return this.history.seek(this.position, this.until);
  }

  get isLive() {
    return false;
  }

  get isAtEnd() {
    return this.until === Infinity && this.position >= this.history.last;
  }

  /** A step, and all that came before the next one. */
  lookAt(ordinal) {
    const { first, last } = this.history;
    const position = Math.max(first, Math.min(ordinal, last));
    this.time = position >= last ? this.timeline.end : this.timeline.timeOf(position);
    this.set({ position: Math.min(position, last), until: Infinity });
  }

  /** The end. */
  goLive() {
    this.lookAt(this.history.last);
  }

  /** A moment on the engine's clock. */
  lookAtTime(time) {
    if (time >= this.timeline.end) {
      this.goLive();
      return;
    }
    this.time = Math.max(time, this.timeline.start);
    this.set({ position: this.timeline.ordinalAt(this.time), until: this.time });
  }
}
