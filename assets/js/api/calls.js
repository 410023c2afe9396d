// Calls to copy, for this server's address and one engine. Pure text.

const PROMPT = 'Once upon a time';
const JSON_HEADER = "-H 'content-type: application/json'";

/**
 * @param {{address: string, backend: string, needsKey?: boolean}} server address without a slash at its end
 * @returns {{name: string, method: string, path: string, curl: string, python: string, openai?: string}[]}
 */
export function callsOf({ address, backend }) {
  const post = (name, path, body, reads = 'json') => ({
    name,
    method: 'POST',
    path,
    curl: curlPost(address + path, body, reads === 'stream'),
    python: reads === 'stream' ? pythonStream(address + path, body) : pythonPost(address + path, body),
  });
  const get = (name, path) => ({
    name,
    method: 'GET',
    path,
    curl: `curl '${address}${path}'`,
    python: `import httpx\n\nprint(httpx.get("${address}${path}").text)`,
  });
  const ask = { prompt: PROMPT, max_tokens: 20, temperature: 0.7 };
  const chat = { model: backend, messages: [{ role: 'user', content: 'Hello' }], max_tokens: 20 };
  const complete = { model: backend, prompt: PROMPT, max_tokens: 20 };
  return [
    post('generate_stream', `/generate_stream?backend=${backend}`, ask, 'stream'),
    post('generate_trace', `/generate_stream?backend=${backend}&trace=1`, ask, 'stream'),
    post('generate', `/generate?backend=${backend}`, ask),
    post('generate_vllm', '/generate_vllm', { prompts: ['One', 'Two', 'Three'] }),
    {
      ...post('chat_stream', '/v1/chat/completions', { ...chat, stream: true }, 'stream'),
      openai: openaiCall(address, CHAT_STREAM(backend)),
    },
    { ...post('chat', '/v1/chat/completions', chat), openai: openaiCall(address, CHAT(backend)) },
    { ...post('completions', '/v1/completions', complete), openai: openaiCall(address, COMPLETION(backend)) },
    { ...get('models', '/v1/models'), openai: openaiCall(address, 'print([model.id for model in client.models.list()])') },
    get('health', '/health'),
    get('metrics', '/metrics'),
    get('trace', `/telemetry/${backend}/trace`),
    telemetry(address, backend),
    control(address, backend),
    get('code', '/code?symbol=backends/streams.py::RequestStream'),
    get('code_engines', '/code/engines'),
    post('sizing', '/sizing', SIZING),
  ];
}

const SIZING = {
  num_layers: 12,
  num_attention_heads: 12,
  num_kv_heads: 12,
  head_dim: 64,
  num_parameters: 125239296,
  total_memory: 6442450944,
  free_memory: 5583457484,
  gpu_memory_utilization: 0.5,
  max_model_len: 2048,
};

const CHAT_STREAM = (backend) => `stream = client.chat.completions.create(
    model="${backend}",
    messages=[{"role": "user", "content": "Hello"}],
    max_tokens=20,
    stream=True,
)
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
print()`;

const CHAT = (backend) => `answer = client.chat.completions.create(
    model="${backend}",
    messages=[{"role": "user", "content": "Hello"}],
    max_tokens=20,
)
print(answer.choices[0].message.content)`;

const COMPLETION = (backend) => `answer = client.completions.create(
    model="${backend}",
    prompt="${PROMPT}",
    max_tokens=20,
)
print(answer.choices[0].text)`;

function curlPost(url, body, isStream) {
  return `curl ${isStream ? '-N ' : ''}'${url}' \\\n  ${JSON_HEADER} \\\n  -d '${JSON.stringify(body)}'`;
}

function pythonPost(url, body) {
  return `import httpx

answer = httpx.post(
    "${url}",
    json=${JSON.stringify(body)},
    timeout=None,
)
print(answer.json())`;
}

function pythonStream(url, body) {
  return `import httpx

with httpx.stream(
    "POST",
    "${url}",
    json=${pythonValue(body)},
    timeout=None,
) as answer:
    for line in answer.iter_lines():
        print(line)`;
}

/** JSON as Python writes it: of the values used here only `true` differs. */
function pythonValue(body) {
  return JSON.stringify(body).replaceAll(':true', ':True');
}

function openaiCall(address, rest) {
  return `from openai import OpenAI

client = OpenAI(base_url="${address}/v1", api_key="none")
${rest}`;
}

function telemetry(address, backend) {
  const path = `/telemetry?backend=${backend}`;
  const url = `${address.replace(/^http/, 'ws')}${path}`;
  return {
    name: 'telemetry',
    method: 'WS',
    path,
    curl: `curl -N '${address}${path}' \\
  -H 'connection: upgrade' -H 'upgrade: websocket' \\
  -H 'sec-websocket-version: 13' -H 'sec-websocket-key: U2VydmVzY29wZSBmZWVkIQ=='`,
    python: `import asyncio

from websockets.asyncio.client import connect


async def main():
    async with connect("${url}") as feed:
        print(await feed.recv())


asyncio.run(main())`,
  };
}

function control(address, backend) {
  const path = `/control/${backend}/pause`;
  return {
    name: 'control',
    method: 'POST',
    path,
    curl: `curl -X POST '${address}${path}'`,
    python: `import httpx\n\nprint(httpx.post("${address}${path}").json())`,
  };
}
