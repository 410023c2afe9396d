// The Latency panel: a row a request, a row for all, and the gap before each token as a chart.

import { h, hidden, setAttribute, setText } from '../dom.js';
import { Panel } from './panel.js';
import { count, duration, rate } from '../format.js';
import { latencyOf, summaryOf, throughput } from '../latency.js';
import { isInFlight } from '../request.js';
import { MARGIN, itlFigure, itlPoints, timeShare } from './latency_chart.js';
import { Chart } from './chart.js';
import { seatBadge } from '../tooltip.js';
import { seatLetter } from '../seats.js';

const COLUMNS = ['queue', 'ttft', 'itl_p50', 'itl_p95', 'tpot', 'e2e', 'tokens', 'rate'];
const MOST_ROWS = 60;
const TABLE_INTERVAL = 250;

export class LatencyPanel {
  #rows = new Map(); // request id → {row, cells}
  #finished = new WeakMap(); // request that will not change → its latency
  #tableAt = -Infinity;

  constructor(tools, store) {
    const { words } = tools;
    this.tools = tools;
    this.store = store;
    this.panel = new Panel('latency', tools);
    this.element = this.panel.element;
    this.panel.body.classList.add('scope-column');
    this.tbody = h('tbody');
    this.summaryRow = this.#summaryRow();
    this.table = h(
      'table',
      { class: 'scope-table' },
      h('caption', { class: 'scope-hidden' }, words('panel.latency.caption')),
      h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, hidden({}, words('panel.request'))), ...COLUMNS.map((name) => this.#heading(name)))),
      this.tbody,
      h('tfoot', {}, this.summaryRow.row),
    );
    this.chartHost = h('div', { class: 'scope-chart', role: 'img', 'aria-label': words('panel.latency.picture'), 'aria-describedby': 'panel-latency-summary' });
    this.cursor = h('div', { class: 'scope-cursor', hidden: true });
    this.chartNote = h('p', { class: 'scope-chart-note', hidden: true }, words('panel.latency.chart.failed'));
    this.panel.body.append(
      h('div', { class: 'scope-scroll', tabindex: '0', role: 'region', 'aria-label': words('panel.latency.caption') }, this.table),
      h('div', { class: 'scope-chart-frame' }, this.chartHost, this.cursor),
      this.chartNote,
    );
    this.chart = new Chart(this.chartHost, { onFail: () => this.#chartFailed() });
  }

  draw(view) {
    const { state, requests } = view;
    this.panel.setExposure(state.header);
    const isEmpty = requests.length === 0;
    this.panel.setEmpty(isEmpty ? view.emptySentence('latency') : null);
    const now = performance.now();
    if (now - this.#tableAt >= TABLE_INTERVAL) {
      this.#tableAt = now;
      this.#updateTable(view);
      this.#updateChart(view);
    } else if (!this.pending) {
      this.pending = setTimeout(() => {
        this.pending = null;
        view.redraw();
      }, TABLE_INTERVAL);
    }
    this.#light(view.lit);
    this.#showStep(view);
  }

  stop() {
    clearTimeout(this.pending);
    this.chart.stop();
  }

  #heading(name) {
    const { words, tooltip, signal } = this.tools;
    const cell = h('th', { scope: 'col', tabindex: '0' }, words(`panel.latency.${name}`));
    const show = () => {
      const { left, bottom } = cell.getBoundingClientRect();
      tooltip.show({ title: words(`panel.latency.${name}`), note: words(`panel.latency.${name}.meaning`) }, { x: left - 12, y: bottom - 6 });
    };
    for (const type of ['pointerenter', 'focus']) cell.addEventListener(type, show, { signal });
    for (const type of ['pointerleave', 'blur']) cell.addEventListener(type, () => tooltip.hide(), { signal });
    return cell;
  }

  #summaryRow() {
    const name = h('th', { scope: 'row' });
    const cells = COLUMNS.map(() => h('td'));
    return { row: h('tr', {}, name, ...cells), name, cells };
  }

