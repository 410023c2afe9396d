// A canvas that is as sharp as the screen and as large as its place, and says what it shows.

export class Picture {
  width = 0;
  height = 0;
  numSizes = 0; // times it was measured, and so emptied

  #context;
  #observer;

  /**
   * @param {HTMLElement} host is filled by the canvas
   * @param {{label: string, describedBy: string, onResize: () => void}} options
   */
  constructor(host, { label, describedBy, onResize }) {
    this.canvas = document.createElement('canvas');
    this.canvas.className = 'scope-canvas';
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute('role', 'img');
    this.canvas.setAttribute('aria-label', label);
    this.canvas.setAttribute('aria-describedby', describedBy);
    host.append(this.canvas);
    this.#context = this.canvas.getContext('2d');
    this.#observer = new ResizeObserver(() => {
      this.#measure(host);
      onResize();
    });
    this.#observer.observe(host);
  }

  /** False while there is nothing to draw on: a hidden tab, a folded panel. */
  get isVisible() {
    return this.width > 0 && this.height > 0;
  }

  /** A cleared context in CSS pixels. */
  begin() {
    const ratio = this.canvas.width / this.width;
    this.#context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.#context.clearRect(0, 0, this.width, this.height);
    return this.#context;
  }

  stop() {
    this.#observer.disconnect();
  }

  #measure(host) {
    const ratio = window.devicePixelRatio || 1;
    this.numSizes += 1;
    this.width = host.clientWidth;
    this.height = host.clientHeight;
    this.canvas.width = Math.max(1, Math.round(this.width * ratio));
    this.canvas.height = Math.max(1, Math.round(this.height * ratio));
  }
}
