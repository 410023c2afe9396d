// Plays a recording with its true gaps: so many seconds of it in each second of ours.

export const SPEEDS = [0.25, 0.5, 1, 2, 4, 8, 16];

export class Player {
  isPlaying = false;
  speed = 1;

  #clock;
  #frame = null;
  #last = 0; // milliseconds on our clock, when the moment shown was reached

  /**
   * @param {object} store a ReplayStore; whoever else moves it is followed from there
   * @param {{now: () => number, request: (act: () => void) => number, cancel: (handle: number) => void}} clock
   */
  constructor(store, clock = windowClock()) {
    this.store = store;
    this.#clock = clock;
  }

  /** From the moment shown; from the beginning where nothing is left. */
  play() {
    if (this.isPlaying) return;
    const { store } = this;
    if (store.isAtEnd) store.lookAtTime(store.timeline.begins ?? store.timeline.start);
    this.isPlaying = true;
    this.#last = this.#clock.now();
    this.#next();
    store.notify();
  }

  pause() {
    if (!this.isPlaying) return;
    this.isPlaying = false;
    this.#clock.cancel(this.#frame);
    this.store.notify();
  }

  toggle() {
    if (this.isPlaying) this.pause();
    else this.play();
  }

  setSpeed(speed) {
    this.speed = speed;
    this.store.notify();
  }

  /** Hold, and look at the step so many further. */
  stepBy(count) {
    this.pause();
    this.store.lookAt(this.store.shown + count);
  }

  #next() {
    this.#frame = this.#clock.request(() => this.#tick());
  }

  #tick() {
    const now = this.#clock.now();
    const passed = ((now - this.#last) / 1000) * this.speed;
    this.#last = now;
    this.store.lookAtTime(this.store.time + passed);
    if (this.store.isAtEnd) this.pause();
    else this.#next();
  }
}

const windowClock = () => ({
  now: () => performance.now(),
  request: (act) => requestAnimationFrame(act),
  cancel: (handle) => cancelAnimationFrame(handle),
});
