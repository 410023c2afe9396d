import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { Counter, Feed, SKIP, START_OVER, USE } from '../../assets/js/feed.js';
import { header, queues, snapshot, state, step } from './records.js';

class FakeSocket {
  static all = [];

  constructor(address) {
    this.address = address;
    this.isClosed = false;
    FakeSocket.all.push(this);
  }

  static get last() {
    return FakeSocket.all.at(-1);
  }

  send(...records) {
    this.onmessage({ data: JSON.stringify(records) });
  }

  die(code = 1006, reason = '') {
    this.onclose({ code, reason });
  }

  close() {
    this.isClosed = true;
  }
}

/** A clock that stands still until it is told to go on. */
const clock = {
  real: { setTimeout: globalThis.setTimeout, clearTimeout: globalThis.clearTimeout },
  start() {
    this.now = 0;
    this.waiting = new Map();
  },
  tick(milliseconds) {
    this.now += milliseconds;
    for (const [id, { at, act }] of this.waiting) {
      if (at > this.now) continue;
      this.waiting.delete(id);
      act();
    }
  },
};

before(() => {
  let ids = 0;
  globalThis.setTimeout = (act, wait) => {
    ids += 1;
    clock.waiting.set(ids, { at: clock.now + wait, act });
    return ids;
  };
  globalThis.clearTimeout = (id) => clock.waiting.delete(id);
});
after(() => Object.assign(globalThis, clock.real));

function openFeed() {
  const seen = { records: [], resets: 0, phases: [] };
  const feed = new Feed({
    backend: 'naive',
    address: (since) => `since ${since}`,
    onRecords: (records) => seen.records.push(...records),
    onReset: () => {
      seen.resets += 1;
    },
    onConnection: ({ phase }) => seen.phases.push(phase),
    WebSocket: FakeSocket,
    random: () => 0,
  });
  feed.open();
  return { feed, seen };
}

beforeEach(() => {
  FakeSocket.all = [];
  clock.start();
});

test('only the log’s own records are counted', () => {
  const counter = new Counter('naive');
  const versions = [
    state('starting'), // before the header: what the server says of itself
    header(), // opens the connection
    state('ready'), // of the moment of the snapshot
    state('ready', { backend: 'generate' }),
    snapshot({ version: 100 }),
    step(0, []),
    state('paused'),
    state('paused', { backend: 'generate' }),
    queues(),
    header({ start_time: 5 }), // the engine restarted: an ordinary record
  ].map((record) => {
    counter.see(record);
    return counter.version;
  });
  assert.deepEqual(versions, [null, null, null, null, 100, 101, 102, 102, 103, 104]);
});

test('the opening header of a known server is skipped, that of a new one starts over', () => {
  const counter = new Counter('naive');
  assert.equal(counter.see(header({ start_time: 7 })), USE);
  counter.see(snapshot({ version: 3 }));
  counter.connected();
  assert.equal(counter.see(header({ start_time: 7 })), SKIP);
  assert.equal(counter.version, 3);
  counter.connected();
  assert.equal(counter.see(header({ start_time: 8 })), START_OVER);
});

test('a feed that comes back says where it left off, and gets nothing twice', () => {
  const { seen } = openFeed();
  assert.equal(FakeSocket.last.address, 'since null');
  FakeSocket.last.send(header(), snapshot({ version: 10 }), step(0, []));
  FakeSocket.last.die();
  clock.tick(250);
  assert.equal(FakeSocket.last.address, 'since 11');
  FakeSocket.last.send(header(), step(1, []));
  assert.deepEqual(
    seen.records.map((record) => record.type),
    ['header', 'snapshot', 'step', 'step'],
  );
});

test('it waits longer each time, at most eight seconds, and starts anew once something came', () => {
  openFeed();
  const waits = [250, 500, 1000, 2000, 4000, 8000, 8000];
  for (const wait of waits) {
    const before = FakeSocket.all.length;
    FakeSocket.last.die();
    clock.tick(wait - 1);
    assert.equal(FakeSocket.all.length, before, `not before ${wait} ms`);
    clock.tick(1);
    assert.equal(FakeSocket.all.length, before + 1, `after ${wait} ms`);
  }
  FakeSocket.last.send(header());
  FakeSocket.last.die();
  clock.tick(250);
  assert.equal(FakeSocket.all.length, waits.length + 2);
});

test('a restarted server is asked from the start, and what was known is dropped', () => {
  const { seen } = openFeed();
  FakeSocket.last.send(header({ start_time: 1 }), snapshot({ version: 10 }));
  const old = FakeSocket.last;
  old.die();
  clock.tick(250);
  FakeSocket.last.send(header({ start_time: 2 }), step(0, []));
  assert.equal(seen.resets, 1);
  assert.equal(FakeSocket.last.address, 'since null');
  FakeSocket.last.send(header({ start_time: 2 }), snapshot({ version: 0 }));
  assert.equal(seen.resets, 1);
  assert.deepEqual(
    seen.records.map((record) => record.type),
    ['header', 'snapshot', 'header', 'snapshot'],
  );
});

test('a refusal is told with its reason and not asked again', () => {
  const { seen } = openFeed();
  FakeSocket.last.die(4404, 'No backend of that name');
  clock.tick(60_000);
  assert.equal(FakeSocket.all.length, 1);
  assert.equal(seen.phases.at(-1), 'refused');
});

test('records of another schema version are not taken', () => {
  const { seen } = openFeed();
  FakeSocket.last.send(header({ schema_version: 2 }), snapshot());
  assert.deepEqual(seen.records, []);
  assert.equal(seen.phases.at(-1), 'outdated');
  assert.ok(FakeSocket.last.isClosed);
});

test('a feed that is closed stays closed, and goes on from there when opened again', () => {
  const { feed, seen } = openFeed();
  const socket = FakeSocket.last;
  socket.send(header(), snapshot({ version: 4 }));
  feed.close();
  assert.ok(socket.isClosed);
  socket.send(step(0, []));
  socket.die();
  clock.tick(60_000);
  assert.equal(FakeSocket.all.length, 1);
  assert.equal(seen.records.length, 2);
  feed.open();
  assert.equal(FakeSocket.last.address, 'since 4');
});

test('when the network is back nobody waits', () => {
  const { feed } = openFeed();
  FakeSocket.last.die();
  feed.retryNow();
  assert.equal(FakeSocket.all.length, 2);
  clock.tick(60_000);
  assert.equal(FakeSocket.all.length, 2, 'the wait is off');
});
