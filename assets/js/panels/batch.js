// The Batch panel: what the engine put into each step.

import { h, setText } from '../dom.js';
import { columnsThatFit, layoutBatch, paddingOfRows, paddingShare, scheduledTokens } from './batch_layout.js';
import { drawBatch } from './batch_picture.js';
import { Panel, legend } from './panel.js';
import { bindPointing } from './pointing.js';
import { attentionPairs } from '../reducer.js';
import { count, duration, percent, shape } from '../format.js';
import { hidesSteps } from '../gauges.js';
import { seatLetter } from '../seats.js';

const LEGEND = ['prefill', 'decode', 'padding', 'finished', 'waiting'];

export class BatchPanel {
  #columns = [];
  #layout = null;

  constructor(tools, store, onResize) {
    const { words } = tools;
    this.tools = tools;
    this.store = store;
    this.panel = new Panel('batch', tools);
    this.element = this.panel.element;
    this.picture = this.panel.picture(this.panel.body, onResize);
    this.counts = h('span', { class: 'scope-counts' });
    this.panel.footer.append(
      h(
        'div',
        { class: 'scope-legends' },
        ...LEGEND.map((kind) => legend(kind, words(`panel.batch.legend.${kind}`))),
      ),
      this.counts,
    );
    bindPointing(this.picture.canvas, {
      tools,
      store,
      find: (x, y) => this.#find(x, y),
      neighbour: (id, by) => this.#neighbour(id, by),
      detailsOf: (id) => this.#detailsOf(id),
    });
  }

  draw(view) {
    this.panel.setExposure(view.state.header);
    const column = hidesSteps(view.state.header) ? null : view.focusColumn;
    this.panel.setEmpty(column === null ? this.#emptySentence(view) : null);
    this.panel.setHeadline(column === null ? '' : shape(column.step.input_shape));
    setText(this.counts, column === null ? '' : this.#countsOf(column.step));
    if (!this.picture.isVisible) return;
    const { width, height } = this.picture;
    const { scale } = view.palette;
    this.#columns = this.store.history.columns(this.store.shown, columnsThatFit(width, scale).count);
    this.#layout = layoutBatch({
      width,
      height,
      scale,
      columns: this.#columns,
      engine: view.state.header?.engine ?? null,
      occupied: occupiedLanes(view.state),
    });
    drawBatch(this.picture.begin(), {
      ...view,
      layout: this.#layout,
      columns: this.#columns,
      words: this.tools.words,
    });
    this.panel.setSummary(() => this.#inWords(column));
  }

  stop() {
    this.picture.stop();
  }

  #emptySentence(view) {
    const { header } = view.state;
    if (!hidesSteps(header)) return view.emptySentence('batch');
    return header.notes?.batch ?? this.tools.words('panel.batch.not_exposed');
  }

