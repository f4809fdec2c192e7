/**
 * The SDK's store: which epochs have a report, the sealed bytes to send, and the ledger of spent privacy budget. It
 * never holds a value or an unsealed message.
 * @module
 */

import type { Bytes } from './bytes.js';

/** The one report of a task and epoch. */
export interface Report {
  /** The task's id in hexadecimal. */
  readonly task: string;
  readonly epoch: number;
  /**
   * `claimed`: set before the value is randomized, so that no other tab randomizes too; it stays if the tab dies then.
   * `sealed`: ready to send. `delivered`: the relay has it. `dropped`: its epoch closed or the relay refused it.
   */
  readonly state: 'claimed' | 'sealed' | 'delivered' | 'dropped';
  /** The bytes to post; only in state `sealed`. */
  readonly body?: Bytes;
  /** How many visits found a quota used up, and the last time in Unix milliseconds; only in state `sealed`. */
  readonly limited?: number;
  readonly limitedAt?: number;
  /** The report's token, once the issuer has signed it; only in state `sealed` and in a task with tokens. */
  readonly token?: Bytes;
}

/** (ε, δ). */
export interface Cost {
  readonly epsilon: number;
  readonly delta: number;
}

/** The cost of the reports of one line; this device derives it before the first report. */
export interface Price {
  /** The cost of one report. */
  readonly first: Cost;
  /** The most reports in one window of the budget's days. */
  readonly reports: number;
  /** The composed cost of `reports` reports together. */
  readonly all: Cost;
}

/** `count` consecutive epochs, each with a report. The first begins at `start`, in Unix seconds. */
export interface Run {
  readonly start: number;
  readonly count: number;
}

/**
 * A line of the ledger: the reports of a task, or of a stream, whose tasks all have the first one's privacy-loss law.
 * A report is entered at the begin of its epoch and never deleted, so a wrong clock cannot change the ledger.
 */
export interface Line {
  /** The id of the task, or of the stream's first task, in hexadecimal. */
  readonly id: string;
  readonly price: Price;
  /** Whether the cost grows with each report up to the composed cost of all; fixed with the first report. */
  readonly stepped: boolean;
  /** The length of an epoch, in seconds. */
  readonly length: number;
  /** The epochs with a report, ascending and disjoint. */
  readonly runs: readonly Run[];
}

/**
 * Decides from all lines of the ledger whether a report may be claimed. Returns the report's line with the report
 * added, or throws.
 */
export type Permit = (lines: readonly Line[]) => Line;

/** The store of one site. Every method is atomic across all tabs that share the store. */
export interface Store {
  /**
   * Claims the report of a task and epoch, stores the line that `permit` returns under its id, and returns undefined.
   * If there is already a report, it returns that report and changes nothing. If `permit` throws, it throws the same
   * error and changes nothing.
   */
  claim(task: string, epoch: number, permit: Permit): Promise<Report | undefined>;
  /** Deletes a claim for which nothing was randomized; `change` returns the claim's line without it. */
  release(task: string, epoch: number, line: string, change: (line: Line) => Line): Promise<void>;
  /** Returns all lines of the ledger. */
  lines(): Promise<Line[]>;
  /** Stores a report. It replaces the older one of its task and epoch. */
  put(report: Report): Promise<void>;
  /** Returns the task's reports in state `sealed`. */
  sealed(task: string): Promise<Report[]>;
}
