// The code that a lesson is about, with the numbers its lines have in the file. Read when it is opened.

import { h } from '../dom.js';

const BREAKABLE = /(?<=[([{.=])(?=\w)/; // where a line may go on below, beside its spaces

/** @param {string} symbol `path::Symbol` */
export function codeOf(symbol, words, isOpen) {
  const body = h('div', { class: 'lessons-source' });
  const [path, name] = symbol.split('::');
  const details = h(
    'details',
    { open: isOpen, 'data-symbol': symbol },
    h('summary', {}, h('b', {}, name), h('span', {}, path)),
    body,
  );
  const show = async () => {
    if (!details.open || body.childElementCount > 0) return;
    const source = await read(symbol);
    body.replaceChildren(source === null ? h('p', {}, words('lessons.code.away')) : listing(source, symbol));
  };
  details.addEventListener('toggle', show);
  show();
  return details;
}

async function read(symbol) {
  const url = new URL('code', document.baseURI);
  url.searchParams.set('symbol', symbol);
  const response = await fetch(url).catch(() => null); // away
  return response?.ok ? response.json() : null;
}

function listing({ source, first_line: first }, symbol) {
  const lines = source.replace(/\n$/, '').split('\n');
  const indent = Math.min(...lines.filter((line) => line.trim()).map((line) => line.search(/\S/)));
  return h(
    'pre',
    { tabindex: '0', 'aria-label': symbol, style: `counter-reset: line ${first - 1}` },
    ...lines.map((line) => codeLine(line.slice(indent))),
  );
}

/** One too long for its place goes on below, further in than it begins. */
function codeLine(line) {
  const indent = line.length - line.trimStart().length;
  const [first, ...rest] = `${line}\n`.split(BREAKABLE);
  return h('span', { style: `--indent: ${indent}ch` }, first, ...rest.flatMap((part) => [h('wbr'), part]));
}
