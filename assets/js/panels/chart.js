// A Plotly chart that changes slowly. Its script is large and comes only when first needed; without
// it the panel still has its table.

const SCRIPT = 'vendor/plotly.min.js';
const INTERVAL = 1000;
const SHARE = 20; // on a slow machine, so seldom that it holds up the other panels a twentieth of the time

let addressOfScript = async () => new URL(SCRIPT, document.baseURI).href;
let loading = null;

/** Where there is no server the script comes from elsewhere. @param {() => Promise<string>} ask */
export function takePlotlyFrom(ask) {
  addressOfScript = ask;
}

async function loadPlotly() {
  const script = document.createElement('script');
  script.src = await addressOfScript();
  return new Promise((resolve, reject) => {
    script.onload = () => (window.Plotly ? resolve(window.Plotly) : reject(new Error('no Plotly in it')));
    script.onerror = () => reject(new Error(`${SCRIPT} did not load`));
    document.head.append(script);
  });
}

export class Chart {
  #element;
  #plotly = null;
  #failed = false;
  #figure = null;
  #drawnAt = -Infinity;
  #cost = 0; // milliseconds from the last drawing until it was on the screen
  #timer = null;
  #observer;
  #stopped = false;

  /** @param {HTMLElement} element @param {{onFail: () => void}} options */
  constructor(element, { onFail }) {
    this.#element = element;
    this.#observer = new ResizeObserver(() => this.#resized());
    this.#observer.observe(element);
    this.onFail = onFail;
  }

  /** Show a figure (traces and layout), at most once a second. */
  show(figure) {
    this.#figure = figure;
    this.#load();
    this.#later();
  }

  stop() {
    this.#stopped = true;
    clearTimeout(this.#timer);
    this.#observer.disconnect();
    this.#plotly?.purge(this.#element);
  }

  #load() {
    if (this.#plotly !== null || this.#failed) return;
    this.#failed = true; // until it has loaded
    loading ??= loadPlotly();
    loading.then(
      (plotly) => {
        this.#failed = false;
        this.#plotly = plotly;
        this.#later();
      },
      () => this.onFail(),
    );
  }

  /** A chart of the wrong size is cut off: that does not wait for long. */
  #resized() {
    clearTimeout(this.#timer);
    this.#timer = null;
    this.#later(INTERVAL);
  }

  #later(pause = Math.max(INTERVAL, SHARE * this.#cost)) {
    if (this.#timer !== null || this.#plotly === null || this.#figure === null || this.#stopped) return;
    const wait = Math.max(0, this.#drawnAt + pause - performance.now());
    this.#timer = setTimeout(() => this.#draw(), wait);
  }

  #draw() {
    this.#timer = null;
    const { clientWidth: width, clientHeight: height } = this.#element;
    if (width === 0 || height === 0 || document.hidden) return;
    this.#drawnAt = performance.now();
    const layout = { ...this.#figure.layout, width, height };
    this.#plotly.react(this.#element, this.#figure.traces, layout, {
      displayModeBar: false,
      responsive: false,
    });
    requestAnimationFrame(() => setTimeout(() => (this.#cost = performance.now() - this.#drawnAt)));
  }
}
