// An engine without a cache: at every step all of the sequence goes through the model again.
//
//   tokens        ▂     ▂ new          each column is one step of the request,
//             ▂ ▄ █   █                its height the tokens computed: ΣL of them in all,
//         ▂ ▄ █ █ █   █ again          and L × L query-key pairs in each: ΣL²
//         └ prefill ───► last step

import { h, setText } from '../dom.js';
import { label, vertical } from '../pen.js';
import { count, niceCeiling, ratio } from '../format.js';
import { heading, legend } from './panel.js';
import { seatLetter } from '../seats.js';

const LEFT = 34;
const BOTTOM = 16;
const TOP = 8;

/** Length at each step of a request, and how much of it had not been computed before. Pure. */
export function recomputation(request) {
  const { series, numSteps } = request;
  const steps = [];
  let known = 0;
  for (let i = 0; i < numSteps; i += 1) {
    const length = series.computed[i] + series.scheduled[i];
    steps.push({
      ordinal: series.ordinals[i],
      length,
      fresh: Math.max(0, length - Math.max(known, series.computed[i])),
    });
    known = Math.max(known, length);
  }
  return steps;
}

export class RecomputeView {
  #steps = [];
  #place = null;
  #request = null;

  constructor(tools, store) {
    const { words } = tools;
    this.tools = tools;
    this.store = store;
    this.cells = {};
    const row = (name) => {
      this.cells[name] = ['pairs', 'once', 'ratio'].map(() => h('td'));
      this.cells[`${name}.label`] = h('th', { scope: 'row' });
      return h('tr', {}, this.cells[`${name}.label`], ...this.cells[name]);
    };
    const column = (name) => heading(`panel.kv.recompute.${name}`, tools);
    this.details = [
      h(
        'table',
        { class: 'scope-table scope-costs' },
        h('thead', {}, h('tr', {}, h('td'), column('pairs'), column('once'), column('ratio'))),
        h('tbody', {}, row('request'), row('request.sized'), row('total'), row('total.sized')),
      ),
    ];
    this.footer = [
      h(
        'div',
        { class: 'scope-legends' },
        legend('fresh', words('panel.kv.recompute.fresh')),
        legend('again', words('panel.kv.recompute.again')),
      ),
    ];
  }

  hasContent(view) {
    return view.chosen !== null;
  }

  headline(view) {
    const { attentionPairs, tokensComputed } = view.chosen;
    return tokensComputed > 0
      ? this.tools.words('panel.kv.recompute.headline', { ratio: ratio(attentionPairs / tokensComputed) })
      : '';
  }

