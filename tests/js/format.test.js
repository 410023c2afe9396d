import assert from 'node:assert/strict';
import { test } from 'node:test';
import { briefDuration, count, duration, niceCeiling, percent, rate, ratio, shape } from '../../assets/js/format.js';

const cases = (format, pairs) => {
  for (const [value, text] of pairs) assert.equal(format(value), text, `${value}`);
};

test('counts are grouped, and what is not known is a dash', () => {
  cases(count, [
    [0, '0'],
    [1204, '1,204'],
    [50789376, '50,789,376'],
    [null, '–'],
    [undefined, '–'],
  ]);
});

test('durations keep three figures and change units without gaps', () => {
  cases(duration, [
    [0, '0 ms'],
    [0.0004, '0.4 ms'],
    [0.00994, '9.9 ms'],
    [0.01, '10 ms'],
    [0.104, '104 ms'],
    [0.9994, '999 ms'],
    [0.9996, '1.00 s'],
    [1.2449, '1.24 s'],
    [9.996, '10.0 s'],
    [12.44, '12.4 s'],
    [59.94, '59.9 s'],
    [59.96, '1 min 00 s'],
    [185, '3 min 05 s'],
    [null, '–'],
  ]);
});

test('a share that is not nothing is never 0%', () => {
  cases(percent, [
    [0, '0%'],
    [0.0001, '<1%'],
    [0.427, '43%'],
    [1, '100%'],
    [null, '–'],
    [NaN, '–'],
  ]);
});

test('rates and ratios', () => {
  cases(rate, [
    [0, '0.0'],
    [12.43, '12.4'],
    [99.96, '100'],
    [1234.5, '1,235'],
    [null, '–'],
  ]);
  cases(ratio, [
    [17.275, '17.3×'],
    [1, '1.0×'],
    [420.2, '420×'],
    [Infinity, '–'],
    [null, '–'],
  ]);
});

test('the shape reads like the log line', () => {
  cases(shape, [
    [[2, 25], 'torch.Size([2, 25])'],
    [[11], 'torch.Size([11])'],
    [null, '–'],
  ]);
});

test('the top of a scale is the next round number', () => {
  cases(
    (value) => String(niceCeiling(value)),
    [
      [0, '1'],
      [0.18, '0.2'],
      [0.2, '0.2'],
      [0.21, '0.25'],
      [25, '25'],
      [26, '50'],
      [51, '100'],
      [1001, '2000'],
    ],
  );
});

test('in a narrow column a minute and more is written in seconds', () => {
  cases(briefDuration, [
    [1.24, '1.24 s'],
    [59.94, '59.9 s'],
    [63.06, '63.1 s'],
    [185.2, '185 s'],
    [3600, '3,600 s'],
    [null, '–'],
  ]);
});
