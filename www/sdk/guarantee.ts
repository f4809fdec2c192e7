/**
 * The guarantee of a task in numbers, as this device has checked it; explain.ts puts it into words.
 * @module
 */

import { maxCopies, maxReports } from './budget.js';
import type { Task } from './task.js';

/** The guarantee of one task. */
export interface Guarantee {
  /** (ε, δ) of one epoch, against the verifier and every reader of its results. */
  readonly epsilon: number;
  readonly delta: number;
  /**
   * The number of epochs, and the (ε, δ) of all together: the task's claimed total, or the composition of the epochs.
   * All epochs have the same distribution of privacy loss, fixed before the first, so later answers may depend on
   * earlier results (docs/proofs/loss-laws.md).
   */
  readonly epochs: number;
  readonly totalEpsilon: number;
  readonly totalDelta: number;
  /** The most reports of one browser in all epochs: `epochs`, or fewer if the task has a cap. */
  readonly reports: number;
  /**
   * ε₀: the privacy that remains if somebody can tell one client's messages from those of others. Null if none remains.
   */
  readonly localEpsilon: number | null;
  /**
   * ε′: the privacy that remains if no other client is honest. Equals `epsilon` if relays add noise, else
   * `localEpsilon`.
   */
  readonly epsilonNoHonest: number | null;
  /** n_min, the number of honest clients that the promise needs in every batch; 0 if relays add noise. */
  readonly minimumHonest: number;
  /** The number of clients in a batch. */
  readonly batch: number;
  /**
   * Which relay must not collude. `any`: at least one, whatever the others do. `whole`: at least one, and the first
   * relay must keep all messages of one client in one batch. `first`: the first relay.
   */
  readonly relay: 'any' | 'whole' | 'first';
  readonly relays: number;
}

export function guaranteeOf(task: Task, epsilon0: number, totalEpsilon: number): Guarantee {
  const epsilon = Number(task.claim.epsilon);
  const delta = Number(task.claim.delta);
  const { count } = task.epochs;
  const reports = maxReports(task.epochs, count);
  const { total } = task.claim;
  const localEpsilon = Number.isFinite(epsilon0) ? epsilon0 : null;
  const minimumHonest = task.claim.assumption === 'none' ? 0 : task.batch.min;
  return {
    epsilon,
    delta,
    epochs: count,
    totalEpsilon,
    totalDelta: total ? Number(total.delta) : multiple(task.claim.delta, maxCopies(task, count)),
    reports,
    localEpsilon,
    epsilonNoHonest: minimumHonest === 0 ? epsilon : localEpsilon,
    minimumHonest,
    batch: task.batch.size,
    relay: trustOf(task),
    relays: task.relays.length,
  };
}

/**
 * Multiplies a decimal by a whole number. The result is exact if it has at most 15 significant digits, for example 3e-5
 * for 30 times 1e-6. Otherwise it is rounded up.
 */
export function multiple(text: string, times: number): number {
  const [mantissa = ''] = text.split('e');
  const above = mantissa.length > 10 || times > 99_999 ? 1 + 6e-15 : 1; // above the rounding error
  return Number((Number(text) * times * above).toPrecision(15));
}

/**
 * The protocols whose proofs need an honest first relay if a client has several slots per lane (docs/proofs/slots.md).
 */
const firstRelay = ['correlated', 'vectormean'];

/**
 * Computes the same as protocols.Row.Trust in Go. With one slot per lane, a client has no messages that a relay could
 * separate.
 */
function trustOf({ protocol, slots }: Task): Guarantee['relay'] {
  if (slots.padding === 'none') return 'first';
  if (slots.perLane === 1) return 'any';
  return firstRelay.includes(protocol) ? 'first' : 'whole';
}

/**
 * Returns the (ε, δ) of k reports of one person in an epoch, from the (ε, δ) of one report: (kε, δ·(e^{kε}−1)/(e^ε−1))
 * with δ at most 1 (docs/proofs/group.md). It rounds up, by a relative (kε + 30)·1e-14 at most. accountant.GroupPrivacy
 * is the Go implementation.
 */
export function groupPrivacy(epsilon: number, delta: number, reports: number): { epsilon: number; delta: number } {
  if (reports === 1) return { epsilon, delta };
  const above = 1 + 1e-14; // above the rounding error
  const least = Math.max(epsilon, 2 ** -900); // avoids 0/0; a larger ε only raises δ
  const power = Math.expm1(least * reports * above);
  const sum = power === Infinity ? Infinity : power / Math.expm1(least) * (1 + 2e-13); // expm1 may err
  return { epsilon: epsilon * reports * above, delta: delta === 0 ? 0 : Math.min(1, delta * sum) };
}
