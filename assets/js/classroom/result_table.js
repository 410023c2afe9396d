// The figures of a race: a row a figure with its formula on hover, a column an engine.

import { asCsv, asMarkdown, rowsOf } from './figures.js';
import { explain } from '../tooltip.js';
import { h, hidden } from '../dom.js';
import { saveAs, toClipboard } from './files.js';
import { titleOf } from './entry_view.js';

export class ResultTable {
  constructor(tools) {
    this.tools = tools;
    const { words } = tools;
    this.notes = h('ul', { class: 'classroom-notes' });
    this.scroll = h('div', {
      class: 'classroom-scroll',
      tabindex: '0',
      role: 'region',
      'aria-label': words('classroom.table'),
    });
    this.copied = h('span', { class: 'classroom-copied', role: 'status' });
    this.element = h(
      'section',
      { class: 'card classroom-table-card', hidden: true },
      h('header', {}, h('h2', {}, words('classroom.table')), this.copied, ...this.#actions()),
      this.notes,
      this.scroll,
    );
    this.entries = [];
  }

  /** @param {object[]} entries of a race, with what results there are */
  show(entries) {
    this.entries = entries;
    this.element.hidden = entries.every(({ result }) => result === null);
    const { words } = this.tools;
    this.notes.replaceChildren(...notesOf(entries, words).map((note) => h('li', {}, note)));
    const heads = entries.map((entry) => h('th', { scope: 'col' }, ...this.#head(entry)));
    const body = rowsOf(entries).map((row) =>
      h('tr', {}, this.#name(row), ...row.cells.map((cell) => this.#cell(cell, row.name))),
    );
    this.scroll.replaceChildren(
      h(
        'table',
        { class: 'classroom-table' },
        h('caption', { class: 'scope-hidden' }, words('classroom.table')),
        h('thead', {}, h('tr', {}, h('td'), ...heads)),
        h('tbody', {}, ...body),
      ),
    );
  }

  #head(entry) {
    const facts = entry.result?.engine;
    const title = h('span', {}, titleOf(entry, this.tools.words));
    return [title, ...(facts ? [h('small', { class: 'mono' }, facts.dtype)] : [])];
  }

  #name({ name }) {
    const { words } = this.tools;
    const cell = h('th', { scope: 'row', tabindex: '0' }, words(`classroom.figure.${name}`));
    const content = {
      title: words(`classroom.figure.${name}`),
      note: words(`classroom.figure.${name}.meaning`),
    };
    explain(cell, () => content, this.tools);
    return cell;
  }

  #cell({ text, absent, best, factor }, name) {
    const { words } = this.tools;
    if (text === null) {
      return h(
        'td',
        { class: 'classroom-absent', title: words(`classroom.absent.${absent}.meaning`) },
        words(`classroom.absent.${absent}`),
      );
    }
    const mark = best
      ? [
          h('span', { class: 'classroom-star', 'aria-hidden': 'true' }, '★'),
          hidden({}, words('classroom.best')),
        ]
      : [];
    const times =
      factor === null
        ? []
        : [
            h(
              'small',
              { title: words('classroom.factor', { name: words(`classroom.figure.${name}`) }) },
              factor,
            ),
          ];
    return h('td', { 'data-best': best ? 'true' : null }, ...mark, ...times, text);
  }

  #actions() {
    const { words } = this.tools;
    const copy = h('button', { type: 'button', class: 'classroom-link-button' }, words('classroom.copy'));
    copy.addEventListener('click', async () => {
      await toClipboard(this.#markdown());
      this.copied.textContent = words('classroom.copied');
    });
    const save = h('button', { type: 'button', class: 'classroom-link-button' }, words('classroom.csv'));
    save.addEventListener('click', () => saveAs('race.csv', 'text/csv', asCsv(this.#titles(), this.entries)));
    return [copy, save];
  }

  #titles() {
    return this.entries.map((entry) => titleOf(entry, this.tools.words));
  }

  #markdown() {
    const { words } = this.tools;
    const text = ({ text: value, absent, best, factor }) =>
      value === null
        ? words(`classroom.absent.${absent}`)
        : `${best ? `**${value}**` : value}${factor ? ` (${factor})` : ''}`;
    return asMarkdown(
      this.#titles(),
      rowsOf(this.entries),
      ({ name }) => words(`classroom.figure.${name}`),
      text,
    );
  }
}

/** What must be known before the columns are compared. */
export function notesOf(entries, words) {
  const told = entries.filter(({ result }) => result !== null);
  const engines = told.filter(({ result }) => result.engine !== null);
  const names = (some) => some.map((entry) => titleOf(entry, words)).join(', ');
  const differ = (fact) => new Set(engines.map(({ result }) => result.engine[fact])).size > 1;
  const facts = (fact) =>
    engines.map((entry) => `${titleOf(entry, words)}: ${entry.result.engine[fact]}`).join(', ');
  const those = (key, isSo) => {
    const some = told.filter(({ result }) => isSo(result));
    return some.length === 0 ? null : words(key, { engines: names(some) });
  };
  return [
    differ('model') ? words('classroom.note.model', { engines: facts('model') }) : null,
    differ('dtype') ? words('classroom.note.dtype', { engines: facts('dtype') }) : null,
    differ('device') ? words('classroom.note.device', { engines: facts('device') }) : null,
    those('classroom.note.short', (result) => result.num_short > 0),
    those('classroom.note.together', (result) => result.num_zero_gaps > 0 && result.itl.p50 === 0),
    those('classroom.note.others', (result) => result.num_others > 0),
  ].filter((note) => note !== null);
}