  #countsOf(step) {
    const { words } = this.tools;
    const padding = step.num_padding_tokens;
    return words(padding ? 'panel.batch.counts.padded' : 'panel.batch.counts', {
      step: count(step.step_id),
      rows: count(step.rows.length),
      tokens: count(scheduledTokens(step)),
      padding: count(padding),
      share: percent(paddingShare(step)),
      pairs: count(step.attention_pairs),
      duration: duration(step.duration),
    });
  }

  /** What lies under a point: a cell, a waiting request, or a step. */
  #find(x, y) {
    const layout = this.#layout;
    const column = this.#columns[layout?.indexAt(x) ?? -1];
    if (column === undefined) return null;
    const found = { ordinal: column.ordinal, id: null, content: this.#stepContent(column), seek: false };
    if (y >= layout.bars.top) return { ...found, seek: true };
    if (y >= layout.waiting.top) return this.#findWaiting(found, column, y);
    const group = layout.groups.find(
      ({ pool, top, bottom }) => pool === column.pool && y >= top && y < bottom,
    );
    if (group === undefined) return found;
    const row = column.lanes.indexOf(Math.floor((y - group.top) / group.laneHeight));
    if (row === -1) return found;
    return { ...found, id: column.step.rows[row].request_id, content: this.#rowContent(column, row) };
  }

  #findWaiting(found, column, y) {
    const { top, rowHeight } = this.#layout.waiting;
    const place = Math.floor((y - top) / rowHeight);
    const id = column.step.waiting_ids[place];
    if (id === undefined) return found;
    return { ...found, id, content: this.#waitingContent(column, place) };
  }

  /** A request's row in the step that is looked at, or its place among those that wait; else the step. */
  #detailsOf(id) {
    const column = this.store.history.column(this.store.shown);
    if (column === null) return null;
    const row = column.step.rows.findIndex(({ request_id: other }) => other === id);
    if (row !== -1) return this.#rowContent(column, row);
    const place = column.step.waiting_ids.indexOf(id);
    return place === -1 ? this.#stepContent(column) : this.#waitingContent(column, place);
  }

  #waitingContent(column, place) {
    const { words } = this.tools;
    return {
      seat: column.waitingSeats[place],
      title: words('panel.batch.tip.waiting', { place: place + 1, total: column.waitingSeats.length }),
      lines: [
        [words('panel.request'), column.step.waiting_ids[place]],
        [words('panel.step'), count(column.step.step_id)],
      ],
    };
  }

  #stepContent({ step }) {
    const { words } = this.tools;
    return {
      title: words('panel.batch.tip.step', { step: count(step.step_id) }),
      lines: [
        [
          'input_shape',
          step.input_shape === null ? words('panel.exposure.not_exposed') : shape(step.input_shape),
        ],
        [words('panel.batch.tip.duration'), duration(step.duration)],
        [words('panel.batch.tip.rows'), count(step.rows.length)],
        [words('panel.batch.tip.tokens'), count(scheduledTokens(step))],
        [words('panel.batch.tip.padding'), this.#orNotExposed(step.num_padding_tokens)],
        [words('panel.batch.tip.pairs'), this.#orNotExposed(step.attention_pairs)],
      ],
      note: words('panel.batch.tip.seek'),
    };
  }

  #rowContent(column, index) {
    const { words } = this.tools;
    const { step } = column;
    const row = step.rows[index];
    const padding = step.num_padding_tokens === 0 ? 0 : (paddingOfRows(step)?.[index] ?? null);
    return {
      seat: column.seats[index],
      title: words(`panel.batch.tip.${row.phase}`, { step: count(step.step_id) }),
      lines: [
        [words('panel.request'), row.request_id],
        [words('panel.batch.tip.row'), `${index} / ${step.rows.length}`],
        ['num_scheduled_tokens', count(row.num_scheduled_tokens)],
        ['num_computed_tokens', count(row.num_computed_tokens)],
        ['num_cached_tokens', this.#orNotExposed(row.num_cached_tokens)],
        [words('panel.batch.tip.padding'), this.#orNotExposed(padding)],
        [words('panel.batch.tip.pairs'), count(attentionPairs(row))],
        [words('panel.batch.tip.duration'), duration(step.duration)],
      ],
    };
  }

  #orNotExposed(value) {
    return value === null ? this.tools.words('panel.exposure.not_exposed') : count(value);
  }

  /** The request above or below, for the arrow keys. */
  #neighbour(id, by) {
    const ids = [...this.store.state.lanes.values()].flat().filter((other) => other !== null);
    if (ids.length === 0) return null;
    const place = ids.indexOf(id);
    return ids[place === -1 ? 0 : (place + by + ids.length) % ids.length];
  }

  #inWords(column) {
    const { words } = this.tools;
    if (column === null) return words('panel.batch.empty');
    const list = (seats) => seats.map(seatLetter).join(', ') || words('panel.none');
    const who = words('panel.batch.summary', {
      running: list(column.seats),
      waiting: list(column.waitingSeats),
    });
    return `${this.#countsOf(column.step)}. ${who}`;
  }
}

/** Pool → number of lanes down to the last that holds a request still in flight. */
function occupiedLanes(state) {
  const isIn = (id) => id !== null && state.requests.get(id)?.status === 'running';
  return new Map([...state.lanes].map(([pool, ids]) => [pool, ids.findLastIndex(isIn) + 1]));
}
