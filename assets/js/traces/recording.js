// A recording that is open: its bytes as they came, and the store that its records are in.

import { ReplayStore } from './replay_store.js';
import { readTrace, unpacked } from './reading.js';

/**
 * @param {{name: string, title?: string, blob: Blob, address?: string|null, check: (value: any) => object,
 *   onProgress?: (numBytes: number) => void}} source  `address`: by which a link can name it;
 *   `title`: what the page calls it
 * @returns {Promise<{name: string, title: string, address: string|null, blob: Blob, store: ReplayStore, numRecords: number}>}
 */
export async function openRecording({ name, title = name, blob, address = null, check, onProgress }) {
  const store = new ReplayStore();
  const onRecord = (record) => store.add([record]);
  const numRecords = await readTrace(await unpacked(blob), { check, onRecord, onProgress });
  store.goLive();
  return { name, title, address, blob, store, numRecords };
}

/** Show a step, or the last one before it; `null`: the end. */
export function lookAtStep(store, stepId) {
  const ordinal = stepId === null ? null : store.history.ordinalOf(stepId);
  if (ordinal === null) store.goLive();
  else store.lookAt(ordinal);
}
