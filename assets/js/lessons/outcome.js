// What was measured, beside what was said: the verdict, a picture, the table of all values, and the
// records that they come from.

import { barsPicture } from './bars.js';
import { h } from '../dom.js';
import { addressOfTrace } from './run.js';
import { valueInWords, verdictOf } from './values.js';

export class Outcome {
  /** @param {object} lesson @param {object} outcome @param {number|string} said */
  constructor(lesson, outcome, said, words) {
    Object.assign(this, { lesson, outcome, said, words });
  }

  get elements() {
    const { lesson, outcome, words } = this;
    const picture = lesson.picture === null ? null : barsPicture(lesson.picture, outcome.picture, words);
    return [this.#verdict(), picture, this.#table(), this.#records()].filter((element) => element !== null);
  }

  #verdict() {
    const { compares, choices } = this.lesson.prediction;
    const measured = this.outcome.measured.find(({ name }) => name === compares);
    const { verdict, sentence } = verdictOf(this.said, measured, this.words, choices);
    return h('p', { class: 'lessons-verdict', 'data-verdict': verdict, role: 'status' }, sentence);
  }

  #table() {
    const { lesson, outcome, words } = this;
    return h(
      'table',
      {},
      h('caption', { class: 'lessons-hidden' }, words('lessons.table')),
      h('thead', {}, headings(words)),
      h('tbody', {}, ...outcome.measured.map((measured) => this.#row(measured, lesson))),
    );
  }

  /** A file for each engine that ran; an experiment that only counts has none. */
  #records() {
    const { engines, run } = this.outcome;
    const { words } = this;
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

  #row({ name, value, unit, exposure }, { measured, prediction }) {
    const { words } = this;
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
}

function headings(words) {
  return h(
    'tr',
    {},
    h('th', { scope: 'col' }, words('lessons.table.what')),
    h('th', { scope: 'col' }, words('lessons.table.value')),
  );
}
