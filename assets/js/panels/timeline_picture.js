// Drawing the timeline: what each request was doing when, on one time axis.

import { badge, hatch, label, vertical } from '../pen.js';
import { count } from '../format.js';
import { isInFlight, spansOf, tokenTimes } from '../request.js';
import { ticksOf } from './timeline_layout.js';

export const LEFT = 26;
export const RIGHT = 60;
export const AXIS = 17;
const FADED = 0.25;
const CLOSEST_TICKS = 3;

/** @param {{start: number, end: number, left: number, right: number}} place */
export const xOfTime = (time, { start, end, left, right }) =>
  left + ((time - start) / (end - start)) * (right - left);

export function drawTimeline(context, scene) {
  const { layout, palette, lit } = scene;
  drawAxis(context, scene);
  layout.rows.forEach((request, index) => {
    context.globalAlpha = lit === null || lit === request.id ? 1 : FADED;
    drawRow(context, scene, request, index * layout.rowHeight);
  });
  context.globalAlpha = 1;
  drawCrosshair(context, scene);
  if (layout.rows.length === 0) return;
  label(context, scene.words('panel.queues.stream'), scene.width, scene.height - (AXIS / 2) * palette.scale, {
    font: palette.text,
    colour: palette.mute,
    align: 'right',
  });
}

function drawAxis(context, { layout, place, palette, height, moment }) {
  const bottom = height - AXIS * palette.scale;
  for (const ago of ticksOf(layout.start, layout.end)) {
    const x = xOfTime(layout.end - ago, place);
    vertical(context, x, 0, bottom, palette.line);
    const text = ago === 0 ? moment : `−${Number(ago.toPrecision(3))} s`;
    const end = ago === 0 ? { x: x + 10 * palette.scale, align: 'right' } : { x, align: 'center' };
    label(context, text, end.x, height - (AXIS / 2) * palette.scale, {
      font: palette.small,
      colour: palette.mute,
      align: end.align,
    });
  }
}

/** One request: its badge, its spans, a notch for each token, its end. */
export function drawRow(context, { layout, place, palette }, request, y) {
  const height = layout.rowHeight;
  const middle = y + height / 2;
  badge(context, palette, request.seat, 10 * palette.scale, middle, Math.min(16 * palette.scale, height - 2));
  context.save();
  context.beginPath();
  context.rect(place.left, y - 2, place.right - place.left + 2, height + 4);
  context.clip();
  for (const span of spansOf(request, layout.end))
    drawSpan(context, palette, { span, place, seat: request.seat, y, height });
  drawTokens(context, { place, palette, y, height }, request);
  if (request.firstTokenTime !== null) {
    vertical(context, xOfTime(request.firstTokenTime, place), y + 1, y + height - 1, palette.ink, 2);
  }
  context.restore();
  if (request.finishedTime !== null) drawEnd(context, { place, palette, middle, height }, request);
  const depth = request.streamDepth;
  if (depth !== null && isInFlight(request)) {
    label(context, count(depth), place.right + (RIGHT - 8) * palette.scale, middle, {
      font: palette.small,
      colour: depth > 0 ? palette.ink : palette.mute,
      align: 'right',
    });
  }
}

const HEIGHTS = { queued: 0.62, sent: 0.62, prefill: 0.8, decode: 0.46, preempted: 0.62 };

function drawSpan(context, palette, { span, place, seat, y, height }) {
  const { fill } = palette.seat(seat);
  const left = Math.max(place.left, xOfTime(span.start, place));
  const right = xOfTime(span.end, place);
  if (right < place.left) return;
  const width = Math.max(right - left, 1);
  const tall = Math.max(3, Math.round(height * HEIGHTS[span.kind]));
  const top = Math.round(y + (height - tall) / 2);
  if (span.kind === 'prefill' || span.kind === 'decode') {
    context.fillStyle = fill;
    context.fillRect(left, top, width, tall);
    return;
  }
  const colour = span.kind === 'preempted' ? palette.warn : fill;
  if (span.kind !== 'sent') {
    context.fillStyle = hatch(context, colour, '/');
    context.fillRect(left, top, width, tall);
  }
  context.strokeStyle = colour;
  context.lineWidth = 1;
  if (span.kind === 'preempted') context.setLineDash([3, 2]);
  context.strokeRect(left + 0.5, top + 0.5, Math.max(0, width - 1), tall - 1);
  context.setLineDash([]);
}

/** A notch for each token; where they are closer than the eye can part, for as many as it can. */
function drawTokens(context, { place, palette, y, height }, request) {
  context.fillStyle = palette.card;
  const tall = Math.max(2, Math.round(height * 0.26));
  const top = Math.round(y + height / 2 - tall / 2);
  let last = -Infinity;
  for (const time of tokenTimes(request)) {
    const x = Math.round(xOfTime(time, place));
    if (x < place.left || x - last < CLOSEST_TICKS || time === request.firstTokenTime) continue;
    context.fillRect(x, top, 1, tall);
    last = x;
  }
}

/** ■ ran to its end, ✕ aborted or failed. */
function drawEnd(context, { place, palette, middle, height }, request) {
  const x = xOfTime(request.finishedTime, place);
  if (x < place.left) return;
  const size = Math.min(7 * palette.scale, height * 0.5);
  const isComplete = request.finishReason === 'stop' || request.finishReason === 'length';
  if (isComplete) {
    context.fillStyle = palette.ink;
    context.fillRect(x, middle - size / 2, size / 2, size);
    return;
  }
  context.strokeStyle = palette.bad;
  context.lineWidth = 1.8;
  context.beginPath();
  for (const slope of [1, -1]) {
    context.moveTo(x, middle - (slope * size) / 2);
    context.lineTo(x + size, middle + (slope * size) / 2);
  }
  context.stroke();
}

function drawCrosshair(context, { focus, place, palette, height }) {
  if (focus === null) return;
  const left = xOfTime(focus.start, place);
  const right = xOfTime(focus.end, place);
  if (right < place.left || left > place.right) return;
  context.fillStyle = palette.accent;
  context.globalAlpha = 0.22;
  context.fillRect(Math.max(left, place.left), 0, Math.max(right - left, 2), height - AXIS * palette.scale);
  context.globalAlpha = 1;
}
