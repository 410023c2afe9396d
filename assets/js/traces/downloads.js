// What can be taken away from a recording: its lines, a Chrome trace, a page that needs no server.

import { Conversion } from './perfetto.js';
import { readTrace, unpacked } from './reading.js';

/** Let the browser keep a file. */
export function download(blob, fileName) {
  const address = URL.createObjectURL(blob);
  const link = Object.assign(document.createElement('a'), { href: address, download: fileName });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

/** @returns {Promise<Blob>} the lines, compressed */
export async function packed({ blob }) {
  const lines = await unpacked(blob);
  return new Response(lines.pipeThrough(new CompressionStream('gzip'))).blob();
}

/** @returns {Promise<Blob>} what Perfetto opens */
export async function chromeTraceOf({ blob }, check) {
  const conversion = new Conversion();
  await readTrace(await unpacked(blob), { check, onRecord: (record) => conversion.add(record) });
  return new Blob([JSON.stringify(conversion.result())], { type: 'application/json' });
}

/** A name that every system takes for a file. */
export const fileNameOf = (name, suffix) => `${name.replace(/[^\p{L}\p{N}._-]+/gu, '-').slice(0, 80)}${suffix}`;
