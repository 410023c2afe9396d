// Drawing the batch: cells, waiting requests, durations, and the step under the pointer.

import { badge, hatch, label, letter, vertical } from '../pen.js';
import { count, niceCeiling, roundDuration } from '../format.js';
import { paddingOfRows } from './batch_layout.js';

const FADED = 0.26;
/** Part of a lane that a decode cell fills; low lanes need more of it to be read. */
const decodeShare = (laneHeight) => (laneHeight < 20 ? 0.62 : 0.5);

/** @param {CanvasRenderingContext2D} context */
export function drawBatch(context, scene) {
  drawSlots(context, scene);
  drawCrosshair(context, scene);
  drawCells(context, scene);
  drawWaiting(context, scene);
  drawDurations(context, scene);
  drawAxis(context, scene);
}

/** Empty slots, their numbers, and who is there now. */
function drawSlots(context, { layout, palette, state, lit, columns }) {
  const { plotLeft, right } = layout;
  const size = Math.min(15 * palette.scale, layout.groups[0].laneHeight - 2);
  for (const group of layout.groups) {
    if (group.pool !== '') {
      label(context, group.pool, 0, group.labelY, { font: palette.text, colour: palette.mute });
    }
    for (let lane = 0; lane < group.numLanes; lane += 1) {
      const y = group.top + lane * group.laneHeight;
      context.fillStyle = palette.soft;
      const height = Math.max(1, Math.round(group.laneHeight * decodeShare(group.laneHeight)));
      context.fillRect(plotLeft, Math.round(y + (group.laneHeight - height) / 2), right - plotLeft, height);
      if (group.laneHeight >= 10) {
        label(context, String(lane), plotLeft - 8, y + group.laneHeight / 2, {
          font: palette.small,
          colour: palette.mute,
          align: 'right',
        });
      }
    }
    if (size >= 8) drawOccupants(context, { group, palette, state, lit, columns, right, size });
  }
}

function drawOccupants(context, { group, palette, state, lit, columns, right, size }) {
  const ids = state.lanes.get(group.pool) ?? [];
  ids.forEach((id, lane) => {
    const request = id === null ? undefined : state.requests.get(id);
    if (request?.status !== 'running' || columns.length === 0) return;
    context.globalAlpha = lit === null || lit === id ? 1 : FADED;
    const y = group.top + (lane + 0.5) * group.laneHeight;
    badge(context, palette, request.seat, right + 4 * palette.scale + size / 2, y, size);
  });
  context.globalAlpha = 1;
}

function drawCrosshair(context, { layout, palette, columns, crosshair }) {
  const index = columns.findIndex((column) => column.ordinal === crosshair);
  if (index === -1) return;
  context.fillStyle = palette.accent;
  context.globalAlpha = 0.16;
  context.fillRect(layout.xOf(index) - 1, 0, layout.cell + 1, layout.bars.bottom);
  context.globalAlpha = 1;
}

function drawCells(context, { layout, palette, columns, lit }) {
  const groupOf = new Map(layout.groups.map((group) => [group.pool, group]));
  const occupant = new Map(); // "pool lane" → id of the cell before, to see where a run begins
  columns.forEach((column, index) => {
    const group = groupOf.get(column.pool);
    const padding = paddingOfRows(column.step);
    column.step.rows.forEach((row, place) => {
      const lane = column.lanes[place];
      const key = `${column.pool} ${lane}`;
      const box = {
        x: layout.xOf(index),
        y: group.top + lane * group.laneHeight,
        width: layout.cell - 1,
        height: group.laneHeight,
      };
      context.globalAlpha = lit === null || lit === row.request_id ? 1 : FADED;
      drawCell(context, palette, {
        row,
        box,
        seat: column.seats[place],
        padded: padding === null ? 0 : padding[place] / column.step.input_shape[1],
        isFirst: occupant.get(key) !== row.request_id,
      });
      occupant.set(key, row.request_id);
    });
  });
  context.globalAlpha = 1;
}

function drawCell(context, palette, { row, box, seat, padded, isFirst }) {
  const { fill, ink } = palette.seat(seat);
  const inset = box.height > 8 ? 1.5 : 0.5;
  const full =
    row.phase === 'prefill' ? box.height - 2 * inset : Math.max(2, box.height * decodeShare(box.height));
  const height = Math.max(2, Math.round(full));
  const top = Math.round(box.y + (box.height - height) / 2);
  if (row.phase === 'finished') {
    drawInVain(context, { ...box, y: top, height }, fill);
    return;
  }
  const empty = padded > 0 ? Math.max(1, Math.round(height * padded)) : 0;
  context.fillStyle = fill;
  context.fillRect(box.x, top + empty, box.width, height - empty);
  if (empty > 0) drawPadding(context, { ...box, y: top, height: empty }, palette);
  if (isFirst && height - empty >= 9 && box.width >= 7) {
    letter(
      context,
      palette,
      seat,
      box.x + box.width / 2,
      top + empty + (height - empty) / 2,
      Math.min(10 * palette.scale, box.width + 2),
      ink,
    );
  }
}

