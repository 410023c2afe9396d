// The table of the Latency panel: a row a request, and one for all of them.

import { briefDuration, count, rate } from '../format.js';
import { explain, seatBadge } from '../tooltip.js';
import { h, hidden, setAttribute, setText } from '../dom.js';
import { heading } from './panel.js';
import { isInFlight } from '../request.js';
import { latencyOf, summaryOf } from '../latency.js';
import { seatLetter } from '../seats.js';

const MOST_ROWS = 60;

/** Column → what stands in it. */
const COLUMNS = {
  queue: ({ queueTime }) => briefDuration(queueTime),
  ttft: ({ ttft }) => briefDuration(ttft),
  itl_p50: ({ itlP50 }) => briefDuration(itlP50),
  itl_p95: ({ itlP95 }) => briefDuration(itlP95),
  tpot: ({ tpot }) => briefDuration(tpot),
  e2e: ({ e2e }) => briefDuration(e2e),
  tokens: ({ numTokens }) => count(numTokens),
  rate: ({ tokensPerSecond }) => rate(tokensPerSecond),
};
const NAMES = Object.keys(COLUMNS);

export class LatencyTable {
  #rows = new Map(); // request id → {row, cells, button, seat}
  #idOf = new WeakMap(); // row → request id
  #ended = new WeakMap(); // request that will not change → its latency

  constructor(tools, store) {
    this.tools = tools;
    this.store = store;
    this.body = h('tbody');
    this.all = this.#rowOfAll();
    this.element = this.#scrolling(
      h('caption', { class: 'scope-hidden' }, tools.words('panel.latency.caption')),
      h('thead', {}, this.#headings()),
      this.body,
      h('tfoot', {}, this.all.row),
    );
    this.#listen();
  }

  /** Show these requests. @returns {object} the summary of all of them */
  update(requests) {
    const measured = requests.map((request) => ({ request, latency: this.#latencyOf(request) }));
    const shown = inTableOrder(measured).slice(0, MOST_ROWS);
    this.#dropAllBut(new Set(shown.map(({ request }) => request.id)));
    shown.forEach(({ request, latency }, index) => this.#updateRow(request, latency, index));
    const summary = summaryOf(measured);
    setText(this.all.name, this.tools.words('panel.latency.median', { number: count(summary.numRequests) }));
    this.#fill(this.all.cells, summary);
    return summary;
  }

  /** Light one request up, and show which are pinned and whose they are. */
  light(lit) {
    const { words } = this.tools;
    for (const [id, { row, button, seat }] of this.#rows) {
      const isMine = this.store.mine.has(id);
      setAttribute(row, 'data-lit', lit === null ? null : String(id === lit));
      setAttribute(row, 'data-mine', isMine);
      setAttribute(button, 'aria-pressed', String(id === this.store.pinned));
      setAttribute(
        button,
        'aria-label',
        words(isMine ? 'panel.latency.pin.mine' : 'panel.latency.pin', { seat }),
      );
    }
  }

  #scrolling(...parts) {
    const name = this.tools.words('panel.latency.caption');
    const table = h('table', { class: 'scope-table' }, ...parts);
    return h('div', { class: 'scope-scroll', tabindex: '0', role: 'region', 'aria-label': name }, table);
  }

  #headings() {
    const seat = h('th', { scope: 'col' }, hidden({}, this.tools.words('panel.request')));
    return h('tr', {}, seat, ...NAMES.map((name) => heading(`panel.latency.${name}`, this.tools)));
  }

  #rowOfAll() {
    const name = h('th', { scope: 'row', tabindex: '0' });
    const note = this.tools.words('panel.latency.median.meaning');
    explain(name, () => ({ title: name.textContent, note }), this.tools);
    const cells = NAMES.map(() => h('td'));
    return { row: h('tr', {}, name, ...cells), name, cells };
  }

  /** One listener for all rows: they come and go by the thousand. */
  #listen() {
    const { store } = this;
    const { signal } = this.tools;
    const idAt = (event) => this.#idOf.get(event.target.closest('tr')) ?? null;
    const point = (event) => store.set({ pointed: idAt(event) });
    const leave = () => store.set({ pointed: null });
    const pin = (event) => {
      if (event.target.closest('button') !== null) store.togglePin(idAt(event));
    };
    for (const type of ['pointerover', 'focusin']) this.body.addEventListener(type, point, { signal });
    for (const type of ['pointerleave', 'focusout']) this.body.addEventListener(type, leave, { signal });
    this.body.addEventListener('click', pin, { signal });
  }

  #latencyOf(request) {
    const known = this.#ended.get(request);
    if (known !== undefined) return known;
    const latency = latencyOf(request);
    if (!isInFlight(request)) this.#ended.set(request, latency);
    return latency;
  }

  #dropAllBut(ids) {
    for (const [id, { row }] of this.#rows) {
      if (ids.has(id)) continue;
      row.remove();
      this.#rows.delete(id);
    }
  }

  #updateRow(request, latency, index) {
    if (!this.#rows.has(request.id)) this.#rows.set(request.id, this.#newRow(request));
    const { row, cells } = this.#rows.get(request.id);
    setAttribute(row, 'data-status', request.finishReason ?? request.status);
    this.#fill(cells, latency);
    const there = this.body.children[index] ?? null;
    if (there !== row) this.body.insertBefore(row, there);
  }

  #newRow(request) {
    const button = h('button', { type: 'button', class: 'scope-pin' }, seatBadge(request.seat));
    const cells = NAMES.map(() => h('td'));
    const row = h('tr', {}, h('th', { scope: 'row' }, button), ...cells);
    this.#idOf.set(row, request.id);
    return { row, cells, button, seat: seatLetter(request.seat) };
  }

  #fill(cells, latency) {
    NAMES.forEach((name, index) => setText(cells[index], COLUMNS[name](latency)));
    const note = gapNote(latency, this.tools.words);
    for (const name of ['itl_p50', 'itl_p95']) {
      const cell = cells[NAMES.indexOf(name)];
      setAttribute(cell, 'title', note);
      setAttribute(cell, 'data-mark', latency.numZeroGaps > 0 ? '∘' : latency.hasChunks ? '*' : null);
    }
  }
}

/** What must be known of gaps before one trusts their percentiles; `null`: nothing. */
export function gapNote({ numZeroGaps, numGaps, hasChunks }, words) {
  const zeros =
    numZeroGaps > 0 && `∘ ${words('panel.latency.zero_gaps', { number: count(numZeroGaps), gaps: count(numGaps) })}`;
  const chunks = hasChunks && `* ${words('panel.latency.chunks')}`;
  return [zeros, chunks].filter(Boolean).join(' ') || null;
}

/** Newest first: those that get tokens, then the finished, then those that wait. */
function inTableOrder(measured) {
  const rank = ({ request }) => (request.status === 'running' ? 0 : isInFlight(request) ? 2 : 1);
  return [...measured].reverse().sort((a, b) => rank(a) - rank(b));
}
