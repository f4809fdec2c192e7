/**
 * What many reports cost together. The epochs of one task are composed exactly by the module. Tasks may have been
 * chosen after the results of others, so that reports of several add up: (ε, δ) and (ε′, δ′) are (ε + ε′, δ + δ′).
 * @module
 */

import { DoonaError } from './errors.js';
import type { Spent } from './store.js';

/** Returns the ε of all that has been spent. */
export function total(spent: readonly Spent[]): number {
  return spent.reduce((sum, entry) => sum + entry.epsilon * entry.epochs, 0);
}

/** @throws DoonaError `epsilon-too-large` where all epochs of a task may cost more than `max`, or what no number says */
export function checkTask(epsilon: number, epochs: number, max: number): void {
  if (epsilon > 0 && epsilon <= max && Number.isFinite(epsilon)) return;
  const message =
    `couldn't accept the task: its ${epochs} epochs cost epsilon ${epsilon} together, maxEpsilon is ${max}`;
  throw new DoonaError('epsilon-too-large', message, 'maxEpsilon');
}

/**
 * Without a bound on δ a claim could be true and worthless: a client that reports its value with
 * probability δ is (0, δ)-private. A bound of 1 bounds nothing.
 *
 * @throws DoonaError `delta-too-large` where all epochs of a task may add up to more than `max`
 */
export function checkDelta(total: number, max: number): void {
  if (total <= max || (max === 1 && Number.isFinite(total))) return;
  const message = `couldn't accept the task: its epochs' delta adds up to ${total}, maxDelta is ${max}`;
  throw new DoonaError('delta-too-large', message, 'maxDelta');
}

/** @throws DoonaError `budget-exceeded` where one more report would exceed `max` at this site */
export function checkSite(spent: readonly Spent[], epsilon: number, max: number): void {
  const before = total(spent);
  if (before + epsilon <= max) return;
  const message =
    `couldn't report: this site has spent epsilon ${before}, a report costs ${epsilon}, maxTotalEpsilon is ${max}`;
  throw new DoonaError('budget-exceeded', message, 'maxTotalEpsilon');
}