  updateDetails({ chosen, state }) {
    const { words } = this.tools;
    const size =
      state.header.shape === null ? null : state.header.shape.hidden_size * state.header.shape.num_layers;
    const times =
      size === null
        ? null
        : `× ${count(state.header.shape.hidden_size)} × ${count(state.header.shape.num_layers)}`;
    this.#fill(
      'request',
      words('panel.kv.recompute.request', { seat: seatLetter(chosen.seat) }),
      chosen.attentionPairs,
      chosen.tokensComputed,
    );
    this.#fillSized('request.sized', times, size, chosen.attentionPairs, chosen.tokensComputed);
    const { attention_pairs: pairs, tokens_computed: tokens } = state.totals;
    this.#fill('total', words('panel.kv.recompute.total'), pairs, tokens);
    this.#fillSized('total.sized', times, size, pairs, tokens);
  }

  draw(context, scene) {
    const { chosen, palette, width, height } = scene;
    this.#request = chosen;
    this.#steps = recomputation(chosen);
    this.#place = placeOf(this.#steps, width, height, palette.scale);
    drawScale(context, scene, this.#place);
    drawTriangle(context, scene, this.#place, this.#steps);
    drawStep(context, scene, this.#place, this.#steps);
    this.#labelAxes(context, palette);
  }

  find(x) {
    const place = this.#place;
    if (place === null || x < place.left || x > place.right) return null;
    const step = this.#steps[Math.floor((x - place.left) / place.cell)];
    if (step === undefined) return null;
    const { words } = this.tools;
    const column = this.store.history.column(step.ordinal);
    const content = {
      seat: this.#request.seat,
      title: words('panel.batch.tip.step', { step: column === null ? '?' : count(column.step.step_id) }),
      lines: [
        [words('panel.kv.recompute.length'), count(step.length)],
        [words('panel.kv.recompute.fresh'), count(step.fresh)],
        [words('panel.kv.recompute.again'), count(step.length - step.fresh)],
        [words('panel.batch.tip.pairs'), count(step.length * step.length)],
      ],
    };
    return { id: this.#request.id, ordinal: step.ordinal, content };
  }

  inWords({ chosen, state }) {
    return this.tools.words('panel.kv.recompute.summary', {
      seat: seatLetter(chosen.seat),
      pairs: count(chosen.attentionPairs),
      once: count(chosen.tokensComputed),
      ratio: ratio(chosen.attentionPairs / chosen.tokensComputed),
      total: count(state.totals.attention_pairs),
    });
  }

  #fill(name, text, pairs, once) {
    setText(this.cells[`${name}.label`], text);
    [count(pairs), count(once), ratio(once > 0 ? pairs / once : null)].forEach((value, i) =>
      setText(this.cells[name][i], value),
    );
  }

  #fillSized(name, times, size, pairs, once) {
    const { words } = this.tools;
    setText(this.cells[`${name}.label`], times ?? words('panel.kv.recompute.no_shape'));
    const sized = (value) => (size === null || value === null ? null : value * size);
    [count(sized(pairs)), count(sized(once)), ''].forEach((value, i) => setText(this.cells[name][i], value));
  }

  #labelAxes(context, palette) {
    const { words } = this.tools;
    const { left, right, bottom } = this.#place;
    label(
      context,
      words('panel.kv.recompute.axis', {
        seat: seatLetter(this.#request.seat),
        number: count(this.#steps.length),
      }),
      (left + right) / 2,
      bottom + (BOTTOM * palette.scale) / 2 + 1,
      {
        font: palette.text,
        colour: palette.mute,
        align: 'center',
      },
    );
  }
}

function placeOf(steps, width, height, scale) {
  const left = LEFT * scale;
  const right = width - 4;
  const cell = Math.min((right - left) / Math.max(steps.length, 24), 16 * scale);
  const longest = steps.reduce((most, step) => Math.max(most, step.length), 1);
  return { left, right, top: TOP * scale, bottom: height - BOTTOM * scale, cell, most: niceCeiling(longest) };
}

function drawScale(context, { palette }, place) {
  const style = { font: palette.small, colour: palette.mute, align: 'right' };
  for (const share of [0, 0.5, 1]) {
    const y = Math.round(place.bottom - share * (place.bottom - place.top));
    context.fillStyle = palette.line;
    context.fillRect(place.left, y, place.right - place.left, 1);
    if (share === 0 || Number.isInteger(share * place.most))
      label(context, count(share * place.most), place.left - 6, y, style);
  }
}

function drawTriangle(context, { palette, chosen }, place, steps) {
  const { fill } = palette.seat(chosen.seat);
  const gap = place.cell >= 4 ? 1 : 0;
  const unit = (place.bottom - place.top) / place.most;
  context.fillStyle = fill;
  steps.forEach((step, index) => {
    const x = place.left + index * place.cell;
    const width = Math.max(place.cell - gap, 0.5);
    const height = step.length * unit;
    const fresh = step.fresh > 0 ? Math.max(2, step.fresh * unit) : 0; // one token of many stays visible
    context.globalAlpha = 0.3;
    context.fillRect(x, place.bottom - height + fresh, width, Math.max(0, height - fresh));
    context.globalAlpha = 1;
    context.fillRect(x, place.bottom - height, width, fresh);
  });
}

function drawStep(context, { palette, crosshair }, place, steps) {
  const index = steps.findIndex((step) => step.ordinal === crosshair);
  if (index === -1) return;
  vertical(context, place.left + (index + 0.5) * place.cell, place.top, place.bottom, palette.accent, 2);
}