  #updateTable({ requests, state }) {
    const { words } = this.tools;
    const measured = requests.map((request) => ({ request, latency: this.#latencyOf(request) }));
    const shown = inTableOrder(measured).slice(0, MOST_ROWS);
    const kept = new Set(shown.map(({ request }) => request.id));
    for (const [id, { row }] of this.#rows) {
      if (kept.has(id)) continue;
      row.remove();
      this.#rows.delete(id);
    }
    shown.forEach(({ request, latency }, index) => this.#updateRow(request, latency, index));
    const summary = summaryOf(measured);
    setText(this.summaryRow.name, words('panel.latency.median', { number: count(summary.numRequests) }));
    fill(this.summaryRow.cells, summary);
    this.#markZeroGaps(this.summaryRow.cells, summary);
    this.panel.setHeadline(state.time === null || requests.length === 0 ? '' : words('panel.latency.headline', { rate: rate(throughput(requests, state.time)) }));
    this.panel.setSummary(() => this.#inWords(summary));
  }

  #latencyOf(request) {
    const known = this.#finished.get(request);
    if (known !== undefined) return known;
    const latency = latencyOf(request);
    if (!isInFlight(request)) this.#finished.set(request, latency);
    return latency;
  }

  #updateRow(request, latency, index) {
    if (!this.#rows.has(request.id)) this.#rows.set(request.id, this.#newRow(request));
    const { row, cells } = this.#rows.get(request.id);
    setAttribute(row, 'data-status', request.finishReason ?? request.status);
    fill(cells, latency);
    this.#markZeroGaps(cells, latency);
    if (this.tbody.children[index] !== row) this.tbody.insertBefore(row, this.tbody.children[index] ?? null);
  }

  /** Tokens that came in one delivery: counted in ITL, and said. */
  #markZeroGaps(cells, { numZeroGaps }) {
    const note = numZeroGaps === 0 ? null : this.tools.words('panel.latency.zero_gaps', { number: count(numZeroGaps) });
    for (const name of ['itl_p50', 'itl_p95']) setAttribute(cells[COLUMNS.indexOf(name)], 'title', note);
  }

  #newRow(request) {
    const { words, signal } = this.tools;
    const { store } = this;
    const seat = seatLetter(request.seat);
    const button = h('button', { type: 'button', class: 'scope-pin' }, seatBadge(request.seat));
    const cells = COLUMNS.map(() => h('td'));
    const row = h('tr', {}, h('th', { scope: 'row' }, button), ...cells);
    button.addEventListener('click', () => store.togglePin(request.id), { signal });
    for (const type of ['pointerenter', 'focusin']) row.addEventListener(type, () => store.set({ pointed: request.id }), { signal });
    for (const type of ['pointerleave', 'focusout']) row.addEventListener(type, () => store.set({ pointed: null }), { signal });
    return { row, cells, button, names: { mine: words('panel.latency.pin.mine', { seat }), other: words('panel.latency.pin', { seat }) } };
  }

  #light(lit) {
    for (const [id, { row, button, names }] of this.#rows) {
      const isMine = this.store.mine.has(id);
      setAttribute(row, 'data-lit', lit === null ? null : String(id === lit));
      setAttribute(row, 'data-mine', isMine);
      setAttribute(button, 'aria-pressed', String(id === this.store.pinned));
      setAttribute(button, 'aria-label', isMine ? names.mine : names.other);
    }
  }

  /** Drawing it costs far more than the table, so only what would look different is drawn. */
  #updateChart(view) {
    const drawn = [view.state, view.state.time, view.palette, view.lit, view.requests.length];
    if (drawn.every((value, index) => value === this.drawn?.[index])) return;
    this.drawn = drawn;
    this.points = itlPoints(view.requests, view.state.time ?? 0);
    this.chart.show(itlFigure(this.points, { ...view, words: this.tools.words }));
  }

  /** The step under the pointer, over the chart. */
  #showStep({ crosshair, focusColumn, palette }) {
    const place = crosshair === null || focusColumn === null ? null : timeShare(focusColumn.step, this.points);
    this.cursor.hidden = place === null || this.chartNote.hidden === false;
    if (place === null) return;
    const left = MARGIN.l * palette.scale;
    const width = this.chartHost.clientWidth - left - MARGIN.r * palette.scale;
    this.cursor.style.transform = `translateX(${left + place * width}px)`;
  }

  #chartFailed() {
    this.chartHost.hidden = true;
    this.chartNote.hidden = false;
  }

  #inWords(summary) {
    return this.tools.words('panel.latency.summary', {
      number: count(summary.numRequests),
      ttft: duration(summary.ttft),
      itl: duration(summary.itlP50),
      itl95: duration(summary.itlP95),
      tokens: count(summary.numTokens),
    });
  }
}

/** Newest first: those that get tokens, then the finished, then those that wait. */
function inTableOrder(measured) {
  const rank = ({ request }) => (request.status === 'running' ? 0 : isInFlight(request) ? 2 : 1);
  return [...measured].reverse().sort((a, b) => rank(a) - rank(b));
}

function fill(cells, latency) {
  const texts = [
    duration(latency.queueTime),
    duration(latency.ttft),
    duration(latency.itlP50),
    duration(latency.itlP95),
    duration(latency.tpot),
    duration(latency.e2e),
    count(latency.numTokens),
    rate(latency.tokensPerSecond),
  ];
  cells.forEach((cell, index) => setText(cell, texts[index]));
}
