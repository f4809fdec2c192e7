/**
 * Tests limits at their exact values: what a task may cost, and how long a relay may accept a report.
 * @module
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { checkDelta, checkEpsilon } from './budget.js';
import { addEpochs, epochAt, epochsBetween, isClosed, maxEpochsIn } from './epochs.js';
import { DoonaError } from './errors.js';

/** Returns a number slightly larger than x. */
const above = (x: number) => x * (1 + 2 * Number.EPSILON);

function refused(check: () => void, code: string, field: string): void {
  assert.throws(check, (error) => error instanceof DoonaError && error.code === code && error.field === field);
}

test('the epsilon of all epochs together is at most maxEpsilon', () => {
  for (const [epochs, max] of [[3, 3], [4, 1], [1, 1.5]] as const) {
    checkEpsilon(max, epochs, max);
    refused(() => checkEpsilon(above(max), epochs, max), 'epsilon-too-large', 'maxEpsilon');
  }
  for (const none of [NaN, Infinity, -Infinity, 0, -1]) {
    for (const max of [3, Infinity]) refused(() => checkEpsilon(none, 3, max), 'epsilon-too-large', 'maxEpsilon');
  }
});

test('the delta of all epochs together is at most maxDelta, which bounds nothing at 1', () => {
  for (const max of [0.001, 3e-6, 0.5]) {
    checkDelta(max, max);
    refused(() => checkDelta(above(max), max), 'delta-too-large', 'maxDelta');
  }
  checkDelta(2.9, 1);
  for (const max of [0.5, 1]) refused(() => checkDelta(NaN, max), 'delta-too-large', 'maxDelta');
});

test('an epoch is closed 10 minutes after its end: 5 of grace at the relay, 5 of clock difference', () => {
  const epochs = { start: 1_800_000_000, length: 3600, count: 2 };
  const end = (epochs.start + epochs.length) * 1000;
  assert.equal(epochAt(epochs, end - 1), 0);
  assert.equal(epochAt(epochs, end), 1);
  assert.equal(isClosed(epochs, 0, end + 600_000), false);
  assert.equal(isClosed(epochs, 0, end + 600_001), true);
  assert.equal(isClosed(epochs, 1, end + 600_001), false);
});

const month = 2 ** 32;

test('epochs of calendar months begin when months do', () => {
  const begin = (n: number) => Date.UTC(1970, n) / 1000;
  for (let n = -3000; n < 30_000; n++) {
    assert.equal(addEpochs(month, begin(n), 5 - n), begin(5), `${n}`);
    assert.equal(epochsBetween(month, begin(7), begin(n)), n - 7);
    assert.equal(epochsBetween(month, begin(7), begin(n + 1) - 0.001), n - 7);
    assert.equal(addEpochs(month, begin(n) + 86_400 * (n & 15) + 1, 0), begin(n), `${n}`);
  }
  const epochs = { start: begin(684), length: month, count: 3 }; // January to March 2027
  assert.equal(epochAt(epochs, 1000 * begin(687) - 1), 2);
  assert.throws(() => epochAt(epochs, 1000 * begin(687)), { code: 'task-ended' });
  assert.equal(isClosed(epochs, 1, 1000 * begin(686) + 600_000), false);
  assert.equal(isClosed(epochs, 1, 1000 * begin(686) + 600_001), true);
});

test('of calendar months, 12 can begin in 365 days and 13 in 366', () => {
  const day = 86_400;
  for (const [length, count, seconds, most] of [[month, 100, 365 * day, 12], [month, 100, 365 * day + 1, 13],
    [month, 100, 28 * day, 1], [month, 100, 29 * day, 2], [month, 5, Infinity, 5], [month, 5, 0.1, 1],
    [day, 100, 30 * day, 30], [day, 100, 30 * day + 1, 31], [day, 100, 0.1, 1], [7 * day, 100, 365 * day, 53],
    [day, 65_536, Infinity, 65_536]] as const) {
    assert.equal(maxEpochsIn(length, count, seconds), most, `${length}, ${count}, ${seconds}`);
  }
});
