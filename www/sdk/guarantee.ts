/**
 * What a task promises, as checked on this device: in numbers here, in words in explain.ts.
 * @module
 */

import type { Task } from './task.js';

/** The promise of one task. */
export interface Guarantee {
  /** (ε, δ) of one epoch, against the verifier and everyone after it. */
  readonly epsilon: number;
  readonly delta: number;
  /**
   * Number of epochs, and what all of them cost together: the task's total, or what their laws add up to. All have one
   * law, fixed before the first, so that later answers may depend on earlier results (docs/proofs/loss-laws.md).
   */
  readonly epochs: number;
  readonly totalEpsilon: number;
  readonly totalDelta: number;
  /** ε₀, which is left of one client whose messages are told apart; null where nothing is. */
  readonly localEpsilon: number | null;
  /** ε′, which holds if no other client is honest: epsilon where relays add noise, else localEpsilon. */
  readonly aloneEpsilon: number | null;
  /** n_min, the honest clients whose messages the promise needs in every batch; 0 where relays add noise. */
  readonly minimumHonest: number;
  /** Clients in a batch. */
  readonly batch: number;
  /**
   * Which relay must not collude: any one of so many, whatever the others do; any one, as long as the
   * first leaves all messages of one client in one batch; or the first.
   */
  readonly relay: 'any' | 'whole' | 'first';
  readonly relays: number;
}

export function guaranteeOf(task: Task, epsilon0: number, totalEpsilon: number): Guarantee {
  const epsilon = Number(task.claim.epsilon);
  const delta = Number(task.claim.delta);
  const { count } = task.epochs;
  const { total } = task.claim;
  const localEpsilon = Number.isFinite(epsilon0) ? epsilon0 : null;
  const minimumHonest = task.claim.assumption === 'none' ? 0 : task.batch.min;
  return {
    epsilon,
    delta,
    epochs: count,
    totalEpsilon,
    totalDelta: total ? Number(total.delta) : multiple(task.claim.delta, count),
    localEpsilon,
    aloneEpsilon: minimumHonest === 0 ? epsilon : localEpsilon,
    minimumHonest,
    batch: task.batch.size,
    relay: trustOf(task),
    relays: task.relays.length,
  };
}

/** Returns the multiple of a decimal where that has up to 15 digits, else a number above it: 30 times 1e-6 is 3e-5. */
export function multiple(text: string, times: number): number {
  const [mantissa = ''] = text.split('e');
  const above = mantissa.length > 10 || times > 99_999 ? 1 + 6e-15 : 1; // more than the rounding
  return Number((Number(text) * times * above).toPrecision(15));
}

/** Protocols whose proofs need an honest first relay under every padding (docs/proofs/slots.md). */
const firstRelay = ['correlated', 'vectormean'];

/** What protocols.Row.Trust says: one slot of a client in a lane leaves nothing to part. */
function trustOf({ protocol, slots }: Task): Guarantee['relay'] {
  if (slots.padding === 'none') return 'first';
  if (slots.perLane === 1) return 'any';
  return firstRelay.includes(protocol) ? 'first' : 'whole';
}

/**
 * What the (ε, δ) of one report leaves to a person with several in an epoch: (kε, δ·(e^{kε}−1)/(e^ε−1)), rounded up by
 * a relative (kε + 30)·1e-14 at most, and δ at most 1 (docs/proofs/group.md). accountant.GroupPrivacy in Go.
 */
export function groupPrivacy(epsilon: number, delta: number, reports: number): { epsilon: number; delta: number } {
  if (reports === 1) return { epsilon, delta };
  const above = 1 + 1e-14; // more than the rounding
  const least = Math.max(epsilon, 2 ** -900); // a larger ε only raises δ
  const power = Math.expm1(least * reports * above);
  const sum = power === Infinity ? Infinity : power / Math.expm1(least) * (1 + 2e-13); // an engine's expm1 may err
  return { epsilon: epsilon * reports * above, delta: delta === 0 ? 0 : Math.min(1, delta * sum) };
}
