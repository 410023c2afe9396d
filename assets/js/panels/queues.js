// The Queues panel: incoming → waiting → running → finished, each queue by its name, and a timeline.

import { h, setAttribute, setText } from '../dom.js';
import { Panel, legend } from './panel.js';
import { AXIS, LEFT, RIGHT, drawTimeline } from './timeline_picture.js';
import { bindPointing } from './pointing.js';
import { count, duration } from '../format.js';
import { isInFlight, isWaiting } from '../request.js';
import { hidesSteps, latestGauges, sumOf } from '../gauges.js';
import { latencyOf } from '../latency.js';
import { layoutTimeline } from './timeline_layout.js';
import { seatLetter } from '../seats.js';
import { ServerTable } from './server_table.js';

const LEGEND = ['queued', 'sent', 'prefill', 'decode', 'preempted', 'first'];
const IF_STEPS_ARE_SEEN = { queued: true, sent: false, prefill: true, preempted: true };

/** Calls that wait for the one before them to end: arrived, and not yet in the engine's own queue. */
const BLOCKING = 'blocking_calls';

export class QueuesPanel {
  #layout = null;
  #place = null;
  #queueChips = new Map();

  constructor(tools, store, onResize) {
    const { words, signal } = tools;
    this.tools = tools;
    this.store = store;
    this.panel = new Panel('queues', tools);
    this.element = this.panel.element;
    this.panel.body.classList.add('scope-column');
    this.stages = Object.fromEntries(
      ['incoming', 'waiting', 'running', 'finished'].map((name) => [name, h('b')]),
    );
    this.queues = h('div', { class: 'scope-queues' });
    const host = h('div', { class: 'scope-body' });
    this.servers = new ServerTable(tools, ['running', 'waiting']);
    this.panel.body.append(this.#flow(), this.servers.element, this.queues, host);
    this.picture = this.panel.picture(host, onResize);
    this.clear = h('button', { type: 'button', class: 'scope-link' }, words('panel.queues.clear'));
    this.clear.addEventListener('click', () => store.set({ clearedTime: store.history.live.time }), {
      signal,
    });
    this.hiddenCount = h('span', { class: 'scope-more', hidden: true });
    this.panel.actions.append(this.clear);
    this.queues.append(this.hiddenCount);
    this.legend = LEGEND.map((kind) => legend(kind, words(`panel.queues.legend.${kind}`)));
    this.panel.footer.append(h('div', { class: 'scope-legends' }, ...this.legend));
    bindPointing(this.picture.canvas, {
      tools,
      store,
      find: (x, y) => this.#find(x, y),
      neighbour: (id, by) => this.#neighbour(id, by),
      detailsOf: (id) => this.#detailsOf(id),
    });
  }

  draw(view) {
    const { state, requests } = view;
    this.panel.setExposure(state.header);
    const told = hidesSteps(state.header) ? latestGauges(state) : []; // steps tell more
    const isEmpty = requests.length === 0 && state.totals.requests_finished === 0 && told.length === 0;
    this.panel.setEmpty(isEmpty ? this.#emptySentence(view) : null);
    const { numWaiting, numRunning } = numbersOf(view, told);
    this.panel.setHeadline(isEmpty ? '' : this.#headline(view, numWaiting, numRunning));
    this.#updateFlow(state, numWaiting, numRunning);
    this.servers.update(told);
    this.#updateLegend(state.header);
    this.clear.hidden = requests.every(isInFlight);
    if (this.picture.isVisible && !isEmpty) this.#drawPicture(view);
    this.panel.setSummary(() => this.#inWords(view, numWaiting, numRunning));
  }

  stop() {
    this.picture.stop();
  }

  #emptySentence(view) {
    const { header } = view.state;
    if (header?.measured.queues !== 'not_exposed') return view.emptySentence('queues');
    return header.notes?.queues ?? this.tools.words('panel.queues.not_exposed');
  }

  #headline({ state, requests }, numWaiting, numRunning) {
    const { words } = this.tools;
    const numbers = { waiting: count(numWaiting), running: count(numRunning) };
    return hidesSteps(state.header)
      ? words('panel.queues.headline.sent', { number: count(requests.filter(isInFlight).length) })
      : words('panel.queues.headline', numbers);
  }

  #updateLegend(header) {
    const isSeen = !hidesSteps(header);
    LEGEND.forEach((kind, index) => {
      this.legend[index].hidden = (IF_STEPS_ARE_SEEN[kind] ?? isSeen) !== isSeen;
    });
  }

  #flow() {
    const { words } = this.tools;
    const stage = (name) =>
      h(
        'span',
        { class: 'scope-stage-box', 'data-stage': name },
        this.stages[name],
        h('span', {}, words(`panel.queues.${name}`)),
      );
    const arrow = () => h('span', { class: 'scope-arrow', 'aria-hidden': 'true' }, '→');
    return h(
      'div',
      { class: 'scope-flow' },
      stage('incoming'),
      arrow(),
      stage('waiting'),
      arrow(),
      stage('running'),
      arrow(),
      stage('finished'),
    );
  }

