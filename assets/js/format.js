// Numbers as people read them. `null` is "not known" and shown as a dash, never as 0.

export const DASH = '–';

const grouped = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });

/** 1204 → "1,204". */
export function count(value) {
  return value === null || value === undefined ? DASH : grouped.format(value);
}

/** Seconds → "0.4 ms", "104 ms", "1.24 s", "12.4 s", "3 min 05 s". */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return DASH;
  if (seconds === 0) return '0 ms';
  if (seconds < 0.00995) return `${(seconds * 1000).toFixed(1)} ms`;
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 9.995) return `${seconds.toFixed(2)} s`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  return `${grouped.format(Math.floor(whole / 60))} min ${String(whole % 60).padStart(2, '0')} s`;
}

/** The same for a narrow column: a minute and more in seconds, "63.1 s", "185 s". */
export function briefDuration(seconds) {
  if (!(seconds >= 59.95)) return duration(seconds);
  return seconds < 99.95 ? `${seconds.toFixed(1)} s` : `${grouped.format(seconds)} s`;
}

/** A round duration at the end of an axis: 0.2 → "200 ms", 5 → "5 s". */
export function roundDuration(seconds) {
  return seconds < 1
    ? `${Number((seconds * 1000).toPrecision(3))} ms`
    : `${Number(seconds.toPrecision(3))} s`;
}

/** 12.43 → "12.4"; from 100 on without a fraction. */
export function rate(perSecond) {
  if (perSecond === null || perSecond === undefined) return DASH;
  return perSecond < 99.95 ? perSecond.toFixed(1) : grouped.format(perSecond);
}

/** 0.427 → "43%"; what is there but rounds to nothing is "<1%". */
export function percent(share) {
  if (share === null || share === undefined || Number.isNaN(share)) return DASH;
  if (share > 0 && share < 0.005) return '<1%';
  return `${Math.round(share * 100)}%`;
}

/** 17.28 → "17.3×". */
export function ratio(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return DASH;
  return `${value < 99.95 ? value.toFixed(1) : grouped.format(value)}×`;
}

/** [2, 25] → "torch.Size([2, 25])", as the log line reads. */
export function shape(sizes) {
  return sizes === null || sizes === undefined ? DASH : `torch.Size([${sizes.join(', ')}])`;
}

/** The smallest of 1, 2, 2.5, 5 × 10ⁿ that is at least `value`: the top of a scale. */
export function niceCeiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  for (const step of [1, 2, 2.5, 5, 10]) {
    if (value <= step * power * (1 + 1e-9)) return step * power;
  }
  return 10 * power;
}
