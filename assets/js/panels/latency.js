// The Latency panel: a table, and the gap before each token as a chart.

import { Chart } from './chart.js';
import { LatencyTable, gapNote } from './latency_table.js';
import { MARGIN, itlFigure, itlPoints, timeShare } from './latency_chart.js';
import { Panel } from './panel.js';
import { count, duration, rate } from '../format.js';
import { explain } from '../tooltip.js';
import { h, setText } from '../dom.js';
import { throughput } from '../latency.js';

const TABLE_INTERVAL = 250; // numbers that change more often cannot be read

export class LatencyPanel {
  #tableAt = -Infinity;
  #pending = null;
  #drawn = [];
  #points = null;

  constructor(tools, store) {
    this.tools = tools;
    this.panel = new Panel('latency', tools);
    this.element = this.panel.element;
    this.table = new LatencyTable(tools, store);
    this.#addChart();
    this.gaps = h('p', { class: 'scope-gaps', hidden: true });
    this.panel.footer.append(this.gaps);
    this.#explainHeadline();
  }

  draw(view) {
    this.panel.setExposure(view.state.header);
    this.panel.setEmpty(view.requests.length === 0 ? view.emptySentence('latency') : null);
    const wait = this.#tableAt + TABLE_INTERVAL - performance.now();
    if (wait <= 0) this.#update(view);
    else this.#pending ??= setTimeout(() => this.#updateLater(view), wait);
    this.table.light(view.lit);
    this.#showStep(view);
  }

  stop() {
    clearTimeout(this.#pending);
    this.chart.stop();
  }

  #addChart() {
    const { words } = this.tools;
    this.chartHost = h('div', {
      class: 'scope-chart',
      role: 'img',
      'aria-label': words('panel.latency.picture'),
      'aria-describedby': this.panel.summaryId,
    });
    this.cursor = h('div', { class: 'scope-cursor', hidden: true });
    this.chartNote = h('p', { class: 'scope-chart-note', hidden: true }, words('panel.latency.chart.failed'));
    this.panel.body.classList.add('scope-column');
    this.panel.body.append(
      this.table.element,
      h('div', { class: 'scope-chart-frame' }, this.chartHost, this.cursor),
      this.chartNote,
    );
    this.chart = new Chart(this.chartHost, { onFail: () => this.#chartFailed() });
  }

  #explainHeadline() {
    const { headline } = this.panel;
    const note = this.tools.words('panel.latency.headline.meaning');
    explain(headline, () => ({ title: headline.textContent, note }), this.tools);
  }

  #updateLater(view) {
    this.#pending = null;
    view.redraw();
  }

  #update(view) {
    this.#tableAt = performance.now();
    const { requests, state } = view;
    const summary = this.table.update(requests);
    const perSecond = requests.length === 0 ? null : throughput(requests, state.time);
    this.panel.setHeadline(
      perSecond === null ? '' : this.tools.words('panel.latency.headline', { rate: rate(perSecond) }),
    );
    const note = gapNote(summary, this.tools.words);
    this.gaps.hidden = note === null;
    setText(this.gaps, note ?? '');
    this.panel.setSummary(() => this.#inWords(summary));
    this.#updateChart(view);
  }

  /** Drawing it costs far more than the table, so only what would look different is drawn. */
  #updateChart(view) {
    const { clientHeight: height } = this.chartHost;
    const { state, palette, lit, moment, requests } = view;
    const drawn = [state, state.time, palette, lit, moment, requests.length, height];
    if (drawn.every((value, index) => value === this.#drawn[index])) return;
    this.#drawn = drawn;
    this.#points = itlPoints(requests, state.time ?? 0);
    this.chart.show(itlFigure(this.#points, { palette, lit, moment, height, words: this.tools.words }));
  }

  /** The step under the pointer, over the chart. */
  #showStep({ crosshair, focusColumn, palette }) {
    const isPointed = crosshair !== null && focusColumn !== null && this.#points !== null;
    const place = isPointed ? timeShare(focusColumn.step, this.#points) : null;
    this.cursor.hidden = place === null || this.chartHost.hidden;
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
