/**
 * The ledger lets each epoch have one report and charges it to the privacy budget. On a page it runs in the engine's
 * worker, with its own connection to IndexedDB, because libraries of the page cannot replace builtins there. If the
 * page passes its own store, or no worker runs, it runs on the page.
 * @module
 */

import { type Limit, admit, withoutEpoch } from './budget.js';
import type { Line, Report, Store } from './store.js';
import type { Cap } from './task.js';

/** A request to make the one report of a task and epoch. */
export interface Claim {
  /** The task's id in hexadecimal. */
  readonly task: string;
  readonly epoch: number;
  /** When the epoch begins, in Unix seconds. The ledger records the report at this time. */
  readonly start: number;
  /** The task's ledger line before its first report. */
  readonly line: Omit<Line, 'stepped' | 'runs'>;
  readonly limit: Limit;
  /** The task's cap, if it has one. */
  readonly cap?: Cap | undefined;
}

/** Decides whether the budget admits a claim. */
export interface Ledger {
  /**
   * Claims the epoch's report and charges the budget. If the epoch already has a report, only returns that report.
   * @throws DoonaError `budget-exceeded`, `cap-reached` or `storage-unavailable`
   */
  claim(claim: Claim): Promise<Report | undefined>;
  /**
   * Takes a claim back. Call it only if no value was randomized for the claim.
   * @throws DoonaError `storage-unavailable`
   */
  release(claim: Claim): Promise<void>;
}

/** Returns the ledger of a store. It calls `check` right before each decision; if `check` throws, nothing changes. */
export function ledgerOf(store: Store, check: () => void = () => {}): Ledger {
  return {
    claim: ({ task, epoch, start, line, limit, cap }) =>
      store.claim(task, epoch, (lines) => (check(), admit(lines, line, start, limit, cap))),
    release: ({ task, epoch, start, line }) =>
      store.release(task, epoch, line.id, (old) => (check(), withoutEpoch(old, start))),
  };
}
