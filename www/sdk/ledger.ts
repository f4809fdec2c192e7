/**
 * Claims the reports of epochs, and charges them to the budget. In a page it runs in the engine's worker, on a
 * connection of its own to IndexedDB: no library of the page has replaced a builtin there. With a store that the page
 * gives, or without a worker, the page decides.
 * @module
 */

import { type Limit, admit, withoutEpoch } from './budget.js';
import type { Line, Report, Store } from './store.js';

/** A claim on the report of a task and epoch. */
export interface Claim {
  /** The task's id in hexadecimal. */
  readonly task: string;
  readonly epoch: number;
  /** When the epoch begins, in Unix seconds: its time in the ledger. */
  readonly start: number;
  /** The ledger line of the task's reports, before the first report. */
  readonly line: Omit<Line, 'stepped' | 'runs'>;
  readonly limit: Limit;
}

/** Decides about claims. */
export interface Ledger {
  /**
   * Claims a report and charges it, or returns the report that the epoch already has.
   * @throws DoonaError `budget-exceeded` or `storage-unavailable`
   */
  claim(claim: Claim): Promise<Report | undefined>;
  /** Takes back a claim for which nothing was randomized. @throws DoonaError `storage-unavailable` */
  release(claim: Claim): Promise<void>;
}

/** Returns the ledger in a store. `check` runs right before each decision, and may throw. */
export function ledgerOf(store: Store, check: () => void = () => {}): Ledger {
  return {
    claim: ({ task, epoch, start, line, limit }) =>
      store.claim(task, epoch, (lines) => (check(), admit(lines, line, start, limit))),
    release: ({ task, epoch, start, line }) =>
      store.release(task, epoch, line.id, (old) => (check(), withoutEpoch(old, start))),
  };
}
