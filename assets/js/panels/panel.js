// The frame of every panel: title, how it knows, headline, picture, legend, and the same in text.

import { h, hidden, setAttribute, setText } from '../dom.js';
import { Picture } from '../canvas.js';
import { explain } from '../tooltip.js';
import { motif } from './motifs.js';

const SUMMARY_INTERVAL = 2000; // a calm rate for screen readers

export class Panel {
  #noteText = '';
  #summaryAt = -Infinity;
  #compose = null; // of the summary that waits for its time

  /**
   * @param {string} name batch, kv, queues or latency
   * @param {{words: Function, tooltip: object, signal: AbortSignal, prefix: string}} tools
   */
  constructor(name, tools) {
    const { words } = tools;
    const id = `${tools.prefix}panel-${name}`;
    this.name = name;
    this.tools = tools;
    this.headline = h('span', { class: 'scope-headline' });
    this.actions = h('span', { class: 'scope-actions' });
    this.note = hidden({ id: `${id}-note` });
    this.chip = h('button', {
      type: 'button',
      class: 'scope-chip',
      'aria-describedby': `${id}-note`,
      hidden: true,
    });
    this.hint = h('p');
    this.empty = h('div', { class: 'scope-empty' }, motif(name), this.hint);
    this.body = h('div', { class: 'scope-body' });
    this.footer = h('div', { class: 'scope-footer' });
    this.summaryId = `${id}-summary`;
    this.summary = hidden({ id: this.summaryId });
    this.summaryTimer = null;
    tools.signal.addEventListener('abort', () => clearTimeout(this.summaryTimer));
    this.element = h(
      'section',
      { class: 'scope-panel', id, 'data-panel': name, 'aria-labelledby': `${id}-title`, 'data-empty': true },
      h(
        'header',
        {},
        h('h2', { id: `${id}-title` }, words(`panel.${name}.title`)),
        this.chip,
        this.note,
        this.actions,
        this.headline,
      ),
      h('div', { class: 'scope-stage' }, this.body, this.empty),
      this.footer,
      this.summary,
    );
    this.#explainChip();
  }

  /** A canvas that fills `host`, described by the summary. */
  picture(host, onResize) {
    return new Picture(host, {
      label: this.tools.words(`panel.${this.name}.picture`),
      describedBy: this.summaryId,
      onResize,
    });
  }

  /** Say how this panel knows, from the header. */
  setExposure(header) {
    const { words } = this.tools;
    const exposure = header?.measured[this.name] ?? null;
    this.chip.hidden = exposure === null;
    if (exposure === null) return;
    setText(this.chip, words(`panel.exposure.${exposure}`));
    setAttribute(this.chip, 'data-exposure', exposure);
    const told = header.notes?.[this.name] ?? null;
    this.#noteText = told ?? words(`panel.${this.name}.formula`);
    setText(this.note, this.#noteText);
    setAttribute(this.note, 'lang', told === null ? null : 'en'); // engines speak English
  }

  /** A sentence instead of the picture; `null` shows the picture. */
  setEmpty(sentence) {
    setAttribute(this.element, 'data-empty', sentence !== null);
    if (sentence !== null) setText(this.hint, sentence);
  }

  setHeadline(text) {
    setText(this.headline, text);
  }

  /** The picture in words, at most every two seconds, and the last for certain. `compose` is called
   *  only when it is time. */
  setSummary(compose) {
    this.#compose = compose;
    const wait = this.#summaryAt + SUMMARY_INTERVAL - performance.now();
    if (wait <= 0) this.#summarize();
    else this.summaryTimer ??= setTimeout(() => this.#summarize(), wait);
  }

  #summarize() {
    clearTimeout(this.summaryTimer);
    this.summaryTimer = null;
    this.#summaryAt = performance.now();
    setText(this.summary, this.#compose());
  }

  #explainChip() {
    const { words } = this.tools;
    const content = () => ({
      title: words(`panel.exposure.${this.chip.dataset.exposure}.meaning`),
      note: this.#noteText,
    });
    explain(this.chip, content, this.tools);
  }
}

/** The heading of a table's column, which says what it means. @param {string} key of its words */
export function heading(key, tools) {
  const { words } = tools;
  const cell = h('th', { scope: 'col', tabindex: '0' }, words(key));
  explain(cell, () => ({ title: words(key), note: words(`${key}.meaning`) }), tools);
  return cell;
}

/** An entry of a legend: a small swatch drawn by CSS, and its word. */
export function legend(kind, text) {
  return h('span', { class: 'scope-legend' }, h('i', { 'data-kind': kind }), text);
}