function drawPadding(context, box, palette) {
  context.fillStyle = palette.card;
  context.fillRect(box.x, box.y, box.width, box.height);
  context.fillStyle = hatch(context, palette.mute);
  context.fillRect(box.x, box.y, box.width, box.height);
}

/** A row that is done and still in the batch. */
function drawInVain(context, box, colour) {
  context.fillStyle = hatch(context, colour, 'x');
  context.fillRect(box.x, box.y, box.width, box.height);
  context.strokeStyle = colour;
  context.lineWidth = 1;
  context.strokeRect(box.x + 0.5, box.y + 0.5, box.width - 1, box.height - 1);
}

/** The queue at each step, its head at the top; what does not fit is a number. */
function drawWaiting(context, { layout, palette, columns, lit, words }) {
  const { top, rowHeight, rows } = layout.waiting;
  label(context, words('panel.batch.waiting'), 0, top + rowHeight / 2, {
    font: palette.text,
    colour: palette.mute,
  });
  columns.forEach((column, index) => {
    const { waitingSeats, step } = column;
    const fits = Math.min(waitingSeats.length, rows);
    for (let place = 0; place < fits; place += 1) {
      const { fill } = palette.seat(waitingSeats[place]);
      const box = [layout.xOf(index) + 0.5, top + place * rowHeight + 1.5, layout.cell - 2, rowHeight - 3];
      context.globalAlpha = lit === null || lit === step.waiting_ids[place] ? 1 : FADED;
      context.fillStyle = hatch(context, fill);
      context.fillRect(...box);
      context.strokeStyle = fill;
      context.lineWidth = 1;
      context.strokeRect(...box);
    }
  });
  context.globalAlpha = 1;
  drawWaitingNow(context, { layout, palette, columns });
}

function drawWaitingNow(context, { layout, palette, columns }) {
  const seats = columns.at(-1)?.waitingSeats ?? [];
  const { top, rowHeight, rows } = layout.waiting;
  const x = layout.right + 4 * palette.scale;
  const shown = seats.length > rows ? rows - 1 : seats.length;
  for (let place = 0; place < shown; place += 1) {
    letter(
      context,
      palette,
      seats[place],
      x + 7 * palette.scale,
      top + (place + 0.5) * rowHeight,
      9 * palette.scale,
      palette.ink,
    );
  }
  if (seats.length > rows) {
    label(context, `+${count(seats.length - shown)}`, x, top + (rows - 0.5) * rowHeight, {
      font: palette.small,
      colour: palette.mute,
    });
  }
}

function drawDurations(context, { layout, palette, columns, crosshair }) {
  if (columns.length === 0) return;
  const { top, bottom } = layout.bars;
  const scale = niceCeiling(Math.max(...columns.map(({ step }) => step.duration)));
  for (const y of [top, bottom]) {
    context.fillStyle = palette.line;
    context.fillRect(layout.plotLeft, Math.round(y), layout.right - layout.plotLeft, 1);
  }
  const style = { font: palette.small, colour: palette.mute, align: 'right' };
  label(context, roundDuration(scale), layout.plotLeft - 6, top + 4, style);
  label(context, '0', layout.plotLeft - 6, bottom - 3, style);
  columns.forEach((column, index) => {
    const height = Math.max(1, Math.round((column.step.duration / scale) * (bottom - top)));
    context.fillStyle = column.ordinal === crosshair ? palette.accent : palette.bar;
    context.fillRect(layout.xOf(index), bottom - height, layout.cell - 1, height);
  });
}

/** Ids of the first and the last step shown, and of the one under the pointer. */
function drawAxis(context, { layout, palette, columns, crosshair }) {
  if (columns.length === 0) return;
  const y = layout.axisY;
  const style = { font: palette.small, colour: palette.mute };
  const index = columns.findIndex((column) => column.ordinal === crosshair);
  if (index !== -1) {
    const x = layout.xOf(index) + layout.cell / 2;
    vertical(context, x, layout.bars.bottom, layout.bars.bottom + 3, palette.accent, 2);
    label(context, count(columns[index].step.step_id), clamp(x, layout.plotLeft + 20, layout.right - 20), y, {
      ...style,
      colour: palette.accent,
      align: 'center',
    });
    return;
  }
  label(context, count(columns.at(-1).step.step_id), layout.right, y, { ...style, align: 'right' });
  if (columns.length > 12) label(context, count(columns[0].step.step_id), layout.left, y, style);
}

const clamp = (value, low, high) => Math.max(low, Math.min(value, high));
