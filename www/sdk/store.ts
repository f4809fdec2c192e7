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
  /** How many visits found a quota used up, and when the last one did, in milliseconds; only while `sealed`. */
  readonly limited?: number;
  readonly limitedAt?: number;
  /** The token that goes with them, in a task with tokens, once there is one; only while `sealed`. */
  readonly token?: Bytes;
}

/** (ε, δ). */
export interface Cost {
  readonly epsilon: number;
  readonly delta: number;
}

/** What the reports of one line cost, as derived on this device before the first. */
export interface Price {
  /** One report. */
  readonly first: Cost;
  /** The most reports that there can be in one stretch of the budget's days. */
  readonly reports: number;
  /** So many together, composed. */
  readonly all: Cost;
}

/** Consecutive epochs, each with a report; the first begins at `start`, in Unix seconds. */
export interface Run {
  readonly start: number;
  readonly count: number;
}

/**
 * What is known of one line: a task, or a stream of tasks that all keep the first one's law. Entries stand at their
 * epoch's time and are never deleted, so no clock changes them.
 */
export interface Line {
  /** The task's id in hexadecimal, or the stream's name. */
  readonly id: string;
  readonly price: Price;
  /** Whether reports add up until that is more than all of them cost together; fixed with the first. */
  readonly stepped: boolean;
  /** Of an epoch, in seconds. */
  readonly length: number;
  /** Ascending. */
  readonly runs: readonly Run[];
}

/**
 * Decides whether a report may be claimed, from all that has been spent: returns the line that it belongs to, with it;
 * throws if not.
 */
export type Permit = (lines: readonly Line[]) => Line;

/** One site's memory. Every method is atomic over all tabs that share it. */
export interface Store {
  /**
   * Claims the report of a task and epoch, and replaces the line that `permit` returns by its id, if that does not
   * throw. Where there is a report already, that is returned and nothing changes; else undefined.
   */
  claim(task: string, epoch: number, permit: Permit): Promise<Report | undefined>;
  /** Takes back a claim for which nothing was randomized: `change` returns its line without it. */
  release(task: string, epoch: number, line: string, change: (line: Line) => Line): Promise<void>;
  /** All that has been spent. */
  lines(): Promise<Line[]>;
  /** Replaces a report. */
  put(report: Report): Promise<void>;
  /** The task's reports that have not been delivered. */
  sealed(task: string): Promise<Report[]>;
}
