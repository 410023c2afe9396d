// The theme as a canvas needs it: colours and fonts read from the CSS variables.

import { NUM_SEAT_COLOURS, seatColour } from './seats.js';

const NAMES = [
  'bg',
  'card',
  'ink',
  'mute',
  'line',
  'soft',
  'accent',
  'ok',
  'warn',
  'bad',
  'free',
  'cached',
  'bar',
];

/** @param {Element} element the variables as they hold there */
export function readPalette(element) {
  const style = getComputedStyle(element);
  const value = (name) => style.getPropertyValue(`--${name}`).trim();
  const scale = Number.parseFloat(value('scope-scale')) || 1;
  const font = (size, family, weight = 400) =>
    `${weight} ${Math.round(size * scale * 2) / 2}px ${value(family)}`;
  const seats = Array.from({ length: NUM_SEAT_COLOURS }, (_, i) => ({
    fill: value(`s${i}`),
    ink: value(`s${i}-ink`),
  }));
  const colours = Object.fromEntries(NAMES.map((name) => [name, value(name)]));
  return {
    ...colours,
    scale,
    small: font(10.5, 'mono'),
    text: font(11.5, 'sans'),
    mono: font(11.5, 'mono'),
    letter: (size) => `700 ${size}px ${value('mono')}`,
    /** Fill and ink of a seat; grey for a request that was never announced. */
    seat: (seat) => seats[seatColour(seat)] ?? { fill: colours.mute, ink: colours.card },
  };
}

/** Calls back when the theme changes. @returns {() => void} stop */
export function watchTheme(onChange) {
  const observer = new MutationObserver(onChange);
  const options = { attributes: true, attributeFilter: ['data-theme', 'class'] };
  observer.observe(document.documentElement, options);
  observer.observe(document.body, options);
  return () => observer.disconnect();
}
