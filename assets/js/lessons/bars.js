// A picture of bars, drawn once: one bar a step or a request, its parts on each other or side by side.

import { h } from '../dom.js';
import { count } from '../format.js';
import { valueInWords } from './values.js';

const SVG = 'http://www.w3.org/2000/svg';
const WIDTH = 600;
const HEIGHT = 150;
const FEW = 8; // bars that each get a number below
const WIDEST = 70;

/**
 * @param {{title: string, bar: string, bars: string[], series: object}} labels
 * @param {{series: string[], bars: number[][], unit: string, stacked: boolean}} picture
 */
export function barsPicture(labels, picture, words) {
  const top = Math.max(...picture.bars.map((bar) => heightOf(bar, picture))) || 1;
  const svg = element('svg', {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    preserveAspectRatio: 'none',
    role: 'img',
    'aria-label': summary(labels, picture, words),
  });
  svg.append(element('line', { class: 'lessons-grid', x1: 0, x2: WIDTH, y1: HEIGHT / 2, y2: HEIGHT / 2 }));
  picture.bars.forEach((bar, place) => svg.append(...partsOf(bar, place, picture, top)));
  return h(
    'figure',
    { class: 'lessons-picture' },
    h('figcaption', {}, labels.title, legend(labels, picture)),
    h(
      'div',
      { class: 'lessons-plot' },
      h('span', { class: 'lessons-top', 'aria-hidden': 'true' }, valueInWords(top, picture.unit, words)),
      svg,
    ),
    axis(labels, picture.bars.length),
  );
}

function heightOf(bar, { stacked }) {
  return stacked ? bar.reduce((sum, part) => sum + part, 0) : Math.max(...bar);
}

function partsOf(bar, place, { bars, stacked }, top) {
  const room = WIDTH / bars.length;
  const width = Math.min(room * 0.84, WIDEST);
  const left = room * place + (room - width) / 2;
  const part = stacked ? width : width / bar.length;
  let base = 0;
  return bar.map((value, series) => {
    const height = (value / top) * HEIGHT;
    const rect = element('rect', {
      class: `lessons-series-${series}`,
      x: stacked ? left : left + part * series,
      y: HEIGHT - base - height,
      width: part,
      height,
    });
    if (stacked) base += height;
    return rect;
  });
}

/** One series needs no name beside the title. */
function legend({ series }, picture) {
  if (picture.series.length < 2) return null;
  return h(
    'span',
    { class: 'lessons-legend' },
    ...picture.series.map((name, place) =>
      h('span', {}, h('i', { class: `lessons-series-${place}`, 'aria-hidden': 'true' }), series[name]),
    ),
  );
}

function axis({ bar, bars }, total) {
  const numbers = total <= FEW ? Array.from({ length: total }, (_, place) => place + 1) : [1, total];
  return h(
    'div',
    { class: 'lessons-axis', 'data-few': total <= FEW, 'aria-hidden': 'true' },
    ...numbers.map((number) => h('span', {}, breakable(bars[number - 1] ?? `${bar} ${count(number)}`))),
  );
}

/** A name may go on in the next line after an underscore. */
const breakable = (name) => name.replaceAll('_', '_\u200b');

/** What a reader who does not see the picture hears: each series at its first, largest and last bar. */
function summary({ title, bar, series }, picture, words) {
  const say = (value) => valueInWords(value, picture.unit, words);
  const parts = picture.series.map((name, place) => {
    const values = picture.bars.map((one) => one[place]);
    return words('lessons.picture.series', {
      name: series[name],
      first: say(values[0]),
      most: say(Math.max(...values)),
      last: say(values.at(-1)),
    });
  });
  return `${title}. ${words('lessons.picture.bars', { bar, count: picture.bars.length })} ${parts.join(' ')}`;
}

function element(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  return made;
}
