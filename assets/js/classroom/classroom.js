// The Classroom: a workload, a race of it over several engines, and what came of it.

import * as client from './client.js';
import {
  DEFAULTS,
  WorkloadError,
  asFile,
  decode,
  encode,
  entriesAsText,
  entriesFromText,
  fromFile,
} from './workload.js';
import { Control, ControlError } from '../control.js';
import { JoinCard } from './join.js';
import { KeyForm } from '../key_form.js';
import { RaceView } from './race_view.js';
import { Tooltip } from '../tooltip.js';
import { WorkloadForm } from './form.js';
import { h, setAttribute, setText } from '../dom.js';
import { saveAs } from './files.js';
import { setParameter } from '../page/address.js';

const LARGEST_FILE = 65_536;

let classroom = null; // one for as long as the page is open: a race goes on when the tab is drawn anew

/** Puts it into its root. @param {{store: object, words: Function}} tools of the page */
export function create(root, { store, words }) {
  classroom ??= new Classroom({
    store,
    words,
    visitor: window.servescope.visitor,
    query: new URLSearchParams(location.search),
  });
  root.replaceChildren(classroom.element);
  return { unmount: () => root.replaceChildren() };
}

const isLarge = () => document.documentElement.dataset.view === 'panels';

/** The last part of a word's key. @param {object} news of a race */
function stateOf({ state, entries, together }) {
  if (state !== 'running' || entries.length === 1) return state;
  return together ? 'running.together' : 'running.in_turn';
}

class Classroom {
  #raceId = null;
  #isBusy = false;
  #isStopping = false;

  /** @param {{store: object, words: Function, visitor: string, query: URLSearchParams}} page */
  constructor({ store, words, visitor, query }) {
    this.words = words;
    this.visitor = visitor;
    this.control = new Control();
    const tools = { words, tooltip: new Tooltip(), signal: new AbortController().signal };
    this.form = new WorkloadForm(tools, store, {
      onChange: () => this.#keepInAddress(),
      onStart: () => this.#begin(),
    });
    this.keyForm = new KeyForm(tools, this.control);
    this.join = new JoinCard(tools);
    this.race = new RaceView(tools);
    this.stop = h(
      'button',
      { type: 'button', class: 'classroom-button classroom-stop', hidden: true },
      words('classroom.stop'),
    );
    this.stop.addEventListener('click', () => this.#stop());
    this.large = h('button', { type: 'button', class: 'classroom-button classroom-large' });
    this.large.addEventListener('click', () => this.#look(isLarge() ? 'full' : 'panels'));
    this.status = h('p', { class: 'classroom-line', role: 'status' });
    this.element = this.#layout();
    this.#nameLarge();
    this.#open(query);
  }

  #layout() {
    const { words } = this;
    this.empty = h('p', { class: 'classroom-empty' }, words('classroom.empty'));
    const stage = h(
      'section',
      { class: 'card classroom-stage', id: 'classroom-race' },
      h(
        'header',
        {},
        h('h2', {}, words('classroom.race')),
        this.status,
        this.large,
        this.stop,
        this.form.start,
      ),
      this.form.problem,
      this.empty,
      this.race.element,
    );
    return h(
      'div',
      { class: 'classroom' },
      h('div', { class: 'classroom-side' }, this.form.element, this.#files(), this.keyForm.element),
      h('div', { class: 'classroom-main' }, stage, this.race.table.element),
      this.join.element,
    );
  }

  /** Without the form and larger, for a projector, or with it. */
  #look(view) {
    document.documentElement.dataset.view = view;
    setParameter('view', view);
    this.#nameLarge();
    this.race.resize();
  }

  #nameLarge() {
    setText(this.large, this.words(isLarge() ? 'classroom.with_form' : 'classroom.large'));
  }

  /** Save and load, on the disk of whoever sits here. */
  #files() {
    const { words } = this;
    const save = h('button', { type: 'button', class: 'classroom-link-button' }, words('classroom.save'));
    save.addEventListener('click', () => this.#save());
    const input = h('input', {
      type: 'file',
      accept: 'application/json,.json',
      class: 'scope-hidden',
      tabindex: '-1',
      'aria-hidden': 'true',
    });
    const load = h('button', { type: 'button', class: 'classroom-link-button' }, words('classroom.load'));
    load.addEventListener('click', () => input.click());
    input.addEventListener('change', async () => {
      if (input.files.length > 0) await this.#load(input.files[0]);
      input.value = '';
    });
    this.key = h(
      'button',
      { type: 'button', class: 'classroom-link-button', hidden: true },
      words('classroom.key'),
    );
    this.key.addEventListener('click', () => this.keyForm.ask(() => this.#askForOptions()));
    const row = h('div', { class: 'classroom-files' }, save, load, input, this.key);
    this.form.element.append(row);
    return h('p', { class: 'classroom-hint classroom-address' }, words('classroom.address'));
  }

  /** What the address asks for, once the server has told what it takes. */
  async #open(query) {
    this.form.fill(DEFAULTS);
    this.form.engines.choose(entriesFromText(query.get('race') ?? ''));
    this.form.engines.together.checked = query.get('together') === '1';
    await this.#askForOptions();
    const text = query.get('workload');
    if (text !== null && this.form.limits !== null)
      this.#try(() => this.form.fill(decode(text, this.form.limits)));
  }

  async #askForOptions() {
    try {
      this.join.show(await client.join());
      const { engines, limits, limited } = await client.options();
      this.form.setLimits(limits);
      this.key.hidden = !limited;
      this.form.engines.setEngines(engines);
    } catch (error) {
      this.#showError(error, () => this.#askForOptions());
    }
  }

