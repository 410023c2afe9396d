// The Lessons tab: the list on the left, one lesson beside it. `?lesson=<slug>` says which.

import { LessonView } from './lesson.js';
import { doneLessons } from './done.js';
import { h, setAttribute } from '../dom.js';
import { setParameter } from '../page/address.js';

/** @param {HTMLElement} root @param {{words: Function}} tools */
export function create(root, { words }) {
  const lessons = new Lessons(root, words);
  lessons.load();
  return lessons;
}

class Lessons {
  #known = new Map(); // slug → what the visitor has said and seen, for as long as the page is open
  #view = null;
  #list = [];
  #turn = 0; // of the openings: a later one wins

  constructor(root, words) {
    this.words = words;
    this.done = doneLessons();
    this.nav = h('nav', { class: 'lessons-list', 'aria-label': words('lessons.list') });
    this.place = h('div', { class: 'lessons-place' });
    root.replaceChildren(this.nav, this.place);
  }

  unmount() {
    this.#view?.stop();
  }

  async load() {
    const asked = await ask(`lessons?lang=${document.documentElement.lang}`);
    if (asked === null) return this.#fail();
    this.#list = asked.lessons;
    const wanted = new URLSearchParams(location.search).get('lesson');
    const first = this.#list.find(({ slug }) => slug === wanted) ?? this.#list[0];
    this.#drawList();
    return this.open(first.slug, { keepAddress: wanted !== first.slug });
  }

  /**
   * One that is shown already stays as it is, with its run and what was entered.
   * @returns {Promise<boolean>} whether it is the one that is shown now
   */
  async open(slug, { keepAddress = false } = {}) {
    const turn = (this.#turn += 1);
    if (slug !== this.#view?.lesson.slug) {
      this.#view?.stop();
      const lesson = await ask(`lessons/${slug}?lang=${document.documentElement.lang}`);
      if (turn !== this.#turn) return false; // another was chosen meanwhile
      if (lesson === null) return this.#fail();
      this.#show(lesson);
    }
    if (!keepAddress) setParameter('lesson', slug);
    return true;
  }

  #show(lesson) {
    const { slug } = lesson;
    if (!this.#known.has(slug)) this.#known.set(slug, { entered: null, said: null, outcome: null, asked: false });
    const place = this.#list.findIndex((one) => one.slug === slug);
    this.#view = new LessonView(lesson, this.#known.get(slug), {
      words: this.words,
      previous: this.#list[place - 1] ?? null,
      next: this.#list[place + 1] ?? null,
      open: (other) => this.#choose(other),
      onDone: () => {
        this.done.add(slug);
        this.#drawList();
      },
    });
    this.place.replaceChildren(this.#view.element);
    this.#mark(slug);
  }

  #drawList() {
    const { words } = this;
    const entries = this.#list.map(({ slug, number, title, missing }) =>
      h(
        'li',
        {},
        h(
          'button',
          { type: 'button', 'data-slug': slug, title: missing, onclick: () => this.#choose(slug) },
          h('span', { class: 'lessons-number' }, String(number)),
          h('span', { class: 'lessons-name' }, title),
          this.done.has(slug)
            ? h('span', { class: 'lessons-done', role: 'img', 'aria-label': words('lessons.done') }, '✓')
            : null,
        ),
      ),
    );
    const held = this.nav.contains(document.activeElement) ? document.activeElement.dataset.slug : null;
    const count = this.#list.filter(({ slug }) => this.done.has(slug)).length;
    this.nav.replaceChildren(
      h('h2', {}, words('page.tab.lessons')),
      h('p', {}, words('lessons.count', { done: count, all: this.#list.length })),
      h('ol', {}, ...entries),
    );
    this.#mark(this.#view?.lesson.slug);
    this.nav.querySelector(`[data-slug="${held}"]`)?.focus();
  }

  /** Whoever pressed a button to come here reads on at the title. */
  async #choose(slug) {
    if (await this.open(slug)) this.place.querySelector('h2').focus();
  }

  #mark(slug) {
    for (const button of this.nav.querySelectorAll('button')) {
      setAttribute(button, 'aria-current', button.dataset.slug === slug ? 'page' : null);
    }
    const current = this.nav.querySelector('[aria-current]');
    if (current !== null) bringIntoView(this.nav, current);
  }

  #fail() {
    this.#view = null;
    const again = async () => {
      if (await this.load()) this.place.querySelector('h2').focus();
    };
    this.place.replaceChildren(
      h(
        'div',
        { class: 'lessons-card', role: 'alert' },
        h('p', {}, this.words('lessons.unreachable')),
        h('button', { type: 'button', class: 'lessons-button', onclick: again }, this.words('lessons.again')),
      ),
    );
    return false;
  }
}

/** The list scrolls down beside a lesson, and sideways above it on a phone; the page stays where it is. */
function bringIntoView(nav, button) {
  const { top, bottom } = button.getBoundingClientRect();
  const place = nav.getBoundingClientRect();
  if (bottom > place.bottom) nav.scrollTop += bottom - place.bottom;
  else if (top < place.top) nav.scrollTop -= place.top - top;
  nav.querySelector('ol').scrollLeft = button.offsetLeft - 40;
}

/** What a route says, or null where the server is away or refuses. */
async function ask(path) {
  const response = await fetch(new URL(path, document.baseURI)).catch(() => null); // away
  return response?.ok ? response.json() : null;
}