  #updateFlow(state, numWaiting, numRunning) {
    const depths = Object.entries(state.queues?.queues ?? {});
    const incoming = depths.filter(([name]) => name.startsWith('incoming') || name === BLOCKING);
    const sum = incoming.length === 0 ? null : incoming.reduce((total, [, depth]) => total + depth, 0);
    const slots = slotsOf(state);
    setText(this.stages.incoming, count(sum));
    setText(this.stages.waiting, count(numWaiting));
    setText(
      this.stages.running,
      slots === null ? count(numRunning) : `${count(numRunning)} / ${count(slots)}`,
    );
    setText(this.stages.finished, count(state.totals.requests_finished));
    const misdelivered = state.queues?.num_misdelivered ?? null;
    if (misdelivered !== null) depths.push(['num_misdelivered', misdelivered]);
    this.#forgetQueues(new Set(depths.map(([name]) => name)));
    for (const [name, depth] of depths) this.#setQueue(name, depth);
  }

  /** Those of the engine that was shown before. */
  #forgetQueues(told) {
    for (const [name, number] of this.#queueChips) {
      if (told.has(name)) continue;
      number.parentElement.remove();
      this.#queueChips.delete(name);
    }
  }

  #setQueue(name, depth) {
    if (!this.#queueChips.has(name)) {
      const number = h('b');
      this.#queueChips.set(name, number);
      const { words } = this.tools;
      const title = name === BLOCKING ? words('panel.queues.blocking_calls.meaning') : null;
      const shown = name === BLOCKING ? words('panel.queues.blocking_calls') : name;
      const chip = h('span', { class: 'scope-queue', 'data-name': name, title }, shown, number);
      this.hiddenCount.before(chip);
    }
    const number = this.#queueChips.get(name);
    setText(number, count(depth));
    setAttribute(number.parentElement, 'data-filled', depth > 0);
  }

  #drawPicture(view) {
    const { width, height } = this.picture;
    const { palette, state, requests, lit } = view;
    this.#layout = layoutTimeline({
      requests,
      now: state.time,
      height: height - AXIS * palette.scale,
      scale: palette.scale,
      lit,
    });
    this.#place = {
      start: this.#layout.start,
      end: this.#layout.end,
      left: LEFT * palette.scale,
      right: width - RIGHT * palette.scale,
    };
    drawTimeline(this.picture.begin(), {
      layout: this.#layout,
      place: this.#place,
      palette,
      lit,
      width,
      height,
      focus: view.crosshair === null ? null : timesOf(view.focusColumn),
      moment: view.moment,
      words: this.tools.words,
    });
    const { numHidden } = this.#layout;
    this.hiddenCount.hidden = numHidden === 0;
    setText(this.hiddenCount, this.tools.words('panel.queues.more', { number: count(numHidden) }));
  }

  #find(x, y) {
    const request = this.#layout?.rows[Math.floor(y / this.#layout.rowHeight)];
    const time =
      this.#place === null
        ? null
        : this.#place.start +
          ((x - this.#place.left) / (this.#place.right - this.#place.left)) *
            (this.#place.end - this.#place.start);
    const ordinal = time === null || x < this.#place.left ? null : this.#ordinalAt(time);
    if (request === undefined) return { id: null, ordinal, content: null };
    return { id: request.id, ordinal, content: this.#contentOf(request) };
  }

  /** The step that ran at a time, among the last that a screen can show. */
  #ordinalAt(time) {
    const columns = this.store.history.columns(this.store.shown, 512);
    const place = columns.findLastIndex(({ step }) => step.start_time <= time);
    const step = columns[place]?.step;
    return step !== undefined && time <= step.start_time + step.duration ? columns[place].ordinal : null;
  }

  #contentOf(request) {
    const { words } = this.tools;
    const latency = latencyOf(request);
    const lines = [
      [words('panel.request'), request.id],
      [
        words('panel.queues.tip.tokens'),
        `${count(request.numPromptTokens)} + ${count(request.numTokens)} / ${count(request.maxTokens)}`,
      ],
      [words('panel.latency.queue'), duration(latency.queueTime)],
      ['TTFT', duration(latency.ttft)],
      [words('panel.queues.tip.source'), words(`panel.queues.source.${request.source}`)],
    ];
    if (request.streamDepth !== null)
      lines.push([words('panel.queues.tip.depth'), count(request.streamDepth)]);
    if (request.numPreemptions > 0)
      lines.push([words('panel.queues.tip.preemptions'), count(request.numPreemptions)]);
    return {
      seat: request.seat,
      title: words(`panel.queues.status.${request.finishReason ?? request.status}`),
      lines,
      note: request.message ?? undefined,
    };
  }

  #detailsOf(id) {
    const request = this.store.state.requests.get(id);
    return request === undefined ? null : this.#contentOf(request);
  }

  #neighbour(id, by) {
    const rows = this.#layout?.rows ?? [];
    if (rows.length === 0) return null;
    const place = rows.findIndex((request) => request.id === id);
    return rows[place === -1 ? 0 : (place + by + rows.length) % rows.length].id;
  }

  #inWords({ requests, state }, numWaiting, numRunning) {
    const { words } = this.tools;
    const head = words('panel.queues.summary', {
      waiting: count(numWaiting),
      running: count(numRunning),
      finished: count(state.totals.requests_finished),
    });
    const rows = requests
      .filter(isInFlight)
      .slice(0, 20)
      .map((request) => `${seatLetter(request.seat)}: ${words(`panel.queues.status.${request.status}`)}`);
    return [head, ...rows].join(' ');
  }
}

/** As the steps show them; where they are not seen, as the servers tell, else `null`. */
function numbersOf({ state, requests }, told) {
  if (hidesSteps(state.header)) {
    return { numWaiting: sumOf(told, 'num_waiting'), numRunning: sumOf(told, 'num_running') };
  }
  return {
    numWaiting: requests.filter(isWaiting).length,
    numRunning: requests.filter((request) => request.status === 'running').length,
  };
}

/** Places in all batches together; `null` for an engine without such a limit. */
function slotsOf({ header, lanes }) {
  const inEach = header?.engine.batch_size ?? header?.engine.max_num_seqs ?? null;
  return inEach === null ? null : inEach * Math.max(1, lanes.size);
}

function timesOf(column) {
  return column === null
    ? null
    : { start: column.step.start_time, end: column.step.start_time + column.step.duration };
}
