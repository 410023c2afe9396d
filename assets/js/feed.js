// The live feed of one backend: a WebSocket that comes back by itself and says where it left off.
//
// A connection brings the header (once the engine has started), then a snapshot unless our `since`
// is still in the server's log, then every record in order. `Counter` keeps the `since`.

const SCHEMA_VERSION = 1; // of the records: backends/records.py
const FIRST_DELAY = 250; // under the server's grace for a visitor who comes back
const LONGEST_DELAY = 8000;
const REFUSED = { from: 4400, to: 4500 }; // close codes: asking again would be answered the same

/** What to do with a record. */
export const USE = 'use';
export const SKIP = 'skip'; // the header that opens a connection, when it is the one we know
export const START_OVER = 'start over'; // the server is a new one: nothing we know of it holds

/** Counts the records of a feed as the server's recorder does, so that a `since` can be named. */
export class Counter {
  version = null; // records of the backend's log seen so far; null: none of them
  startTime = null; // of the last header

  #backend;
  #isOpening = true; // the next header opens the connection and is not counted

  constructor(backend) {
    this.#backend = backend;
  }

  connected() {
    this.#isOpening = true;
  }

  /** Count a record, and say what to do with it. */
  see(record) {
    switch (record.type) {
      case 'header':
        return this.#seeHeader(record);
      case 'snapshot':
        this.version = record.version;
        return USE;
      case 'state':
        if (record.backend === this.#backend) this.#count();
        return USE;
      default:
        this.#count();
        return USE;
    }
  }

  #seeHeader(header) {
    const known = this.startTime;
    this.startTime = header.start_time;
    if (!this.#isOpening) {
      this.#count();
      return USE;
    }
    this.#isOpening = false;
    if (known === null) return USE;
    return header.start_time === known ? SKIP : START_OVER;
  }

  #count() {
    if (this.version !== null) this.version += 1;
  }
}

/**
 * @typedef {{phase: 'connecting'|'open'|'lost'|'refused'|'outdated', reason?: string}} Connection
 */
export class Feed {
  #options;
  #socket = null;
  #timer = null;
  #attempts = 0;
  #counter;
  #closed = false;

  /**
   * @param {{backend: string, address: (since: number|null) => string, onRecords: (records: object[]) => void,
   *   onReset: () => void, onConnection: (connection: Connection) => void, WebSocket?: typeof WebSocket,
   *   random?: () => number}} options
   */
  constructor(options) {
    this.#options = { WebSocket: globalThis.WebSocket, random: Math.random, ...options };
    this.#counter = new Counter(options.backend);
  }

  get since() {
    return this.#counter.version;
  }

  open() {
    this.#closed = false;
    this.#connect();
  }

  /** Leave; `open` comes back to where it was. */
  close() {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#timer = null;
    this.#drop();
  }

  /** Do not wait for the back-off: the network is back, or someone pressed the button. */
  retryNow() {
    if (this.#timer === null) return;
    clearTimeout(this.#timer);
    this.#connect();
  }

  #connect() {
    this.#timer = null;
    this.#counter.connected();
    this.#say({ phase: 'connecting' });
    const socket = new this.#options.WebSocket(this.#options.address(this.#counter.version));
    this.#socket = socket;
    socket.onopen = () => {
      if (socket === this.#socket) this.#say({ phase: 'open' });
    };
    socket.onmessage = (event) => {
      if (socket === this.#socket) this.#receive(JSON.parse(event.data));
    };
    socket.onclose = (event) => {
      if (socket === this.#socket) this.#lost(event);
    };
  }

  #receive(records) {
    this.#attempts = 0;
    const use = [];
    for (const record of records) {
      if (record.type === 'header' && record.schema_version !== SCHEMA_VERSION) {
        this.close();
        this.#say({ phase: 'outdated' }); // only loading the page anew helps
        return;
      }
      const verdict = this.#counter.see(record);
      if (verdict === START_OVER) {
        this.#startOver();
        return;
      }
      if (verdict === USE) use.push(record);
    }
    this.#options.onRecords(use);
  }

  /** Another server answers: forget everything and ask from the start. */
  #startOver() {
    this.#drop();
    this.#counter = new Counter(this.#options.backend);
    this.#options.onReset();
    this.#connect();
  }

  #lost({ code, reason }) {
    this.#socket = null;
    if (this.#closed) return;
    if (code >= REFUSED.from && code < REFUSED.to) {
      this.#say({ phase: 'refused', reason });
      return;
    }
    const delay = this.#delay();
    this.#attempts += 1;
    this.#timer = setTimeout(() => this.#connect(), delay);
    this.#say({ phase: 'lost' });
  }

  /** 0.25, 0.5, 1 … 8 s, each up to a quarter longer so that a room does not come back at once. */
  #delay() {
    const base = Math.min(FIRST_DELAY * 2 ** this.#attempts, LONGEST_DELAY);
    return base * (1 + this.#options.random() / 4);
  }

  #drop() {
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
  }

  #say(connection) {
    this.#options.onConnection(connection);
  }
}
