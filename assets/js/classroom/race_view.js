// A race on the screen: an entry an engine, the axis they share, and the table.

import { EDGES } from './lanes_picture.js';
import { EntryView } from './entry_view.js';
import { Frames } from '../frames.js';
import { ResultTable } from './result_table.js';
import { axisOf } from './race_layout.js';
import { h } from '../dom.js';
import { readPalette, watchTheme } from '../palette.js';
import { roundDuration } from '../format.js';

const LEGEND = ['queued', 'prefill', 'decode', 'preempted', 'first'];
const FEWEST_PIXELS = 70; // between two labels of the axis

export class RaceView {
  #views = [];
  #race = null; // as it was last shown
  #results = [];
  #lit = null;
  #palette = null;

  constructor(tools) {
    this.tools = tools;
    const { words } = tools;
    this.frames = new Frames(() => this.#draw());
    this.table = new ResultTable(tools);
    this.entries = h('div', { class: 'classroom-entries' });
    this.axis = h('div', { class: 'classroom-axis mono', 'aria-hidden': 'true' });
    const legend = LEGEND.map((kind) =>
      h('span', {}, h('i', { 'data-kind': kind }), words(`panel.queues.legend.${kind}`)),
    );
    this.footer = h(
      'div',
      { class: 'classroom-legend' },
      h('span', { class: 'classroom-axis-name' }, words('classroom.axis')),
      ...legend,
    );
    this.element = h('div', { class: 'classroom-race', hidden: true }, this.entries, this.axis, this.footer);
    watchTheme(() => {
      this.#palette = null;
      this.frames.soon();
    });
  }

  /** A new race, with nothing of the last one. */
  begin(progress) {
    for (const view of this.#views) view.stop();
    this.#lit = null;
    this.#race = null;
    this.#results = [];
    const hear = { onPoint: (student) => this.#light(student), onResize: () => this.frames.soon() };
    this.#views = progress.entries.map((told, index) => new EntryView(this.tools, told, index, hear));
    this.entries.replaceChildren(...this.#views.map((view) => view.element));
    this.element.hidden = false;
    this.footer.hidden = true;
    this.axis.replaceChildren();
    this.table.show([]);
  }

  update(progress) {
    progress.entries.forEach((told, index) => this.#views[index].update(told));
  }

  /** The size of all type has changed. */
  resize() {
    this.#palette = null;
    if (this.#race !== null) this.show(this.#race);
  }

  /** @param {object} race with what results there are */
  show(race) {
    this.#race = race;
    const { scale } = this.#colours();
    race.entries.forEach((entry, index) => {
      if (entry.result !== null) this.#views[index].show(entry, scale);
    });
    this.#results = race.entries.map(({ result }) => result).filter((result) => result !== null);
    this.footer.hidden = this.#results.length === 0;
    this.table.show(race.entries);
    this.frames.soon();
  }

  #light(student) {
    if (student === this.#lit) return;
    this.#lit = student;
    this.frames.soon();
  }

  #colours() {
    this.#palette ??= readPalette(this.element);
    return this.#palette;
  }

  #draw() {
    if (!this.element.isConnected || this.#results.length === 0) return;
    const palette = this.#colours();
    const width = this.entries.clientWidth - (EDGES.left + EDGES.right) * palette.scale;
    const axis = axisOf(this.#results, Math.max(1, Math.min(10, Math.floor(width / FEWEST_PIXELS))));
    for (const view of this.#views) view.draw({ axis, palette, lit: this.#lit });
    this.#drawAxis(axis, palette.scale);
  }

  #drawAxis({ end, ticks }, scale) {
    this.axis.style.marginInline = `${EDGES.left * scale}px ${EDGES.right * scale}px`;
    this.axis.replaceChildren(
      ...ticks.map((time) => {
        const tick = h('span', {}, time === 0 ? '0' : roundDuration(time));
        tick.style.left = `${(time / end) * 100}%`;
        return tick;
      }),
    );
  }
}
