import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NUM_SEAT_COLOURS, seatColour, seatLetter } from '../../assets/js/seats.js';

test('seats are letters, and go on as the columns of a spreadsheet do', () => {
  const letters = [0, 1, 25, 26, 27, 51, 52, 701, 702].map(seatLetter);
  assert.deepEqual(letters, ['A', 'B', 'Z', 'AA', 'AB', 'AZ', 'BA', 'ZZ', 'AAA']);
});

test('no two of the first thousand seats share a letter', () => {
  assert.equal(new Set(Array.from({ length: 1000 }, (_, seat) => seatLetter(seat))).size, 1000);
});

test('colours come again after six seats, and a request never announced has none', () => {
  assert.deepEqual([0, 5, 6, 11].map(seatColour), [0, NUM_SEAT_COLOURS - 1, 0, NUM_SEAT_COLOURS - 1]);
  assert.equal(seatColour(null), null);
  assert.equal(seatLetter(null), '?');
});
