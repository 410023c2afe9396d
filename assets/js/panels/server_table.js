// What each server tells of itself, a row a server, and where it was read.

import { h, setAttribute, setText } from '../dom.js';
import { heading } from './panel.js';
import { count, percent } from '../format.js';
import { hitRate } from '../gauges.js';

/** Column → what stands in it. */
const CELLS = {
  running: (record) => count(record.num_running),
  waiting: (record) => count(record.num_waiting),
  usage: (record) => percent(record.kv_cache_usage),
  hit_rate: (record) => percent(hitRate(record)),
  queries: (record) => count(record.prefix_cache_queries),
  hits: (record) => count(record.prefix_cache_hits),
  preemptions: (record) => count(record.num_preemptions),
};

export class ServerTable {
  #rows = new Map(); // server → {row, cells}

  /** @param {string[]} columns names in CELLS */
  constructor(tools, columns) {
    const { words } = tools;
    this.tools = tools;
    this.columns = columns;
    this.source = h('caption', { class: 'scope-source' });
    this.body = h('tbody');
    const names = columns.map((name) => heading(`panel.gauges.${name}`, tools));
    this.table = h(
      'table',
      { class: 'scope-table scope-servers' },
      this.source,
      h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, words('panel.gauges.server')), ...names)),
      this.body,
    );
    this.element = h(
      'div',
      { class: 'scope-server-table', tabindex: '0', role: 'region', 'aria-label': words('panel.gauges.table') },
      this.table,
    );
  }

  /** @param {object[]} latest the last `gauges` record of each server */
  update(latest) {
    this.element.hidden = latest.length === 0;
    for (const [server, { row }] of this.#rows) {
      if (latest.some((record) => record.server === server)) continue;
      row.remove();
      this.#rows.delete(server);
    }
    for (const record of latest) this.#updateRow(record);
    setAttribute(this.table, 'data-alone', latest.every(({ server }) => server === null));
    const sources = [...new Set(latest.map(({ source }) => source))].join(', ');
    setText(this.source, this.tools.words('panel.gauges.source', { source: sources }));
  }

  #updateRow(record) {
    const { server } = record;
    if (!this.#rows.has(server)) {
      const cells = this.columns.map(() => h('td'));
      const name = server === null ? this.tools.words('panel.gauges.alone') : count(server);
      const row = h('tr', {}, h('th', { scope: 'row' }, name), ...cells);
      this.#rows.set(server, { row, cells });
    }
    const { row, cells } = this.#rows.get(server);
    this.body.append(row); // in the order of the servers
    this.columns.forEach((name, index) => setText(cells[index], CELLS[name](record)));
  }
}
