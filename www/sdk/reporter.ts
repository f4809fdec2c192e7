/**
 * A Reporter turns a value into the bytes to post. There are two implementations. withWebCrypto randomizes with
 * doona.wasm and seals with WebCrypto; it is ten times faster. withFullModule does both with doona-full.wasm, for
 * runtimes whose WebCrypto lacks X25519 and for post-quantum tasks.
 * @module
 */

import { type Bundle, checkKeys } from './bundle.js';
import type { Bytes } from './bytes.js';
import { DoonaError, taskRefused } from './errors.js';
import { type Module, ModuleError, zeroLanes } from './module.js';
import { Sealer } from './seal.js';

/** Turns values into submissions for one task, whose claim is already checked. Every method may throw ModuleStopped. */
export interface Reporter {
  /** Checks that the module runs. @throws ModuleStopped */
  alive(): void;
  /** ε₀ of one client's messages; Infinity if the protocol has none. */
  readonly epsilon0: number;
  /** The ε of all epochs of the task together. */
  readonly totalEpsilon: number;
  /** Returns the ε of `epochs` epochs together at `delta`; Infinity if no ε holds. */
  epsilonWithin(epochs: number, delta: number): number;
  /**
   * Randomizes and seals a value. The caller may send at most one result per epoch. The drafts of one report share
   * their tags, one for each hop; without `tags`, every layer has a random tag.
   * @throws DoonaError `invalid-value`; `task-refused` if sealing to the task's keys fails
   */
  submission(epoch: number, value: Float64Array, tags?: Bytes): Promise<Bytes>;
}

/** The owner and id that a bundle must have. */
export interface ExpectedTask {
  readonly owner: Bytes;
  readonly id: Bytes;
}

/**
 * Returns a reporter that uses doona.wasm and WebCrypto. It checks the parties' keys while the module starts. The
 * caller must already have checked the owner's signature.
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
    submission: async (epoch, value, tags) => {
      const lanes = withRandomizeErrors(() => module.randomize(handle, value, slotSize));
      try {
        return await sealer.submission(epoch, lanes, tags);
      } catch (cause) {
        throw taskRefused(`its keys cannot be sealed to: ${(cause as Error).message}`, cause);
      } finally {
        zeroLanes(lanes);
      }
    },
  };
}

/**
 * Returns a reporter that uses doona-full.wasm only. The module also checks signature and keys.
 * @throws DoonaError `task-refused` or `claim-refused`
 */
export function withFullModule(module: Module, raw: Bytes, expected: ExpectedTask): Reporter {
  const handle = withOpenErrors(() => module.openBundle(expected.owner, expected.id, raw));
  return {
    alive: () => module.alive(),
    epsilon0: module.epsilon0(handle),
    totalEpsilon: module.totalEpsilon(handle),
    epsilonWithin: (epochs, delta) => module.epsilonWithin(handle, epochs, delta),
    submission: async (epoch, value, tags) =>
      withRandomizeErrors(() => module.submission(handle, epoch, value, tags)),
  };
}

export function withOpenErrors(open: () => number): number {
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

export function withRandomizeErrors<T>(randomize: () => T): T {
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
