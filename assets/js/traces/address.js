// The address names the recording and the step that are looked at, so that a link shows the same again.

const DELAY = 300; // a browser allows only so many changes of the address a second

/** What an address asks for. @param {string} search @returns {{name: string|null, step: number|null}} */
export function wishOf(search) {
  const query = new URLSearchParams(search);
  const step = query.get('step');
  return { name: query.get('trace'), step: /^\d{1,15}$/.test(step ?? '') ? Number(step) : null };
}

/** The address of a moment; a file from this computer has none. */
export function addressAt(href, { address, store }) {
  const url = new URL(href);
  const step = store.isAtEnd ? undefined : store.history.column(store.shown)?.step.step_id;
  put(url, 'trace', address ?? undefined);
  put(url, 'step', address === null ? undefined : step);
  return url.href;
}

function put(url, name, value) {
  if (value === undefined) url.searchParams.delete(name);
  else url.searchParams.set(name, String(value));
}

/** Follow a recording until the signal; while it plays, the address stands still. */
export function keepInAddress(recording, player, signal) {
  let timer = null;
  const write = () => {
    timer = null;
    const href = addressAt(location.href, recording);
    if (href !== location.href && !player.isPlaying) history.replaceState(history.state, '', href);
  };
  const unsubscribe = recording.store.subscribe(() => {
    if (!player.isPlaying) timer ??= setTimeout(write, DELAY);
  });
  signal.addEventListener('abort', () => {
    unsubscribe();
    clearTimeout(timer);
  });
  write();
}
