// When each step of a recording happened, on the engine's own clock. Pure.

import { timeOf } from '../reducer.js';

export class Timeline {
  start = null; // where the records begin
  end = null; // the latest moment that any of them tells of
  begins = null; // of the first that an engine had something to do: what comes before is waiting

  #clock = []; // of each step: the latest moment told of up to it, so that it never goes back

  /** Records in order, the header first. */
  add(record) {
    const time = timeOf(record);
    if (this.end === null || record.type === 'snapshot') this.start = this.end = time;
    else if (time > this.end) this.end = time;
    if (record.type === 'step') this.#clock.push(this.end);
    if (['arrived', 'step', 'snapshot'].includes(record.type)) this.begins ??= Math.max(this.start, time);
  }

  get numSteps() {
    return this.#clock.length;
  }

  /** When a step was there; before the first one, where the recording begins. */
  timeOf(ordinal) {
    return this.#clock[ordinal] ?? (ordinal < 0 ? this.start : this.end);
  }

  /** Ordinal of the last step that was there at that time; −1 before the first. */
  ordinalAt(time) {
    let low = 0;
    let high = this.#clock.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#clock[middle] <= time) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }
}
