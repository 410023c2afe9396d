// Records with sensible values, for tests that care about one or two of their fields; and a small
// scripted engine that gives a long, varied, deterministic run.

export const header = (fields = {}) => ({
  type: 'header',
  schema_version: 1,
  backend: 'naive',
  model: 'tiny',
  device: 'cpu',
  dtype: 'float32',
  engine: {
    max_model_len: 64,
    batch_size: 4,
    block_size: null,
    num_blocks: null,
    max_num_seqs: null,
    max_num_batched_tokens: null,
    null_block: null,
    ...fields.engine,
  },
  shape: null,
  versions: {},
  hardware: 'test',
  started_at: '2025-01-01T00:00:00+00:00',
  start_time: 0,
  measured: { batch: 'measured', kv: 'derived', queues: 'measured', latency: 'derived' },
  notes: {},
  ...Object.fromEntries(Object.entries(fields).filter(([name]) => name !== 'engine')),
});

export const arrived = (id = 'r0', fields = {}) => ({
  type: 'arrived',
  request_id: id,
  seat: 0,
  num_prompt_tokens: 4,
  max_tokens: 20,
  source: 'api',
  stream: true,
  time: 0,
  ...fields,
});

export const row = (id = 'r0', scheduled = 1, computed = 0, fields = {}) => ({
  request_id: id,
  phase: 'decode',
  num_scheduled_tokens: scheduled,
  num_computed_tokens: computed,
  num_cached_tokens: null,
  ...fields,
});

export const step = (stepId, rows, fields = {}) => ({
  type: 'step',
  step_id: stepId,
  start_time: stepId,
  duration: 0.5,
  rows,
  input_shape: null,
  num_padding_tokens: 0,
  attention_pairs: rows.reduce(
    (sum, r) => sum + r.num_scheduled_tokens * (r.num_computed_tokens + r.num_scheduled_tokens),
    0,
  ),
  pool: null,
  waiting_ids: [],
  admitted_ids: [],
  preempted_ids: [],
  finished_ids: [],
  kv: null,
  ...fields,
});

export const kv = (fields = {}) => ({
  num_free: null,
  taken: {},
  given_back: {},
  ref_counts: {},
  cached: [],
  evicted: [],
  filled_slots: {},
  reserved_slots: {},
  ...fields,
});

export const kvChanged = (fields = {}, time = 0) => ({ type: 'kv', time, kv: kv(fields) });
export const token = (id = 'r0', index = 0, time = 0) => ({
  type: 'token',
  request_id: id,
  index,
  step_id: null,
  time,
});
export const finished = (id = 'r0', time = 0, reason = 'length', fields = {}) => ({
  type: 'finished',
  request_id: id,
  reason,
  time,
  message: null,
  num_prompt_tokens: null,
  num_output_tokens: null,
  ...fields,
});
export const gauges = (fields = {}) => ({
  type: 'gauges',
  time: 0,
  source: '/metrics',
  server: null,
  num_running: null,
  num_waiting: null,
  kv_cache_usage: null,
  prefix_cache_queries: null,
  prefix_cache_hits: null,
  num_preemptions: null,
  ...fields,
});
export const state = (name = 'ready', fields = {}) => ({
  type: 'state',
  backend: 'naive',
  state: name,
  time: 0,
  reason: null,
  progress: null,
  step_delay: 0,
  ...fields,
});
export const queues = (fields = {}) => ({
  type: 'queues',
  time: 0,
  queues: {},
  streams: {},
  num_misdelivered: null,
  ...fields,
});
export const snapshot = (fields = {}) => ({
  type: 'snapshot',
  version: 0,
  time: 0,
  next_step_id: 0,
  requests: [],
  num_free_blocks: null,
  cached_blocks: [],
  ref_counts: {},
  gauges: [],
  totals: {},
  ...fields,
});

/** A batch of four with blocks: requests come, wait, run, are now and then preempted, and end. */
export function* longRun(numSteps, { places = 4 } = {}) {
  yield header({ engine: { block_size: 16, num_blocks: 64 } });
  const running = [];
  const waiting = [];
  const free = Array.from({ length: 64 }, (_, block) => block);
  let numbers = 0;
  for (let id = 0; id < numSteps; id += 1) {
    const now = id * 0.1;
    while (running.length + waiting.length < places + (id % 7 === 0 ? 3 : 0)) {
      const request = {
        id: `r${numbers}`,
        length: 4 + (numbers % 9),
        limit: 5 + ((numbers * 7) % 40),
        done: 0,
        computed: 0,
        blocks: [],
      };
      yield arrived(request.id, { seat: numbers % 11, num_prompt_tokens: request.length, time: now - 0.05 });
      waiting.push(request);
      numbers += 1;
    }
    yield* oneStep(id, now, { running, waiting, free, places });
    yield queues({
      time: now + 0.1,
      queues: { incoming_queue: waiting.length },
      streams: Object.fromEntries(running.map((r) => [r.id, id % 3])),
    });
  }
}

function* oneStep(id, now, { running, waiting, free, places }) {
  const delta = kv();
  const preempted = [];
  if (id % 50 === 49 && running.length > 1) {
    const victim = running.pop();
    delta.given_back[victim.id] = victim.blocks;
    free.push(...victim.blocks);
    Object.assign(victim, { blocks: [], computed: 0 });
    waiting.unshift(victim);
    preempted.push(victim.id);
  }
  while (running.length < places && waiting.length > 0 && preempted.length === 0)
    running.push(waiting.shift());
  const rows = running.map((r) =>
    row(r.id, r.length - r.computed, r.computed, { phase: r.computed === 0 ? 'prefill' : 'decode' }),
  );
  for (const r of running) {
    r.computed = r.length;
    while (r.blocks.length * 16 < r.computed) {
      const block = free.shift();
      r.blocks.push(block);
      (delta.taken[r.id] ??= []).push(block);
      if (block % 5 === 0) delta.cached.push(block);
    }
    delta.filled_slots[r.id] = r.computed;
  }
  const ending = running.filter((r) => r.done + 1 >= r.limit);
  for (const r of ending) {
    delta.given_back[r.id] = r.blocks;
    free.push(...r.blocks);
  }
  delta.num_free = free.length;
  yield step(id, rows, {
    start_time: now,
    duration: 0.08 + (id % 5) / 100,
    waiting_ids: waiting.map((r) => r.id),
    preempted_ids: preempted,
    finished_ids: ending.map((r) => r.id),
    kv: delta,
  });
  for (const r of running) {
    yield token(r.id, r.done, now + 0.09);
    r.done += 1;
    r.length += 1;
  }
  for (const r of ending) {
    running.splice(running.indexOf(r), 1);
    yield finished(r.id, now + 0.095);
  }
}
