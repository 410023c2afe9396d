// What was measured: a picture, the table of all values, and the records that they come from.

import { barsPicture } from './bars.js';
import { h } from '../dom.js';
import { addressOfTrace } from './run.js';
import { valueInWords } from './values.js';

/** @param {object} outcome @param {object} lesson @returns {HTMLElement[]} */
export function elementsOf(outcome, lesson, words) {
  const picture = lesson.picture === null ? null : barsPicture(lesson.picture, outcome.picture, words);
  return [picture, table(outcome, lesson, words), records(outcome, words)].filter((element) => element !== null);
}

function table(outcome, lesson, words) {
  return h(
    'table',
    {},
    h('caption', { class: 'lessons-hidden' }, words('lessons.table')),
    h('thead', {}, headings(words)),
    h('tbody', {}, ...outcome.measured.map((measured) => row(measured, lesson, words))),
  );
}

function headings(words) {
  return h(
    'tr',
    {},
    h('th', { scope: 'col' }, words('lessons.table.what')),
    h('th', { scope: 'col' }, words('lessons.table.value')),
  );
}

function row({ name, value, unit, exposure }, { measured, prediction }, words) {
  const isCompared = name === prediction.compares;
  return h(
    'tr',
    { 'data-name': name, 'data-compared': isCompared },
    h(
      'th',
      { scope: 'row' },
      measured[name].name,
      h(
        'small',
        {},
        h('b', { title: words(`panel.exposure.${exposure}.meaning`) }, words(`panel.exposure.${exposure}`)),
        ` ${measured[name].how}`,
      ),
    ),
    h('td', {}, valueInWords(value, unit, words, prediction.choices)),
  );
}

/** A file for each engine that ran; an experiment that only counts has none. */
function records({ engines, run }, words) {
  if (engines.length === 0) return null;
  const links = engines.map((engine, place) =>
    h(
      'a',
      { href: addressOfTrace(run, place), download: '' },
      engines.length > 1 ? `${place + 1} ${engine}` : engine,
    ),
  );
  return h('p', { class: 'lessons-records' }, words('lessons.records'), ...links);
}
