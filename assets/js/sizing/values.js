// Figures of the calculator as people read them.

import { count } from '../format.js';

const UNITS = [
  [2 ** 40, 'TiB'],
  [2 ** 30, 'GiB'],
  [2 ** 20, 'MiB'],
];

/** 3221225472 → "3.00 GiB", 36864 → "36,864 B". */
export function memory(bytes) {
  const size = Math.abs(bytes);
  const [unit, name] = UNITS.find(([least]) => size >= least) ?? [1, 'B'];
  if (name === 'B') return `${count(bytes)} B`;
  return `${bytes < 0 ? '−' : ''}${(size / unit).toFixed(2)} ${name}`;
}

/** A share of the card in thousandths, rounded to the side on which it still holds. */
export function share(value, round) {
  return (round(value * 1000) / 1000).toFixed(3);
}

/** A figure with its unit; `words` names what is counted. */
export function figureText({ key, value, unit }, words) {
  switch (unit) {
    case 'bytes':
      return memory(value);
    case 'share':
      return share(value, key === 'highest_utilization' ? Math.floor : Math.ceil);
    default:
      return words(`sizing.unit.${unit}`, { number: count(value) });
  }
}

/** Exact, where the text is rounded. */
export function exactText({ value, unit }) {
  return unit === 'bytes' ? `${count(value)} bytes` : null;
}
