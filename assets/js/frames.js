// When to draw: only after a change, inside requestAnimationFrame, at most about 30 times a second for
// data and at once for a hand that points. A hidden tab gets no animation frames, so nothing is drawn.
// The interval is a little shorter than that between two frames of the feed: else what just missed a
// drawing would wait twice.

const INTERVAL = 30;

export class Frames {
  #draw;
  #handle = null;
  #timer = null;
  #drawnAt = -Infinity;

  constructor(draw) {
    this.#draw = draw;
  }

  /** Something changed: draw when the interval is over. */
  request() {
    if (this.#handle !== null || this.#timer !== null) return;
    const wait = this.#drawnAt + INTERVAL - performance.now();
    if (wait <= 0) this.soon();
    else this.#timer = setTimeout(() => this.soon(), wait);
  }

  /** Draw in the next frame. */
  soon() {
    clearTimeout(this.#timer);
    this.#timer = null;
    this.#handle ??= requestAnimationFrame(() => {
      this.#handle = null;
      this.#drawnAt = performance.now();
      this.#draw();
    });
  }

  stop() {
    clearTimeout(this.#timer);
    if (this.#handle !== null) cancelAnimationFrame(this.#handle);
    this.#timer = null;
    this.#handle = null;
  }
}
