// Small things that several pictures draw: a seat's badge, hatching, fitted text.

import { seatLetter } from './seats.js';

const TILE = 5;
const patterns = new Map(); // `${colour} ${kind} ${ratio}` → tile canvas

/** Diagonal lines as a fill style: `/` for what waits or pads, `x` for what is computed in vain. */
export function hatch(context, colour, kind = '/') {
  const ratio = context.getTransform().a;
  const key = `${colour} ${kind} ${ratio}`;
  if (!patterns.has(key)) patterns.set(key, tile(colour, kind, ratio));
  const pattern = context.createPattern(patterns.get(key), 'repeat');
  pattern.setTransform(new DOMMatrix().scale(1 / ratio));
  return pattern;
}

function tile(colour, kind, ratio) {
  const canvas = document.createElement('canvas');
  canvas.width = Math.max(1, Math.round(TILE * ratio));
  canvas.height = canvas.width;
  const pen = canvas.getContext('2d');
  const size = canvas.width;
  pen.strokeStyle = colour;
  pen.lineWidth = 1.1 * ratio;
  pen.beginPath();
  for (const shift of [-size, 0, size]) {
    pen.moveTo(shift, size);
    pen.lineTo(shift + size, 0);
    if (kind === 'x') {
      pen.moveTo(shift, 0);
      pen.lineTo(shift + size, size);
    }
  }
  pen.stroke();
  return canvas;
}

/** A rounded square with the seat's letter, its centre at (x, y); wider for two letters. */
export function badge(context, palette, seat, x, y, size) {
  const { fill, ink } = palette.seat(seat);
  const width = seatLetter(seat).length > 1 ? size * 1.35 : size;
  context.fillStyle = fill;
  context.beginPath();
  context.roundRect(x - width / 2, y - size / 2, width, size, size * 0.28);
  context.fill();
  letter(context, palette, seat, x, y, Math.round(size * 0.68), ink);
}

/** The seat's letter alone, centred. */
export function letter(context, palette, seat, x, y, size, colour) {
  const text = seatLetter(seat);
  context.font = palette.letter(text.length > 1 ? size * 0.88 : size);
  context.fillStyle = colour;
  context.textAlign = 'center';
  context.textBaseline = 'middle';
  context.fillText(text, x, y + size * 0.06);
}

/** Text at a place; `align` is left, center or right, (x, y) its middle line. */
export function label(context, text, x, y, { font, colour, align = 'left' }) {
  context.font = font;
  context.fillStyle = colour;
  context.textAlign = align;
  context.textBaseline = 'middle';
  context.fillText(text, x, y);
}

/** A vertical line on whole pixels. */
export function vertical(context, x, top, bottom, colour, width = 1) {
  context.fillStyle = colour;
  context.fillRect(Math.round(x - width / 2), top, width, bottom - top);
}
