// Measured values and predictions in words.

import { count, duration, ratio } from '../format.js';

const CLOSE = 0.1; // of the value: what counts as having known it, where two runs are never the same
const NOISY = new Set(['gib', 'rate', 'seconds', 'share', 'times']);

/** 25 tokens → "25 tokens"; a choice → its sentence. */
export function valueInWords(value, unit, words, choices = {}) {
  if (unit === 'choice') return choices[value] ?? String(value);
  if (unit === 'seconds') return duration(value);
  if (unit === 'share') return percentOf(value);
  if (unit === 'times') return words('lessons.value.times', { value: factorOf(value) });
  if (unit === 'count') return plain(value);
  const one = value === 1 ? '.one' : '';
  return words(`lessons.value.${unit}${one}`, { value: plain(value) });
}

/** What was said against what was measured: `{verdict: 'exact'|'close'|'off', sentence}`. */
export function verdictOf(said, measured, words, choices) {
  const say = (value) => valueInWords(value, measured.unit, words, choices);
  const verdict = judge(said, measured);
  const key = measured.unit === 'choice' ? `choice.${verdict}` : verdict;
  const sentence = words(`lessons.verdict.${key}`, { said: say(said), was: say(measured.value) });
  return { verdict, sentence: [sentence, apart(said, measured, verdict, words)].filter(Boolean).join(' ') };
}

function judge(said, { value, unit }) {
  if (said === value) return 'exact';
  if (!NOISY.has(unit)) return 'off';
  return Math.abs(said - value) <= CLOSE * Math.abs(value) ? 'close' : 'off';
}

/** How far apart they are, where a factor tells something. */
function apart(said, { value, unit }, verdict, words) {
  if (verdict !== 'off' || unit === 'choice' || !(said > 0) || !(value > 0)) return '';
  const factor = value > said ? value / said : said / value;
  if (factor < 1.05) return '';
  return words(value > said ? 'lessons.verdict.more' : 'lessons.verdict.less', { factor: factorOf(factor) });
}

/** 28.8 → "28.8", without the sign that words have of their own. */
function factorOf(value) {
  return ratio(value).replace('×', '');
}

function plain(value) {
  return Number.isInteger(value) ? count(value) : String(Number(value.toFixed(2)));
}

/** A tenth of a percent is told, unless it is none: 0.469 → "46.9%", 0.5 → "50%". */
function percentOf(share) {
  return `${Number((share * 100).toFixed(1))}%`;
}
