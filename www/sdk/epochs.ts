/**
 * The times of a task's epochs: `count` epochs of one length. The first begins at `start`, in Unix seconds. A length is
 * a number of seconds, or stands for calendar months in UTC.
 * @module
 */

import { DoonaError } from './errors.js';
import type { Task } from './task.js';

type Epochs = Task['epochs'];

/** The number of epochs in a block: a bundle has the keys of one block. The last block may have fewer. */
export const blockSize = 8;

/** Returns the number of the block that contains an epoch. */
export function blockOf(epoch: number): number {
  return Math.floor(epoch / blockSize);
}

/** The length of calendar months in UTC. Each epoch then begins when a month does. */
const month = 2 ** 32;

/** Returns when the epoch begins that is `n` epochs after the one that begins at `start`. Times are in Unix seconds. */
export function addEpochs(length: number, start: number, n: number): number {
  return length === month ? beginOf(monthOf(start) + n) : start + n * length;
}

/**
 * Returns how many epochs after the one that begins at `start` the one is that contains a time: negative if it is
 * before. Times are in Unix seconds.
 */
export function epochsBetween(length: number, start: number, at: number): number {
  return length === month ? monthOf(at) - monthOf(start) : Math.floor((at - start) / length);
}

/** Returns how many of `count` consecutive epochs, at least one, can begin within a number of seconds. */
export function maxEpochsIn(length: number, count: number, seconds: number): number {
  // No months are shorter than those from February 2097: no year from 2097 to 2103 is a leap year.
  const start = beginOf((2097 - 1970) * 12 + 1);
  if (!(seconds < addEpochs(length, start, count) - start)) return count;
  return epochsBetween(length, start, start + Math.ceil(Math.max(seconds, 1)) - 1) + 1;
}

/** Returns the month that contains a time in Unix seconds, counted from January 1970. */
function monthOf(at: number): number {
  let found = Math.floor(at / 2_629_746); // the average length
  while (beginOf(found) > at) found--;
  while (beginOf(found + 1) <= at) found++;
  return found;
}

/**
 * Returns when a month begins, in Unix seconds; months are counted from January 1970. Its years begin in March, so that
 * the leap day is their last day.
 */
function beginOf(months: number): number {
  const { floor } = Math;
  const fromMarch = months + 1970 * 12 - 2;
  const year = floor(fromMarch / 12);
  const days = 365 * year + floor(year / 4) - floor(year / 100) + floor(year / 400);
  return 86_400 * (days + floor((153 * (fromMarch - 12 * year) + 2) / 5) - 719_468);
}

/** Returns the epoch at a Unix time in milliseconds, as if there were epochs before the first and after the last. */
export function numberAt({ start, length }: Epochs, milliseconds: number): number {
  return epochsBetween(length, start, milliseconds / 1000);
}

/**
 * Returns the epoch at a Unix time in milliseconds.
 * @throws DoonaError `epoch-not-open` before the first epoch, `task-ended` after the last
 */
export function epochAt(epochs: Epochs, milliseconds: number): number {
  const epoch = numberAt(epochs, milliseconds);
  if (epoch < 0) throw new DoonaError('epoch-not-open', `the task begins at ${startOf(epochs, 0).toISOString()}`);
  if (epoch >= epochs.count) throw new DoonaError('task-ended',
    `the task ended at ${startOf(epochs, epochs.count).toISOString()}`);
  return epoch;
}

/** Returns when an epoch begins, which is also when the previous epoch ends. */
export function startOf(epochs: Epochs, epoch: number): Date {
  return new Date(1000 * addEpochs(epochs.length, epochs.start, epoch));
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
