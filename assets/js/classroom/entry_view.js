// One engine's part of a race: what it is, how far it is, and in the end its lanes.

import { LanesPicture } from './lanes_picture.js';
import { duration, percent, rate } from '../format.js';
import { h, setAttribute, setText } from '../dom.js';

const UNDER_WAY = ['starting', 'running'];

export class EntryView {
  #hasResult = false;

  /** @param {object} told an entry of the race's progress */
  constructor(tools, told, index, { onPoint, onResize }) {
    this.tools = tools;
    const { words } = tools;
    this.title = titleOf(told, words);
    this.facts = h('span', { class: 'classroom-facts mono' });
    this.status = h('span', { class: 'classroom-status' });
    this.bar = h('i');
    this.progress = h(
      'div',
      {
        class: 'classroom-progress',
        role: 'progressbar',
        'aria-label': this.title,
        'aria-valuemin': '0',
        'aria-valuemax': '100',
      },
      this.bar,
    );
    this.picture = new LanesPicture({
      tools,
      name: words('classroom.picture', { engine: this.title }),
      id: `classroom-summary-${index}`,
      onPoint,
      onResize,
    });
    this.element = h(
      'section',
      { class: 'classroom-entry', 'aria-label': this.title },
      h('header', {}, h('h3', {}, this.title), this.facts, this.status),
      this.progress,
      this.picture.element,
    );
    this.picture.element.hidden = true;
    this.update(told);
  }

  update(told) {
    setAttribute(this.element, 'data-state', told.state);
    if (!this.#hasResult) setText(this.status, statusOf(told, this.tools.words));
    const share = shareOf(told);
    this.progress.hidden = !UNDER_WAY.includes(told.state);
    this.bar.style.width = `${share * 100}%`;
    setAttribute(this.progress, 'aria-valuenow', Math.round(share * 100));
  }

  /** @param {object} entry with its result */
  show(entry, scale) {
    const { words } = this.tools;
    const { engine, ...result } = entry.result;
    if (engine !== null) setText(this.facts, [engine.model, engine.dtype, engine.device].join(' · '));
    const summary = words('classroom.picture.summary', {
      engine: this.title,
      number: result.num_requests,
      complete: result.num_complete,
      finish: duration(result.finish_time),
      ttft: duration(result.ttft?.p50),
      ttft95: duration(result.ttft?.p95),
      rate: rate(result.tokens_per_second),
    });
    this.#hasResult = true;
    this.picture.element.hidden = false;
    this.picture.show({ result, scale, summary });
    setText(this.status, endSentence(entry, words));
  }

  draw(view) {
    this.picture.draw(view);
  }

  stop() {
    this.picture.stop();
  }
}

export function titleOf({ title, mode }, words) {
  return mode === null ? title : `${title} · ${words(`classroom.mode.${mode}`)}`;
}

/** How far it is, from 0 to 1: its engine's start, then its requests. */
export function shareOf({ state, engine, num_ended: ended, num_requests: number }) {
  if (state === 'starting') return engine?.progress ?? 0;
  return ended / number;
}

export function statusOf({ state, reason, engine, num_ended: ended, num_requests: number }, words) {
  const values = { ended, number };
  if (state === 'starting') {
    const parts = [
      words('classroom.state.starting'),
      engine?.reason,
      engine?.progress && percent(engine.progress),
    ];
    return parts.filter(Boolean).join(' · ');
  }
  if (state === 'running' && engine?.state === 'paused') return words('classroom.state.paused', values);
  return [words(`classroom.state.${state}`, values), reason].filter(Boolean).join(': ');
}

function endSentence(entry, words) {
  const { result, state } = entry;
  const parts = [
    state === 'done'
      ? words('classroom.finished', { time: duration(result.finish_time) })
      : statusOf(entry, words),
  ];
  if (result.num_failed > 0)
    parts.push(words('classroom.failed', { number: result.num_failed, error: result.error ?? '' }));
  return parts.join(' · ');
}
