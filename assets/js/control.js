// Calls that steer an engine. They may need the instructor key, which this tab keeps while it is open.

const KEY = 'servescope.instructor-key';

/** What the server said no to; `status` is the HTTP status, `message` its words. */
export class ControlError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** The header that carries the key this tab has, if it has one. */
export function keyHeader(storage = sessionStorage) {
  const key = storage.getItem(KEY);
  return key === null ? {} : { Authorization: `Bearer ${key}` };
}

export class Control {
  #fetch;
  #storage;

  constructor({ fetch = globalThis.fetch.bind(globalThis), storage = sessionStorage } = {}) {
    this.#fetch = fetch;
    this.#storage = storage;
  }

  setKey(key) {
    this.#storage.setItem(KEY, key);
  }

  forgetKey() {
    this.#storage.removeItem(KEY);
  }

  /**
   * @param {string} backend @param {'pause'|'resume'|'step'|'speed'|'restart'|'kill-worker'} action
   * @param {object} [body] `speed` has {step_delay: seconds}
   * @throws {ControlError} with status 0 when the server cannot be reached
   */
  async send(backend, action, body) {
    const headers = { 'Content-Type': 'application/json', ...keyHeader(this.#storage) };
    const response = await this.#post(
      `control/${encodeURIComponent(backend)}/${action}`,
      headers,
      body ?? {},
    );
    if (response.ok) return;
    if (response.status === 401) this.forgetKey();
    throw new ControlError(response.status, await messageOf(response));
  }

  async #post(path, headers, body) {
    try {
      return await this.#fetch(new URL(path, document.baseURI), {
        method: 'POST',
        headers,
        body: JSON.stringify(body),
      });
    } catch (error) {
      throw new ControlError(0, error.message); // fetch only fails when there was no answer
    }
  }
}

/** The error's own words, whichever shape the server gave it. */
export async function messageOf(response) {
  const text = await response.text();
  try {
    const body = JSON.parse(text);
    return body.error?.message ?? body.message ?? body.detail ?? text;
  } catch {
    return text; // not JSON: a proxy's page
  }
}
