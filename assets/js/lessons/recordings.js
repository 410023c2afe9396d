// What an experiment did where it could run: recordings, each told as one, with its hardware.

import { h } from '../dom.js';

/** @param {{name: string, backend: string, hardware: string}[]} recordings none where it can run here */
export function recordingsOf(recordings, words) {
  if (recordings.length === 0) return null;
  const items = recordings.map(({ name, backend, hardware }) =>
    h(
      'li',
      {},
      h('a', { href: addressOfRecording(name) }, words(`traces.shipped.${name}`)),
      h('small', {}, `${backend} · ${hardware}`),
    ),
  );
  return h(
    'div',
    { class: 'lessons-recordings' },
    h('p', {}, h('b', {}, words('traces.recording')), words('lessons.recordings')),
    h('ul', {}, ...items),
  );
}

/** The Traces tab with a recording, in the language and the colours that the page has now. */
export function addressOfRecording(name, address = location.href) {
  const url = new URL(address);
  for (const parameter of ['lesson', 'step', 'backend']) url.searchParams.delete(parameter);
  url.searchParams.set('tab', 'traces');
  url.searchParams.set('trace', name);
  return url.href;
}
