// The figure of the Latency panel: the gap before each token, over time. Pure.

import { gapsOf } from '../latency.js';
import { niceCeiling } from '../format.js';
import { seatLetter } from '../seats.js';

const MOST_POINTS = 400;
const LONGEST_SPAN = 120;
const SLOW = 2; // seconds: from there on the axis counts in seconds
const SYMBOLS = ['circle', 'diamond', 'square', 'triangle-up', 'cross', 'x', 'star', 'hexagon'];

const OVERHANG = 0.01; // of the axis after now, so that the last mark is whole
export const MARGIN = { l: 52, r: 10, t: 8, b: 30 };
const LOW = 110; // a lower chart has its unit in the marks of the axis, not below it
const LOW_BOTTOM = 17;

/**
 * @param {object[]} requests @param {number} now
 * @returns {{start: number, end: number, series: {request: object, times: number[], gaps: number[]}[]}}
 */
export function itlPoints(requests, now) {
  const series = [];
  let room = MOST_POINTS;
  for (const request of [...requests].reverse()) {
    const times = request.series.tokenTimes.slice(1, request.numTokenTimes);
    const gaps = gapsOf(request);
    const from = Math.max(
      times.findIndex((time) => time > now - LONGEST_SPAN),
      gaps.length - room,
    );
    if (gaps.length === 0 || times.at(-1) <= now - LONGEST_SPAN || room === 0) continue;
    series.push({ request, times: times.slice(from), gaps: gaps.slice(from) });
    room -= gaps.length - from;
  }
  const first = series.reduce((earliest, { times }) => Math.min(earliest, times[0]), now);
  const span = Math.max(5, Math.min(niceCeiling(now - first), LONGEST_SPAN));
  return { start: now - span, end: now, series: series.reverse() };
}

/** @param {{height: number}} view of the chart, in pixels */
export function itlFigure({ start, end, series }, { palette, words, lit, moment, height }) {
  const isSlow = series.some(({ gaps }) => gaps.some((gap) => gap > SLOW));
  const unit = isSlow ? { name: 's', perSecond: 1 } : { name: 'ms', perSecond: 1000 };
  const traces = series.map(({ request, times, gaps }) => ({
    type: 'scatter',
    mode: 'markers',
    name: seatLetter(request.seat),
    x: times.map((time) => time - end),
    y: gaps.map((gap) => gap * unit.perSecond),
    marker: markerOf(request, gaps, palette, lit),
    cliponaxis: false, // a mark at zero lies on the axis, and is whole
    hovertemplate: `${seatLetter(request.seat)}  %{y:.3~r} ${unit.name}<extra></extra>`,
  }));
  return {
    traces,
    layout: layoutOf(start, end, palette, {
      x: height < LOW * palette.scale ? null : words('panel.latency.chart.x', { moment }),
      y: words('panel.latency.chart.y', { unit: unit.name }),
    }),
  };
}

/** A gap of zero is two tokens in one delivery: an open mark, so that it is seen. */
function markerOf(request, gaps, palette, lit) {
  const symbol = SYMBOLS[request.seat % SYMBOLS.length];
  return {
    color: palette.seat(request.seat).fill,
    symbol: gaps.map((gap) => (gap === 0 ? `${symbol}-open` : symbol)),
    size: 5 * palette.scale,
    opacity: lit === null || lit === request.id ? 0.9 : 0.15,
  };
}

/** Where in the width of the chart a step ended, 0 to 1; `null` when it is older than the axis. */
export function timeShare(step, { start, end }) {
  const time = step.start_time + step.duration;
  const share = (time - start) / ((end - start) * (1 + OVERHANG));
  return share < 0 || share > 1 ? null : share;
}

function layoutOf(start, end, palette, titles) {
  const font = { family: 'inherit', size: 10.5 * palette.scale, color: palette.mute };
  const axis = {
    gridcolor: palette.line,
    zerolinecolor: palette.line,
    linecolor: palette.line,
    tickfont: font,
    fixedrange: true,
  };
  const margin = titles.x === null ? { ...MARGIN, b: LOW_BOTTOM } : MARGIN;
  const m = Object.fromEntries(Object.entries(margin).map(([side, size]) => [side, size * palette.scale]));
  return {
    margin: m,
    paper_bgcolor: 'rgba(0,0,0,0)',
    plot_bgcolor: 'rgba(0,0,0,0)',
    showlegend: false,
    hovermode: 'closest',
    hoverlabel: { font: { ...font, color: palette.ink }, bgcolor: palette.card, bordercolor: palette.line },
    xaxis: {
      ...axis,
      range: [start - end, OVERHANG * (end - start)],
      ...(titles.x === null ? { ticksuffix: ' s' } : { title: { text: titles.x, font, standoff: 4 } }),
      nticks: 6,
    },
    yaxis: {
      ...axis,
      rangemode: 'tozero',
      title: { text: titles.y, font, standoff: 6 },
      nticks: 5,
    },
    uirevision: 'still',
  };
}
