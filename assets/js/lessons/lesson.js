// One lesson: its text, before and after the run; beside it the experiment and the code that does it.

import { AfterRun } from './after.js';
import { codeOf } from './code.js';
import { Experiment } from './experiment.js';
import { h } from '../dom.js';
import { prose } from './prose.js';

export class LessonView {
  /**
   * @param {object} lesson as `GET /lessons/{slug}` tells it
   * @param {{entered: string|null, said: string|null, outcome: object|null, asked: boolean}} known what the
   *   visitor entered, said and saw
   * @param {{words: Function, previous: object|null, next: object|null, open: Function, onDone: Function}} tools
   */
  constructor(lesson, known, tools) {
    const { words } = tools;
    this.lesson = lesson;
    this.after = new AfterRun(lesson.after_html, known.asked || known.outcome !== null, words, () => {
      known.asked = true;
    });
    this.experiment = new Experiment(lesson, known, {
      words,
      onDone: () => {
        this.after.show();
        tools.onDone();
      },
    });
    this.element = h(
      'article',
      { class: 'lessons-lesson', 'data-slug': lesson.slug },
      h(
        'div',
        { class: 'lessons-column' },
        h(
          'div',
          { class: 'lessons-card lessons-text' },
          h('p', { class: 'lessons-kicker' }, words('lessons.number', { number: lesson.number })),
          h('h2', { tabindex: '-1' }, lesson.title),
          prose(lesson.html),
        ),
        this.after.element,
        turns(tools),
      ),
      h(
        'div',
        { class: 'lessons-column' },
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
