// An experiment on the server, as server-sent events over the answer to a POST: closing it stops it.

const LONGEST_WAIT = 60; // seconds that a Retry-After is believed

/**
 * `run`, `progress` …, then `outcome` or `error`; `busy` whenever the server asks to come back later,
 * which is done; `lost` when the connection breaks. Ends at once when aborted.
 * @param {string} slug @param {string|null} engine where there is a choice @param {AbortSignal} signal
 */
export async function* eventsOfRun(slug, engine, signal) {
  try {
    while (!signal.aborted) {
      const response = await ask(slug, engine, signal);
      if (response.ok) {
        yield* readEvents(response.body);
        return;
      }
      const data = await response.json();
      if (response.status !== 429) {
        yield { event: 'error', data };
        return;
      }
      yield { event: 'busy', data };
      await wait(Math.min(Number(response.headers.get('Retry-After')) || 1, LONGEST_WAIT), signal);
    }
  } catch (error) {
    if (!signal.aborted) yield { event: 'lost', data: { error: { message: String(error) } } };
  }
}

function ask(slug, engine, signal) {
  return fetch(new URL(`lessons/${slug}/runs`, document.baseURI), {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ visitor: window.servescope.visitor, engine }),
    signal,
  });
}

/** End a run; its events end when its engines are gone. One that has ended by itself is gone already. */
export async function stopRun(runId) {
  const address = new URL(`lessons/runs/${runId}`, document.baseURI);
  await fetch(address, { method: 'DELETE' }).catch(() => null); // away: the stream breaks, and says so
}

/** Where what an engine of a run recorded can be had. @param {number} place of the engine in the run */
export function addressOfTrace(runId, place) {
  return new URL(`lessons/runs/${runId}/trace?engine=${place}`, document.baseURI).href;
}

/** The events of a stream of bytes, whatever pieces they come in. @param {ReadableStream} body */
export async function* readEvents(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let text = '';
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    text += decoder.decode(part.value, { stream: true });
    const frames = text.split('\n\n');
    text = frames.pop();
    for (const frame of frames) yield parseFrame(frame);
  }
}

function parseFrame(frame) {
  const lines = frame.split('\n');
  const after = (name) => lines.find((line) => line.startsWith(name))?.slice(name.length);
  return { event: after('event: '), data: JSON.parse(after('data: ')) };
}

function wait(seconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
