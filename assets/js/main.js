// The entry: one visitor, one store, one feed; a scope wherever the page puts a #scope.

import { Control } from './control.js';
import { Feed } from './feed.js';
import { History } from './history.js';
import { Scope } from './scope.js';
import { Store } from './store.js';
import { Transport } from './transport.js';
import { keepTab } from './mount.js';
import { loadWords } from './words.js';
import { showChatMeta } from './chat_meta.js';
import { whenever } from './page/whenever.js';
import { hasOption, showStates, watchChoice } from './backend_choice.js';

const ADDRESS_DELAY = 300; // a browser allows only so many changes of the address a second

const page = (window.servescope ??= {});
page.visitor ??= newVisitor();

/** A secret random id of this page load. `randomUUID` would need a secure origin. */
function newVisitor() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** Feeds that were opened, each with the history it filled, so that coming back loses nothing. */
class Feeds {
  #feeds = new Map(); // backend → {feed, history}
  #open = null;

  constructor(store) {
    this.store = store;
  }

  choose(backend) {
    if (this.store.backend === backend) return;
    this.#open?.feed.close();
    const known = this.#feeds.get(backend) ?? this.#make(backend);
    this.#feeds.set(backend, known);
    this.#open = known;
    Object.assign(this.store, {
      backend,
      history: known.history,
      position: null,
      pinned: null,
      pointed: null,
      crosshair: null,
      clearedTime: null,
    });
    known.feed.open();
    this.store.notify();
  }

  retryNow() {
    this.#open?.feed.retryNow();
  }

  #make(backend) {
    const { store } = this;
    const made = { history: new History() };
    made.feed = new Feed({
      backend,
      address: (since) => addressOf(backend, since),
      onRecords: (records) => store.add(records),
      onReset: () => {
        made.history = new History();
        store.set({ history: made.history, position: null, pinned: null, clearedTime: null });
      },
      onConnection: (connection) => store.set({ connection }),
    });
    return made;
  }
}

function addressOf(backend, since) {
  const url = new URL('telemetry', document.baseURI);
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  url.search = new URLSearchParams({
    backend,
    visitor: page.visitor,
    ...(since === null ? {} : { since: String(since) }),
  });
  return url.href;
}

/** Keep a scope in #scope for as long as there is one; the page may take it away and put a new one. */
function keepMounted(store, words, view) {
  let scope = null;
  const transport = (tools) => new Transport(tools, store, new Control());
  const check = () => {
    const root = document.getElementById('scope');
    if (scope !== null && (!scope.root.isConnected || scope.root !== root)) {
      scope.unmount();
      scope = null;
    }
    if (root !== null && scope === null) scope = new Scope(root, { store, words, view, transport });
  };
  new MutationObserver(check).observe(document.documentElement, { childList: true, subtree: true });
  check();
}

/** `?step=` is looked at as soon as that step is there. */
function followDeepLink(store, step) {
  if (step === null || !/^\d+$/.test(step)) return;
  store.waitingForStep = Number(step);
  store.subscribe(() => {
    const { waitingForStep: wanted, history } = store;
    if (wanted === null || history.isEmpty || history.column(history.last).step.step_id < wanted) return;
    store.lookAt(history.ordinalOf(wanted));
  });
}

/** The address says which step is looked at, so that it can be shared. */
function keepStepInAddress(store) {
  let timer = null;
  const write = () => {
    timer = null;
    const url = new URL(location.href);
    const step = store.isLive ? null : store.history.column(store.position)?.step.step_id;
    if (step === null || step === undefined) url.searchParams.delete('step');
    else url.searchParams.set('step', String(step));
    if (url.href !== location.href) history.replaceState(history.state, '', url);
  };
  let known = store.position;
  store.subscribe(() => {
    if (store.position === known || store.waitingForStep !== null) return;
    known = store.position;
    timer ??= setTimeout(write, ADDRESS_DELAY);
  });
}

async function start() {
  const query = new URLSearchParams(location.search);
  const words = await loadWords(page.lang ?? document.documentElement.lang);
  const store = new Store();
  const feeds = new Feeds(store);
  page.store = store;
  if (document.documentElement.dataset.tab !== 'traces') followDeepLink(store, query.get('step'));
  keepStepInAddress(store);
  store.subscribe(() => {
    showStates(store, words);
    showChatMeta(store, words);
  });
  whenever('#backend-choice label', () => showStates(store, words)); // an idle engine tells nothing for long
  window.addEventListener('servescope:mine', ({ detail }) => {
    store.mine.add(detail.requestId);
    store.set({ lastMine: detail.requestId });
  });
  window.addEventListener('online', () => feeds.retryNow());
  document.addEventListener('visibilitychange', () => {
    if (document.visibilityState === 'visible') feeds.retryNow();
    store.notify();
  });
  keepMounted(store, words, query.get('view'));
  keepTab('classroom', () => import('./classroom/classroom.js'), { store, words });
  keepTab('lessons', () => import('./lessons/lessons.js'), { words });
  keepTab('sizing', () => import('./sizing/sizing.js'), { store, words });
  keepTab('traces', () => import('./traces/traces.js'), { words });
  keepTab('api', () => import('./api/api.js'), { store, words });
  followChoice(feeds, query.get('backend'));
  store.set(await askForEngines());
}

/** The page opens with the engine its address names, and chooses it itself a little later. */
function followChoice(feeds, wanted) {
  let awaited = wanted;
  if (wanted !== null) feeds.choose(wanted);
  watchChoice((backend) => {
    if (awaited !== null && backend !== awaited && hasOption(awaited)) return;
    awaited = null;
    feeds.choose(backend);
  });
}

/** What each backend is called and which controls it has. Without an answer all are offered, and the
 *  server decides. */
async function askForEngines() {
  const response = await fetch(new URL('health', document.baseURI));
  if (!response.ok) return {};
  const backends = Object.entries((await response.json()).backends);
  return {
    titles: new Map(backends.map(([name, { title }]) => [name, title])),
    controls: new Map(backends.map(([name, { controls }]) => [name, controls])),
  };
}

await start();
