/**
 * What the SDK remembers: which epochs have a report, the sealed bytes that still have to be
 * sent, and what has been spent. Never a value, never an unsealed message.
 * @module
 */

import type { Bytes } from './bytes.js';

/** The one report of a task and epoch. */
export interface Report {
  /** The task's id in hexadecimal. */
  readonly task: string;
  readonly epoch: number;
  /**
   * `claimed` before the value is randomized, so that no other tab randomizes too, and for good
   * if this one dies then; `sealed` until it is delivered; `delivered`; `dropped` where its epoch
   * closed or the relay refused it.
   */
  readonly state: 'claimed' | 'sealed' | 'delivered' | 'dropped';
  /** The bytes to post; only while `sealed`. */
  readonly body?: Bytes;
  /** The token that goes with them, in a task with tokens, once there is one; only while `sealed`. */
  readonly token?: Bytes;
}

/** What one task has cost at this site. */
export interface Spent {
  readonly task: string;
  /** ε and δ of one epoch. */
  readonly epsilon: number;
  readonly delta: number;
  /** Epochs with a report. */
  readonly epochs: number;
}

/** Decides, from all that has been spent, whether a report may be claimed; throws if not. */
export type Permit = (spent: readonly Spent[]) => void;

/** One site's memory. Every method is atomic over all tabs that share it. */
export interface Store {
  /**
   * Claims the report of a task and epoch and charges for it, if `permit` does not throw. Where
   * there is one already, that is returned and nothing changes; else undefined.
   */
  claim(task: string, epoch: number, epsilon: number, delta: number, permit: Permit): Promise<Report | undefined>;
  /** Takes back a claim for which nothing was randomized. */
  release(task: string, epoch: number): Promise<void>;
  /** Replaces a report. */
  put(report: Report): Promise<void>;
  /** The task's reports that have not been delivered. */
  sealed(task: string): Promise<Report[]>;
}

/** A task's entry with one epoch more. */
export function charged(old: Spent | undefined, task: string, epsilon: number, delta: number): Spent {
  return { task, epsilon, delta, epochs: (old?.epochs ?? 0) + 1 };
}
