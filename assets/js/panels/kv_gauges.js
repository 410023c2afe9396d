// A KV cache of which only sums are told: how much of it is in use, over time, and the counters.

import { h, setText } from '../dom.js';
import { duration, percent, roundDuration } from '../format.js';
import { label } from '../pen.js';
import { latestGauges } from '../gauges.js';
import { ServerTable } from './server_table.js';

const COLUMNS = ['usage', 'hit_rate', 'queries', 'hits', 'preemptions'];
const LEFT = 38;
const RIGHT = 20;
const AXIS = 17;
const TOP = 8;
const SHORTEST_SPAN = 30; // seconds
const DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3]];

export class GaugesView {
  #place = null;

  constructor(tools, store) {
    this.tools = tools;
    this.store = store;
    this.servers = new ServerTable(tools, COLUMNS);
    this.rest = h('p', { class: 'scope-rest' });
    this.details = [this.servers.element, this.rest];
    this.footer = [];
  }

  hasContent({ state }) {
    return latestGauges(state).length > 0;
  }

  headline({ state }) {
    const usages = latestGauges(state).map((record) => percent(record.kv_cache_usage));
    return this.tools.words('panel.kv.gauges.headline', { usage: usages.join(', ') });
  }

  updateDetails({ state }) {
    const { words } = this.tools;
    this.servers.update(latestGauges(state));
    setText(this.rest, state.header.notes?.kv ?? words('panel.kv.gauges.rest'));
  }

  dependsOn({ state, palette, moment, width, height }) {
    return [state.gauges, state.time, palette, moment, width, height];
  }

  draw(context, scene) {
    const { state, palette, width, height } = scene;
    const { scale } = palette;
    const lines = usageLines(state.gauges, state.time);
    this.#place = {
      ...lines,
      left: LEFT * scale,
      right: width - RIGHT * scale,
      top: TOP * scale,
      bottom: height - AXIS * scale,
    };
    drawAxes(context, scene, this.#place);
    lines.servers.forEach((line, index) => drawLine(context, palette, this.#place, line, index));
  }

  /** The samples at the time under the pointer. */
  find(x) {
    if (this.#place === null) return null;
    const { words } = this.tools;
    const { start, end, left, right, servers } = this.#place;
    const time = start + ((x - left) / (right - left)) * (end - start);
    const found = servers
      .map(({ server, samples }) => ({ server, sample: samples.findLast((one) => one.time <= time) }))
      .filter(({ sample }) => sample !== undefined);
    if (found.length === 0) return null;
    const lines = found.map(({ server, sample }) => [this.#nameOf(server), percent(sample.kv_cache_usage)]);
    const ago = duration(end - Math.max(...found.map(({ sample }) => sample.time)));
    const content = { title: words('panel.gauges.usage'), lines, note: words('panel.gauges.ago', { ago }) };
    return { id: null, ordinal: null, content };
  }

  inWords({ state }) {
    const { words } = this.tools;
    const parts = latestGauges(state).map((record) =>
      words('panel.kv.gauges.summary', {
        server: this.#nameOf(record.server),
        usage: percent(record.kv_cache_usage),
      }),
    );
    return parts.join(' ');
  }

  #nameOf(server) {
    const { words } = this.tools;
    return server === null ? words('panel.gauges.alone') : words('panel.gauges.numbered', { server });
  }
}

/**
 * Samples that tell the usage, by server, on a common time axis that ends at `now`. Pure.
 * @param {Map<number|null, object[]>} gauges
 */
export function usageLines(gauges, now) {
  const servers = [...gauges].map(([server, samples]) => ({
    server,
    samples: samples.filter((sample) => sample.kv_cache_usage !== null),
  }));
  const first = Math.min(now, ...servers.flatMap(({ samples }) => samples.slice(0, 1).map(({ time }) => time)));
  return { servers, start: Math.min(first, now - SHORTEST_SPAN), end: now };
}

function drawAxes(context, { palette, height, moment }, { left, right, top, bottom, start, end }) {
  const style = { font: palette.small, colour: palette.mute };
  for (const share of [0, 0.5, 1]) {
    const y = Math.round(bottom - share * (bottom - top));
    context.fillStyle = palette.line;
    context.fillRect(left, y, right - left, 1);
    label(context, percent(share), left - 6, y, { ...style, align: 'right' });
  }
  const y = height - (AXIS / 2) * palette.scale;
  label(context, `−${roundDuration(Math.round(end - start))}`, left, y, style);
  label(context, moment, right, y, { ...style, align: 'right' });
}

/** Steps, since a sample tells of its own moment and nothing is known until the next. */
function drawLine(context, palette, { start, end, left, right, top, bottom }, { server, samples }, index) {
  if (samples.length === 0) return;
  const xOf = (time) => left + ((time - start) / (end - start)) * (right - left);
  const yOf = (sample) => bottom - sample.kv_cache_usage * (bottom - top);
  context.strokeStyle = palette.accent;
  context.lineWidth = 2;
  context.setLineDash(DASHES[index % DASHES.length]);
  context.beginPath();
  samples.forEach((sample, place) => {
    if (place > 0) context.lineTo(xOf(sample.time), yOf(samples[place - 1]));
    context.lineTo(xOf(sample.time), yOf(sample));
  });
  const last = samples.at(-1);
  context.lineTo(right, yOf(last));
  context.stroke();
  context.setLineDash([]);
  if (server === null) return;
  label(context, String(server), right + 5, yOf(last), { font: palette.small, colour: palette.ink });
}
