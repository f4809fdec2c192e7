/**
 * The times of a task's epochs: `count` epochs of `length` seconds each. The first begins at `start`, in Unix seconds.
 * @module
 */

import { DoonaError } from './errors.js';
import type { Task } from './task.js';

type Epochs = Task['epochs'];

/**
 * Returns the epoch at a Unix time in milliseconds.
 * @throws DoonaError `epoch-not-open` before the first epoch, `task-ended` after the last
 */
export function epochAt(epochs: Epochs, milliseconds: number): number {
  const epoch = Math.floor((milliseconds / 1000 - epochs.start) / epochs.length);
  if (epoch < 0) throw new DoonaError('epoch-not-open', `the task begins at ${startOf(epochs, 0).toISOString()}`);
  if (epoch >= epochs.count) throw new DoonaError('task-ended',
    `the task ended at ${startOf(epochs, epochs.count).toISOString()}`);
  return epoch;
}

/** Returns when an epoch begins, which is also when the previous epoch ends. */
export function startOf(epochs: Epochs, epoch: number): Date {
  return new Date(1000 * (epochs.start + epoch * epochs.length));
}

/**
 * How long after an epoch's end a relay may still accept its reports, in milliseconds: for 5 minutes by the relay's
 * clock, which may differ from this device's clock by another 5 minutes.
 */
const grace = 600_000;

/** Whether no relay accepts reports of the epoch any more. */
export function isClosed(epochs: Epochs, epoch: number, milliseconds: number): boolean {
  return milliseconds > startOf(epochs, epoch + 1).getTime() + grace;
}

/** Returns when the next epoch begins; null after the last epoch. */
export function nextEpoch(epochs: Epochs, epoch: number): Date | null {
  return epoch + 1 < epochs.count ? startOf(epochs, epoch + 1) : null;
}
