/**
 * The ledger lets each epoch have one report and charges it to the privacy budget. On a page it runs in the engine's
 * worker, with its own connection to IndexedDB, because libraries of the page cannot replace builtins there. If the
 * page passes its own store, or no worker runs, it runs on the page. The ledger also draws which epochs a browser takes
 * part in (`sample`): it never has a value, so the draw cannot depend on one.
 * @module
 */

import { type Limit, type ReportLimits, admit, withEvent, withoutEpoch, withoutReport } from './budget.js';
import { DoonaError } from './errors.js';
import type { Line, LineStart, Report, Store } from './store.js';
import type { Events } from './task.js';

/** A request to make the one report of a task and epoch. */
export interface Claim {
  /** The task's id in hexadecimal. */
  readonly task: string;
  readonly epoch: number;
  /** When the epoch begins, in Unix seconds. The ledger records the report at this time. */
  readonly start: number;
  /** When the next epoch begins, in Unix seconds; null after the last epoch. */
  readonly next: number | null;
  /** The task's ledger line before its first report. */
  readonly line: LineStart;
  readonly limit: Limit;
  /** The task's limits on the reports of one browser. */
  readonly limits?: ReportLimits;
  /** The task's limit on events, if it has one. */
  readonly events?: Events | undefined;
  /** The probability with which this browser takes part in the epoch, 0 to 1. */
  readonly sample: number;
  /** A draft to store with the claim. Without it, the value is randomized only after the claim. */
  readonly draft?: Report;
}

/** Decides whether the budget admits a claim. */
export interface Ledger {
  /**
   * Claims the epoch's report and charges the budget. If the epoch already has a report, only returns that report.
   * If the draw leaves this browser out of the epoch, it records that, charges nothing and returns a report in state
   * `left-out`: later claims of the epoch, in any tab and at any visit, get the same report.
   * @throws DoonaError `budget-exceeded`, `cap-reached` or `storage-unavailable`
   */
  claim(claim: Claim): Promise<Report | undefined>;
  /**
   * Takes a claim back. Call it only if no value was randomized for the claim. The epoch's draw stands.
   * @throws DoonaError `storage-unavailable`
   */
  release(claim: Claim): Promise<void>;
  /**
   * Records that the report of a claimed epoch is an event. Returns false, and records nothing, if the allowance is
   * used up: send the default then. Returns true if the epoch's event is recorded already. Charges nothing.
   * @throws DoonaError `storage-unavailable`
   */
  event(claim: Claim): Promise<boolean>;
}

/** Returns the ledger of a store. It calls `check` right before each decision; if `check` throws, nothing changes. */
export function ledgerOf(store: Store, check: () => void = () => {}): Ledger {
  return {
    async claim({ task, epoch, start, next, line, limit, limits, sample, draft }) {
      const leftOut: Report = { task, epoch, state: 'left-out' };
      const latest = { task, epoch, start, next };
      for (let sampled = isDrawn(sample); ; sampled = true) {
        let stands = false;
        const permit = (lines: readonly Line[]) => {
          check();
          stands = !sampled && lines.some(({ id, drawn }) => id === line.id && drawn === start);
          if (stands) throw new Error('an earlier draw chose this browser');
          return sampled ? { ...admit(lines, line, start, limit, limits), latest }
            : { ...withoutReport(lines, line, limit), latest: { ...latest, sampled } };
        };
        try {
          const old = await store.claim(task, epoch, permit, sampled ? draft : leftOut);
          return old ?? (sampled ? undefined : leftOut);
        } catch (error) {
          if (!stands) throw error;
        }
      }
    },
    release: ({ task, epoch, start, line }) => store.release(task, epoch, line.id, (old) => (check(),
      { ...withoutEpoch(old, start), latest: undefined, drawn: start })),
    async event({ task, epoch, start, line: { id }, events }) {
      // A store changes a line durably only together with a report, in claim(). This report has another task id and is
      // deleted then: only the line's record stays. Nobody waits for that. If the page dies before, the report says
      // that the epoch's event is recorded, and the next call deletes it. Nothing else reads it.
      const mark = `event of ${task}`;
      let allowed = true;
      try {
        await store.claim(mark, epoch, (lines) => {
          check();
          const old = lines.find((line) => line.id === id);
          const line = old && withEvent(old, start, events!);
          allowed = line !== undefined;
          return line ?? noEvent();
        });
        void store.release(mark, epoch, id, (line) => line).catch(() => {});
      } catch (error) {
        if (allowed) throw error;
      }
      return allowed;
    },
  };
}

function noEvent(): never {
  throw new DoonaError('cap-reached', 'the allowance of events is used up');
}

/** Draws with a probability. It is exact if it is a multiple of 2⁻⁵³, and otherwise less than 2⁻⁵³ too high. */
function isDrawn(probability: number): boolean {
  if (probability === 1) return true;
  const bits = crypto.getRandomValues(new Uint32Array(2));
  return (bits[0]! * 2 ** 21 + (bits[1]! >>> 11)) / 2 ** 53 < probability;
}
