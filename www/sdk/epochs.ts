/**
 * When clients report: `count` epochs of `length` seconds from `start`, a Unix time.
 * @module
 */

import { DoonaError } from './errors.js';
import type { Task } from './task.js';

type Epochs = Task['epochs'];

/** @throws DoonaError `epoch-not-open` or `task-ended` where no epoch holds the time */
export function epochAt(epochs: Epochs, milliseconds: number): number {
  const epoch = Math.floor((milliseconds / 1000 - epochs.start) / epochs.length);
  if (epoch < 0) throw new DoonaError('epoch-not-open', `the task begins at ${startOf(epochs, 0).toISOString()}`);
  if (epoch >= epochs.count) throw new DoonaError('task-ended',
    `the task ended at ${startOf(epochs, epochs.count).toISOString()}`);
  return epoch;
}

/** When an epoch begins, which is when the one before ends. */
export function startOf(epochs: Epochs, epoch: number): Date {
  return new Date(1000 * (epochs.start + epoch * epochs.length));
}

/**
 * How long after an epoch's end a relay may still take its reports, in milliseconds: 5 minutes by
 * its clock, from which this one may differ by as much.
 */
const grace = 600_000;

/** Whether no relay takes reports of the epoch any more. */
export function isClosed(epochs: Epochs, epoch: number, milliseconds: number): boolean {
  return milliseconds > startOf(epochs, epoch + 1).getTime() + grace;
}

/** When the epoch after this one begins; null after the last. */
export function nextEpoch(epochs: Epochs, epoch: number): Date | null {
  return epoch + 1 < epochs.count ? startOf(epochs, epoch + 1) : null;
}
