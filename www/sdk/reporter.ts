/**
 * The two ways from a value to the bytes to post, behind one interface: doona.wasm with sealing
 * by WebCrypto, ten times faster, and doona-full.wasm alone, where WebCrypto lacks X25519 or the
 * task is post-quantum.
 * @module
 */

import { type Bundle, checkKeys } from './bundle.js';
import type { Bytes } from './bytes.js';
import { DoonaError, taskRefused } from './errors.js';
import { type Module, ModuleError, zeroLanes } from './module.js';
import { Sealer } from './seal.js';

/** Turns values into submissions for one task whose claim has been checked. Any part may throw ModuleStopped. */
export interface Reporter {
  /** Throws where the module has stopped. */
  alive(): void;
  /** ε₀ of one client's messages; Infinity where the protocol has none. */
  readonly epsilon0: number;
  /** ε of all epochs of the task together. */
  readonly totalEpsilon: number;
  /** ε of so many epochs together at a δ; Infinity if there is none. */
  epsilonWithin(epochs: number, delta: number): number;
  /**
   * Randomizes and seals; the caller keeps at most one result per epoch.
   * @throws DoonaError `invalid-value`; `task-refused` where the task's keys cannot be sealed to
   */
  submission(epoch: number, value: Float64Array): Promise<Bytes>;
}

/** What a bundle is held against. */
export interface ExpectedTask {
  readonly owner: Bytes;
  readonly id: Bytes;
}

/**
 * Checks keys while the module starts; the task must be the owner's.
 * @throws DoonaError `task-refused` or `claim-refused`
 */
export async function withWebCrypto(starting: Promise<Module>, bundle: Bundle, id: Bytes): Promise<Reporter> {
  const keys = await checkKeys(bundle);
  const module = await starting;
  const handle = withOpenErrors(() => module.open(bundle.canonical));
  const sealer = new Sealer(id, keys);
  const slotSize = 1 + bundle.task.slots.messageBytes;
  return {
    alive: () => module.alive(),
    epsilon0: module.epsilon0(handle),
    totalEpsilon: module.totalEpsilon(handle),
    epsilonWithin: (epochs, delta) => module.epsilonWithin(handle, epochs, delta),
    submission: async (epoch, value) => {
      const lanes = withRandomizeErrors(() => module.randomize(handle, value, slotSize));
      try {
        return await sealer.submission(epoch, lanes);
      } catch (cause) {
        throw taskRefused(`its keys cannot be sealed to: ${(cause as Error).message}`, cause);
      } finally {
        zeroLanes(lanes);
      }
    },
  };
}

/** The same with doona-full.wasm. @throws DoonaError `task-refused` or `claim-refused` */
export function withFullModule(module: Module, raw: Bytes, expected: ExpectedTask): Reporter {
  const handle = withOpenErrors(() => module.openBundle(expected.owner, expected.id, raw));
  return {
    alive: () => module.alive(),
    epsilon0: module.epsilon0(handle),
    totalEpsilon: module.totalEpsilon(handle),
    epsilonWithin: (epochs, delta) => module.epsilonWithin(handle, epochs, delta),
    submission: async (epoch, value) => withRandomizeErrors(() => module.submission(handle, epoch, value)),
  };
}

function withOpenErrors(open: () => number): number {
  try {
    return open();
  } catch (cause) {
    if (cause instanceof ModuleError && cause.field) {
      throw new DoonaError('claim-refused', `couldn't accept the task: ${cause.message}`, cause.field, { cause });
    }
    if (cause instanceof ModuleError) throw taskRefused(cause.message, cause);
    throw cause;
  }
}

function withRandomizeErrors<T>(randomize: () => T): T {
  try {
    return randomize();
  } catch (cause) {
    if (cause instanceof ModuleError && cause.field) {
      throw new DoonaError('invalid-value', cause.message, cause.field, { cause });
    }
    if (cause instanceof ModuleError) throw taskRefused(cause.message, cause);
    throw cause;
  }
}
