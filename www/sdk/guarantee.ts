/**
 * What a task promises, as checked on this device.
 * @module
 */

import type { Task } from './task.js';

/** The promise of one task. */
export interface Guarantee {
  /** (ε, δ) of one epoch, against the verifier and everyone after it. */
  readonly epsilon: number;
  readonly delta: number;
  /** Number of epochs, and what all of them cost together. */
  readonly epochs: number;
  readonly totalEpsilon: number;
  readonly totalDelta: number;
  /** ε₀, which is left if every relay colludes with the verifier; null where nothing is. */
  readonly localEpsilon: number | null;
  /** n_min, the honest clients whose messages the promise needs in every batch. */
  readonly minimumHonest: number;
  /** Clients in a batch. */
  readonly batch: number;
  /** What this device takes on trust. */
  readonly unverified: readonly string[];
}

export function guaranteeOf(task: Task, epsilon0: number): Guarantee {
  const epsilon = Number(task.claim.epsilon);
  const delta = Number(task.claim.delta);
  const { count } = task.epochs;
  const relay = task.slots.padding === 'full' ? 'at least one relay' : 'the first relay';
  return {
    epsilon,
    delta,
    epochs: count,
    totalEpsilon: count * epsilon,
    totalDelta: count * delta,
    localEpsilon: Number.isFinite(epsilon0) ? epsilon0 : null,
    minimumHonest: task.batch.min,
    batch: task.batch.size,
    unverified: [
      `that ${task.batch.min} of the ${task.batch.size} clients in a batch are honest`,
      `that ${relay} does not collude with the verifier`,
      'that the first relay does not surround one client with clients of its own',
      'that taking part may be known: the first relay sees who reports, though not what',
    ],
  };
}