  /** Do what may find a workload that is none, and show what is wrong with it. */
  #try(act) {
    try {
      return act();
    } catch (error) {
      if (!(error instanceof WorkloadError)) throw error;
      this.form.showProblem(error);
      return null;
    }
  }

  #keepInAddress() {
    if (this.form.limits === null) return;
    const workload = this.#try(() => this.form.read());
    if (workload === null) return;
    const url = new URL(location.href);
    url.searchParams.set('workload', encode(workload));
    url.searchParams.set('race', entriesAsText(this.form.engines.chosen));
    if (this.form.engines.areTogether) url.searchParams.set('together', '1');
    else url.searchParams.delete('together');
    history.replaceState(history.state, '', url);
  }

  #save() {
    if (this.form.limits === null) return;
    const workload = this.#try(() => this.form.read());
    if (workload === null) return;
    saveAs(
      `workload-${workload.students}.json`,
      'application/json',
      asFile(workload, this.form.engines.chosen, this.form.engines.areTogether),
    );
  }

  async #load(file) {
    if (this.form.limits === null) return;
    const text = file.size > LARGEST_FILE ? '' : await file.text();
    this.#try(() => {
      const { workload, entries, together } = fromFile(text, this.form.limits);
      this.form.fill(workload);
      this.form.engines.together.checked = together;
      if (entries !== null) this.form.engines.choose(entries);
      this.#keepInAddress();
    });
  }

  async #begin() {
    if (this.#isBusy) return;
    if (this.form.limits === null) await this.#askForOptions();
    if (this.form.limits === null) return; // it has been said why
    const workload = this.#try(() => this.form.read());
    const entries = this.form.engines.chosen;
    if (workload === null) return this.form.focusProblem();
    if (entries.length === 0) return this.form.showRefusal(this.words('classroom.no_engine'));
    this.#keepInAddress();
    this.#setBusy(true);
    try {
      const { visitor } = this;
      const together = this.form.engines.areTogether;
      this.#raceId = await client.begin({ workload, entries, together, visitor });
      await this.#follow();
    } catch (error) {
      this.#showError(error, () => this.#begin());
    } finally {
      this.#setBusy(false);
    }
  }

  async #follow() {
    let numShown = null;
    await client.follow(this.#raceId, async (news) => {
      if (numShown === null) this.race.begin(news);
      this.empty.hidden = true;
      this.race.update(news);
      const numResults = news.entries.filter(({ has_result: has }) => has).length;
      if (numResults > (numShown ?? 0)) this.race.show(await client.raceOf(this.#raceId));
      numShown = numResults;
      if (!this.#isStopping || news.state !== 'running') this.#say(stateOf(news), { place: news.place });
    });
  }

  async #stop() {
    if (this.#isStopping) return;
    this.#setStopping(true);
    this.#say('stopping');
    try {
      await client.stop(this.#raceId);
    } catch (error) {
      this.#setStopping(false);
      this.#showError(error, () => this.#stop());
    }
  }

  /** The button keeps the focus, to hand it on when the race has ended. */
  #setStopping(isStopping) {
    this.#isStopping = isStopping;
    setAttribute(this.stop, 'aria-disabled', isStopping);
  }

  #say(state, values) {
    setText(this.status, this.words(`classroom.race.${state}`, values));
  }

  /** One button takes the place of the other, and the focus with it. */
  #setBusy(isBusy) {
    this.#isBusy = isBusy;
    const [gone, there] = isBusy ? [this.form.start, this.stop] : [this.stop, this.form.start];
    const hasFocus = document.activeElement === gone;
    gone.hidden = true;
    there.hidden = false;
    this.#setStopping(false);
    if (hasFocus) there.focus();
    if (isBusy) this.form.showRefusal(null);
  }

  /** In the server's words; where it wants the key, ask for it and try again. */
  #showError(error, again) {
    if (!(error instanceof ControlError)) throw error;
    const message = error.status === 0 ? this.words('classroom.unreachable') : error.message;
    this.form.showRefusal(message);
    if (error.status !== 401) return;
    this.control.forgetKey();
    this.keyForm.ask(again);
  }
}
