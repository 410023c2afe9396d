// The Traces tab: recordings that the server offers, what its engines did until now, or a file from
// this computer, which stays here. One of them is open.

import {
  Refused,
  Unreachable,
  askForEngines,
  askForRecordings,
  askForSchema,
  fetchRecording,
  fetchTraceOf,
  readAsset,
} from './client.js';
import { Picker, titleOf } from './picker.js';
import { Replay } from './replay.js';
import { FileTooLarge, TraceError } from './reading.js';
import { checkOf } from './check.js';
import { chromeTraceOf, download, fileNameOf, packed } from './downloads.js';
import { h, setAttribute, setText } from '../dom.js';
import { keepInAddress, wishOf } from './address.js';
import { lookAtStep, openRecording } from './recording.js';
import { pageOf } from './page_file.js';

const MIB = 1024 * 1024;

let kept = null; // the recording that is open, also when Gradio puts this tab anew

/** The recording that is open, or `null`. */
export const shown = () => kept;

/** Begin in an element of the page. */
export function create(root, { words }) {
  return new TracesTab(root, words);
}

class TracesTab {
  #abort = new AbortController();
  #replay = null;
  #schema = null; // a promise
  #titles = new Map(); // name of an offered recording → what it is called
  #turn = 0; // of the openings: a later one wins

  constructor(root, words) {
    this.root = root;
    this.words = words;
    this.picker = new Picker(words, this.#abort.signal, {
      onName: (name) => this.#openOffered(name),
      onEngine: (name) => this.#openEngine(name),
      onFile: (file) => this.#open(file.name, () => file),
    });
    this.status = h('p', { class: 'traces-status', role: 'status' });
    this.place = h('div', { class: 'traces-place' }, h('p', { class: 'traces-nothing' }, words('traces.nothing')));
    root.replaceChildren(this.picker.element, h('div', { class: 'traces-main' }, this.status, this.place));
    this.#takeDrops();
    this.#begin();
  }

  unmount() {
    this.#abort.abort();
    this.#replay?.unmount();
  }

  /** Engines may have begun meanwhile. */
  reopened() {
    this.#list();
  }

  async #begin() {
    const told = await this.#list();
    if (kept !== null) {
      this.#show(kept);
      return;
    }
    const wish = wishOf(location.search);
    const name = wish.name ?? told?.opens_with ?? null;
    if (name !== null) await this.#openOffered(name, wish.step);
  }

  async #list() {
    try {
      const [told, engines] = await Promise.all([askForRecordings(), askForEngines()]);
      this.#titles = new Map(told.recordings.map((one) => [one.name, titleOf(one, this.words)]));
      this.picker.show(told.recordings, engines);
      return told;
    } catch (error) {
      this.#failed(error);
      return null;
    }
  }

  #openOffered(name, step = null) {
    return this.#open(name, () => fetchRecording(name), { address: name, step });
  }

  #openEngine(name) {
    return this.#open(name, () => fetchTraceOf(name));
  }

  async #open(name, load, { address = null, step = null } = {}) {
    const turn = (this.#turn += 1);
    const title = (address === null ? undefined : this.#titles.get(address)) ?? name;
    this.#say('traces.opening', { name: title });
    const onProgress = (numBytes) => {
      if (turn === this.#turn) this.#say('traces.reading', { name: title, size: Math.round(numBytes / MIB) });
    };
    try {
      const blob = await load();
      const check = await this.#checker();
      const recording = await openRecording({ name, title, blob, address, check, onProgress });
      if (turn !== this.#turn || this.#abort.signal.aborted) return;
      lookAtStep(recording.store, step);
      this.#show(recording);
    } catch (error) {
      if (turn === this.#turn) this.#failed(error, title);
    }
  }

  async #askForSchema() {
    this.#schema ??= askForSchema();
    try {
      return await this.#schema;
    } catch (error) {
      this.#schema = null; // the next time may be luckier
      throw error;
    }
  }

  async #checker() {
    return checkOf(await this.#askForSchema());
  }

  async #page(recording) {
    const { lang, dataset } = document.documentElement;
    const schema = await this.#askForSchema();
    return pageOf(recording, { lang, theme: dataset.theme, schema, read: readAsset });
  }

  #show(recording) {
    kept = recording;
    this.#replay?.unmount();
    const { words } = this;
    const view = document.documentElement.dataset.view ?? null;
    this.#replay = new Replay(recording, { words, view, actions: this.#actionsFor(recording) });
    this.place.replaceChildren(this.#replay.element);
    this.picker.mark(recording.address);
    setText(this.status, '');
    setAttribute(this.status, 'data-kind', null);
    keepInAddress(recording, this.#replay.player, AbortSignal.any([this.#abort.signal, this.#replay.signal]));
  }

  #actionsFor(recording) {
    const action = (key, make, suffix) => {
      const button = h('button', { type: 'button', class: 'traces-button', title: this.words(`${key}.hint`) }, this.words(key));
      button.addEventListener('click', async () => {
        button.disabled = true;
        try {
          download(await make(), fileNameOf(recording.name, suffix));
        } catch (error) {
          this.#failed(error, recording.name);
        } finally {
          button.disabled = false;
        }
      });
      return button;
    };
    return [
      action('traces.save', () => packed(recording), '.jsonl.gz'),
      action('traces.perfetto', async () => chromeTraceOf(recording, await this.#checker()), '.perfetto.json'),
      action('traces.page', () => this.#page(recording), '.html'),
    ];
  }

  #takeDrops() {
    const { signal } = this.#abort;
    const mark = (on) => setAttribute(this.root, 'data-drop', on ? 'true' : null);
    this.root.addEventListener('dragover', (event) => {
      if (!event.dataTransfer.types.includes('Files')) return;
      event.preventDefault();
      mark(true);
    }, { signal });
    this.root.addEventListener('dragleave', (event) => {
      if (!this.root.contains(event.relatedTarget)) mark(false);
    }, { signal });
    this.root.addEventListener('drop', (event) => {
      mark(false);
      const [file] = event.dataTransfer.files;
      if (file === undefined) return;
      event.preventDefault();
      this.#open(file.name, () => file);
    }, { signal });
  }

  #say(key, values) {
    setText(this.status, this.words(key, values));
    setAttribute(this.status, 'data-kind', null);
  }

  #failed(error, name) {
    setAttribute(this.status, 'data-kind', 'error');
    setText(this.status, this.#sentenceOf(error, name));
  }

  #sentenceOf(error, name) {
    const { words } = this;
    if (error instanceof TraceError) {
      const problem = words(`traces.problem.${error.key}`, error.values);
      return words('traces.refused', { name, line: error.line, problem });
    }
    if (error instanceof FileTooLarge) {
      const { size, limit } = error;
      return size === null ? words('traces.too_large.unpacked', { name, limit }) : words('traces.too_large', { name, size, limit });
    }
    if (error instanceof Refused) return error.message;
    if (error instanceof Unreachable) return words('traces.unreachable');
    if (error instanceof DOMException) return words('traces.unreadable', { name, reason: error.message });
    throw error;
  }
}
