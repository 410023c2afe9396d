// Seats: how a request is named on the screen. A letter always goes with the colour.

export const NUM_SEAT_COLOURS = 6;

/** 0 → A, 25 → Z, 26 → AA, as the columns of a spreadsheet. `null` (a request never announced) → ?. */
export function seatLetter(seat) {
  if (seat === null || seat === undefined) return '?';
  const last = String.fromCharCode(65 + (seat % 26));
  return seat < 26 ? last : seatLetter(Math.floor(seat / 26) - 1) + last;
}

/** Index of the CSS variables `--s0` … `--s5`; seats beyond share colours, never letters. */
export function seatColour(seat) {
  return seat === null || seat === undefined ? null : seat % NUM_SEAT_COLOURS;
}
