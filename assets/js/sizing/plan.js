// The form of the calculator ↔ the plan that the server computes. Pure.
// A form holds what stands in its fields, as text; memory in GiB.

const GIB = 2 ** 30;

const COUNTS = [
  'num_layers',
  'num_attention_heads',
  'num_kv_heads',
  'head_dim',
  'num_parameters',
  'max_model_len',
  'max_num_seqs',
  'block_size',
  'tensor_parallel_size',
];
const MEMORY = ['total_memory', 'free_memory', 'other_memory'];
const WORDS = ['dtype', 'kv_cache_dtype'];

/** The two of the article, and what they are run on. */
export const PRESETS = [
  {
    name: 'opt-125m',
    model: 'facebook/opt-125m',
    form: {
      total_memory: '6',
      free_memory: '5.2',
      gpu_memory_utilization: '0.9',
      max_model_len: '2048',
      max_num_seqs: '256',
      block_size: '16',
      tensor_parallel_size: '1',
      dtype: 'float16',
      kv_cache_dtype: 'auto',
    },
  },
  {
    name: 'llama-3-8b',
    model: 'meta-llama/Meta-Llama-3-8B',
    form: {
      total_memory: '24',
      free_memory: '23.5',
      gpu_memory_utilization: '0.9',
      max_model_len: '8192',
      max_num_seqs: '256',
      block_size: '16',
      tensor_parallel_size: '1',
      dtype: 'bfloat16',
      kv_cache_dtype: 'auto',
    },
  },
];

/** What the server is asked. What is not a number goes as it is, and the server says what is wrong. */
export function planOf(form) {
  const plan = { gpu_memory_utilization: number(form.gpu_memory_utilization) };
  for (const name of COUNTS) plan[name] = number(form[name]);
  for (const name of MEMORY) {
    const gib = number(form[name]);
    plan[name] = typeof gib === 'number' ? Math.round(gib * GIB) : gib;
  }
  for (const name of WORDS) plan[name] = form[name];
  return plan;
}

function number(text) {
  const plain = String(text).replaceAll(/[,\s_]/g, '');
  const value = Number(plain);
  return plain === '' || !Number.isFinite(value) ? String(text) : value;
}

/** The fields that a model fills. */
export function fieldsOf({ shape, dtype }) {
  return {
    num_layers: String(shape.num_layers),
    num_attention_heads: String(shape.num_attention_heads),
    num_kv_heads: String(shape.num_kv_heads),
    head_dim: String(shape.head_dim),
    num_parameters: shape.num_parameters === null ? '' : String(shape.num_parameters),
    ...(DTYPES.includes(dtype) ? { dtype } : {}),
  };
}

export const DTYPES = ['float32', 'float16', 'bfloat16', 'fp8', 'int8'];
export const CACHE_DTYPES = ['auto', 'float32', 'float16', 'bfloat16', 'fp8'];

/** The fields that an engine that runs fills: its model, its limits, and on a CPU the machine's memory. */
export function fieldsOfEngine(engine, machine) {
  const { max_model_len, max_num_seqs, block_size } = engine.config;
  const limits = Object.entries({ max_model_len, max_num_seqs, block_size }).filter(([, value]) => value !== null);
  const isHere = engine.device === 'cpu' && machine.total_memory !== null && machine.free_memory !== null;
  return {
    ...fieldsOf(engine),
    ...Object.fromEntries(limits.map(([name, value]) => [name, String(value)])),
    kv_cache_dtype: 'auto',
    tensor_parallel_size: '1',
    gpu_memory_utilization: String(engine.gpu_memory_utilization),
    ...(isHere
      ? {
          total_memory: gib(machine.total_memory),
          free_memory: gib(machine.free_memory),
          other_memory: '0',
        }
      : {}),
  };
}

/** Bytes → GiB as a field shows it. */
export function gib(bytes) {
  return String(Number((bytes / GIB).toFixed(3)));
}

/** Engines that tell their blocks and what their model is like. */
export function engineChoices(engines) {
  return engines.filter(({ shape, config }) => shape !== null && config.num_blocks !== null);
}
