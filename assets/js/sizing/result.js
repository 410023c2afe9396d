// What came back: does it start, the card to scale, the table, and what an engine that runs reports.

import { h } from '../dom.js';
import { count, percent } from '../format.js';
import { layoutBar } from './bar.js';
import { exactText, figureText, memory, share } from './values.js';

export function drawVerdict({ verdict, plan, figures }, words) {
  const value = (key) => figures.get(key).value;
  const { reason } = verdict;
  const sentence = words(`sizing.reason.${reason}`, {
    reserved: memory(value('reserved')),
    free: memory(plan.free_memory),
    weights: memory(value('weights')),
    other: memory(plan.other_memory),
    kv: memory(Math.max(0, value('kv_cache'))),
    length: count(plan.max_model_len),
    requests: count(value('full_length_requests')),
    heads: count(plan.num_attention_heads),
    cards: count(plan.tensor_parallel_size),
  });
  return [
    h(
      'p',
      { class: 'sizing-verdict', 'data-starts': String(verdict.starts) },
      h('i', { 'aria-hidden': 'true' }),
      h('b', {}, words(verdict.starts ? 'sizing.starts' : 'sizing.refused')),
      h('span', {}, sentence),
    ),
    drawShares(value('lowest_utilization'), value('highest_utilization'), words),
    verdict.message === null
      ? null
      : h(
          'figure',
          { class: 'sizing-quote' },
          h('blockquote', { lang: 'en' }, verdict.message),
          h('figcaption', {}, h('code', {}, verdict.where)),
        ),
  ].filter((part) => part !== null);
}

function drawShares(lowest, highest, words) {
  const [from, to] = [share(lowest, Math.ceil), share(highest, Math.floor)];
  const starts = Number(from) <= Number(to) && Number(from) <= 1;
  const text = starts ? words('sizing.shares', { from, to }) : words('sizing.shares.none');
  return h('p', { class: 'sizing-shares' }, text);
}

export function drawBar({ plan, figures }, words) {
  const bar = layoutBar({
    total: plan.total_memory,
    free: plan.free_memory,
    reserved: figures.get('reserved').value,
    weights: figures.get('weights').value,
    other: plan.other_memory,
  });
  const row = (name, parts) =>
    h(
      'div',
      { class: 'sizing-bar-row' },
      h('span', { class: 'sizing-bar-name' }, words(`sizing.bar.${name}`)),
      h(
        'div',
        { class: 'sizing-bar', 'aria-hidden': 'true' },
        ...parts
          .filter(([, bytes]) => bytes > 0)
          .map(([part, bytes]) => h('i', { 'data-part': part, style: `width: ${(bytes / bar.scale) * 100}%` })),
        h('b', { class: 'sizing-mark', style: `left: ${(name === 'card' ? bar.freeShare : bar.reservedShare) * 100}%` }),
      ),
    );
  const legend = [...bar.card, ...bar.plan].filter(([, bytes]) => bytes > 0);
  return h(
    'div',
    { class: 'sizing-picture' },
    row('card', bar.card),
    row('plan', bar.plan),
    h(
      'ul',
      { class: 'sizing-legend' },
      ...legend.map(([part, bytes]) =>
        h(
          'li',
          {},
          h('i', { 'data-part': part, 'aria-hidden': 'true' }),
          `${words(`sizing.part.${part}`)} `,
          h('span', { class: 'mono' }, memory(bytes)),
        ),
      ),
    ),
  );
}

export function drawTable({ figures }, words) {
  return h(
    'table',
    { class: 'sizing-table', 'aria-label': words('sizing.table') },
    h('thead', {}, h('tr', {}, ...['figure', 'value', 'formula'].map((name) => h('th', { scope: 'col' }, words(`sizing.column.${name}`))))),
    h(
      'tbody',
      {},
      ...[...figures.values()].map((figure) =>
        h(
          'tr',
          { 'data-figure': figure.key },
          h('th', { scope: 'row' }, words(`sizing.figure.${figure.key}`)),
          h('td', { class: 'mono', title: exactText(figure) }, figureText(figure, words)),
          h('td', {}, h('code', {}, figure.formula), h('code', { class: 'sizing-filled' }, `= ${figure.filled}`)),
        ),
      ),
    ),
  );
}

/** Beside the calculation: an engine's own blocks, and how near the two are. */
export function drawReported(reported, words) {
  if (reported === null) return [h('p', { class: 'sizing-quiet' }, words('sizing.reported.none'))];
  const { engine, num_blocks, block_size, expected_blocks, agreement, rule } = reported;
  const rows = [
    ['num_blocks', count(num_blocks)],
    ['block_size', count(block_size)],
    ['max_model_len', count(reported.max_model_len)],
    ['max_num_seqs', count(reported.max_num_seqs)],
    ['tokens', count(num_blocks * block_size)],
    ['kv_cache', memory(reported.kv_cache)],
    ...(expected_blocks === null ? [] : [['expected_blocks', count(expected_blocks)]]),
    ...(agreement === null ? [] : [['agreement', percentOf(agreement)]]),
  ];
  return [
    h(
      'dl',
      { class: 'sizing-reported' },
      ...rows.map(([name, value]) =>
        h('div', { 'data-row': name }, h('dt', {}, words(`sizing.reported.${name}`)), h('dd', { class: 'mono' }, value)),
      ),
    ),
    h('p', { class: 'sizing-quiet' }, words(`sizing.rule.${rule}`, { engine })),
  ];
}

/** 0.9973 → "99.7%": near 100 the tenth counts. */
function percentOf(share) {
  return share > 0.9 && share < 1 ? `${(share * 100).toFixed(1)}%` : percent(share);
}
