/**
 * Tests limits at their exact values: what a task may cost, and how long a relay may accept a report.
 * @module
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { checkDelta, checkEpsilon } from './budget.js';
import { isClosed, epochAt } from './epochs.js';
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
