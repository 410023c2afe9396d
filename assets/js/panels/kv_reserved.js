// An engine that reserves one run of slots a request: how much of it ever holds anything.

import { h } from '../dom.js';
import { badge, hatch, label } from '../pen.js';
import { count, percent } from '../format.js';
import { isInFlight } from '../request.js';
import { Gauge } from './gauge.js';
import { legend } from './panel.js';
import { seatLetter } from '../seats.js';

const LEFT = 26;
const RIGHT = 118;
const FADED = 0.25;

/** Requests with a reservation, in flight first and newest first among the finished. Pure. */
export function reservations(requests, most) {
  const all = [...requests].filter((request) => request.reservedSlots !== null);
  const inFlight = all.filter(isInFlight);
  const finished = all.filter((request) => !isInFlight(request)).reverse();
  return [...inFlight, ...finished].slice(0, most);
}

export class ReservedView {
  #rows = [];
  #rowHeight = 1;

  constructor(tools, store) {
    const { words } = tools;
    this.tools = tools;
    this.store = store;
    this.used = new Gauge(words('panel.kv.reserved.used'), words('panel.kv.reserved.used.meaning'), tools);
    this.details = [h('div', { class: 'scope-gauges' }, this.used.element)];
    this.footer = [
      h(
        'div',
        { class: 'scope-legends' },
        ...['used', 'unused', 'gone'].map((kind) => legend(kind, words(`panel.kv.reserved.${kind}`))),
      ),
    ];
  }

  hasContent(view) {
    return reservations(view.requests, 1).length > 0;
  }

  headline({ requests }) {
    const { filled, reserved } = sumInFlight(requests);
    return reserved === 0
      ? ''
      : this.tools.words('panel.kv.reserved.headline', { filled: count(filled), reserved: count(reserved) });
  }

  updateDetails({ requests }) {
    const { filled, reserved } = sumInFlight(requests);
    this.used.set(filled, reserved);
  }

  draw(context, scene) {
    const { palette, requests, width, height } = scene;
    const wanted = 26 * palette.scale;
    this.#rows = reservations(requests, Math.max(1, Math.floor(height / (14 * palette.scale))));
    this.#rowHeight = Math.min(wanted, height / Math.max(1, this.#rows.length));
    const longest = Math.max(...this.#rows.map((request) => request.reservedSlots), 1);
    this.#rows.forEach((request, index) => {
      drawReservation(context, scene, {
        request,
        longest,
        y: index * this.#rowHeight,
        height: this.#rowHeight,
        width,
      });
    });
    context.globalAlpha = 1;
  }

  find(_x, y) {
    const request = this.#rows[Math.floor(y / this.#rowHeight)];
    if (request === undefined) return null;
    const { words } = this.tools;
    const filled = request.filledSlots ?? 0;
    return {
      id: request.id,
      ordinal: null,
      content: {
        seat: request.seat,
        title: words('panel.kv.reserved.title'),
        lines: [
          [words('panel.request'), request.id],
          [words('panel.kv.reserved.reserved'), count(request.reservedSlots)],
          [words('panel.kv.reserved.used'), `${count(filled)} (${percent(filled / request.reservedSlots)})`],
          [words('panel.kv.reserved.unused'), count(request.reservedSlots - filled)],
        ],
      },
    };
  }

  inWords({ requests }) {
    const rows = reservations(requests, 20).map((request) =>
      this.tools.words('panel.kv.reserved.summary', {
        seat: seatLetter(request.seat),
        filled: count(request.filledSlots ?? 0),
        reserved: count(request.reservedSlots),
      }),
    );
    return rows.join(' ');
  }
}

function sumInFlight(requests) {
  let filled = 0;
  let reserved = 0;
  for (const request of requests) {
    if (!isInFlight(request) || request.reservedSlots === null) continue;
    filled += request.filledSlots ?? 0;
    reserved += request.reservedSlots;
  }
  return { filled, reserved };
}

function drawReservation(context, { palette, lit }, { request, longest, y, height, width }) {
  const { fill } = palette.seat(request.seat);
  const left = LEFT * palette.scale;
  const room = width - left - RIGHT * palette.scale;
  const filled = request.filledSlots ?? 0;
  const inset = Math.min(5, height * 0.2);
  const reservedWidth = (request.reservedSlots / longest) * room;
  const filledWidth = (filled / longest) * room;
  context.globalAlpha = lit !== null && lit !== request.id ? FADED : isInFlight(request) ? 1 : 0.5;
  badge(
    context,
    palette,
    request.seat,
    10 * palette.scale,
    y + height / 2,
    Math.min(16 * palette.scale, height - 2),
  );
  context.fillStyle = hatch(context, palette.cached);
  context.fillRect(left, y + inset, reservedWidth, height - 2 * inset);
  context.strokeStyle = palette.mute;
  context.lineWidth = 1;
  context.strokeRect(
    left + 0.5,
    Math.round(y + inset) + 0.5,
    reservedWidth - 1,
    Math.round(height - 2 * inset) - 1,
  );
  context.fillStyle = fill;
  context.fillRect(left, y + inset, filledWidth, height - 2 * inset);
  const text = `${count(filled)} / ${count(request.reservedSlots)}  ${percent(filled / request.reservedSlots)}`;
  label(context, text, width, y + height / 2, { font: palette.small, colour: palette.ink, align: 'right' });
}
