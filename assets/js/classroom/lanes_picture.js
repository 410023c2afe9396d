// The lanes of one engine: a row a request, on the axis that all engines share.

import { LEFT, drawRow, xOfTime } from '../panels/timeline_picture.js';
import { Picture } from '../canvas.js';
import { bindLanes } from './pointing.js';
import { endOf, laneHeight, requestOfLane } from './race_layout.js';
import { h, setText } from '../dom.js';
import { badge, label, vertical } from '../pen.js';

export const EDGES = { left: LEFT, right: 14 }; // pixels beside the axis, at scale 1
const FADED = 0.25;

export class LanesPicture {
  #scene = null;

  /** @param {{tools: object, name: string, id: string, onPoint: (student: number|null) => void}} options */
  constructor({ tools, name, id, onPoint, onResize }) {
    this.words = tools.words;
    this.summary = h('p', { class: 'scope-hidden', id });
    this.host = h('div', { class: 'classroom-lanes' });
    this.element = h('div', {}, this.host, this.summary);
    this.picture = new Picture(this.host, { label: name, describedBy: id, onResize });
    bindLanes(this.picture.canvas, {
      tools,
      laneAt: (y) => this.#laneAt(y),
      middleOf: (student) => (student + 0.5) * (this.#scene?.height ?? 0),
      lanes: () => this.#scene?.lanes ?? [],
      onPoint,
    });
  }

  /** @param {{result: object, scale: number, summary: string}} what */
  show({ result, scale, summary }) {
    const height = laneHeight(result.lanes.length, scale);
    const isSeen = result.preemptions !== null;
    this.#scene = {
      lanes: result.lanes,
      requests: result.lanes.map((lane) => requestOfLane(lane, isSeen)),
      height,
      end: endOf(result),
    };
    this.host.style.height = `${Math.ceil(height * result.lanes.length)}px`;
    setText(this.summary, summary);
  }

  draw({ axis, palette, lit }) {
    if (this.#scene === null || !this.picture.isVisible) return;
    const context = this.picture.begin();
    const { width, height } = this.picture;
    const { scale } = palette;
    const place = { start: 0, end: axis.end, left: EDGES.left * scale, right: width - EDGES.right * scale };
    for (const time of axis.ticks) vertical(context, xOfTime(time, place), 0, height, palette.line);
    this.#scene.requests.forEach((request, student) => {
      context.globalAlpha = lit === null || lit === student ? 1 : FADED;
      const y = student * this.#scene.height;
      if (request === null) this.#drawRefused(context, palette, student, y, place);
      else this.#drawRow(context, place, palette, request, y);
    });
    context.globalAlpha = 1;
  }

  stop() {
    this.picture.stop();
  }

  #drawRow(context, place, palette, request, y) {
    drawRow(
      context,
      { layout: { rowHeight: this.#scene.height, end: this.#scene.end }, place, palette },
      request,
      y,
    );
  }

  #drawRefused(context, palette, student, y, place) {
    const middle = y + this.#scene.height / 2;
    const text = `✕ ${this.words('classroom.lane.refused')}`;
    badge(
      context,
      palette,
      student,
      10 * palette.scale,
      middle,
      Math.min(16 * palette.scale, this.#scene.height - 2),
    );
    label(context, text, place.left + 4, middle, { font: palette.small, colour: palette.bad });
  }

  #laneAt(y) {
    const student = Math.floor(y / (this.#scene?.height ?? 1));
    return this.#scene?.lanes[student] === undefined ? null : student;
  }
}
