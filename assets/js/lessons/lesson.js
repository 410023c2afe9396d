// One lesson: its text; beside it the experiment and the code that does it.

import { codeOf } from './code.js';
import { Experiment } from './experiment.js';
import { h } from '../dom.js';

export class LessonView {
  /**
   * @param {object} lesson as `GET /lessons/{slug}` tells it
   * @param {{said: string|null, outcome: object|null}} known what the visitor said and saw before
   * @param {{words: Function, previous: object|null, next: object|null, open: Function, onDone: Function}} tools
   */
  constructor(lesson, known, tools) {
    const { words } = tools;
    this.lesson = lesson;
    this.experiment = new Experiment(lesson, known, tools);
    this.element = h(
      'article',
      { class: 'lessons-lesson', 'data-slug': lesson.slug },
      h(
        'div',
        { class: 'lessons-card lessons-text' },
        h('p', { class: 'lessons-kicker' }, words('lessons.number', { number: lesson.number })),
        h('h2', { tabindex: '-1' }, lesson.title),
        prose(lesson.html),
        turns(tools),
      ),
      h(
        'div',
        { class: 'lessons-beside' },
        this.experiment.element,
        h(
          'section',
          { class: 'lessons-card lessons-code' },
          h('h3', {}, words('lessons.code')),
          ...lesson.code.map((symbol, place) => codeOf(symbol, words, place === 0)),
        ),
      ),
    );
  }

  stop() {
    this.experiment.stop();
  }
}

/** The server's own rendering of a lesson's Markdown, in which HTML was escaped. */
function prose(html) {
  const element = h('div', { class: 'lessons-prose' });
  element.innerHTML = html;
  for (const pre of element.querySelectorAll('pre')) pre.tabIndex = 0; // it may be wider than its place
  return element;
}

function turns({ words, previous, next, open }) {
  const turn = (lesson, key) =>
    lesson === null
      ? h('span')
      : h(
          'button',
          { type: 'button', class: 'lessons-button', onclick: () => open(lesson.slug) },
          words(key, { title: lesson.title }),
        );
  return h(
    'nav',
    { class: 'lessons-turns', 'aria-label': words('lessons.turns') },
    turn(previous, 'lessons.previous'),
    turn(next, 'lessons.next'),
  );
}
