/**
 * The interface of the SDK's store. It holds which epochs have a report, the sealed bytes to send, the ledger of spent
 * privacy budget, and the opt-out. It also holds fetched tasks (document-cache.ts), what earlier visits saw of a stream
 * (stream-history.ts) and marks of events (ledger.ts), as reports under other ids. It never holds a value or an
 * unsealed message.
 * @module
 */

import type { Bytes } from './bytes.js';

/** The report of a task and epoch. There is at most one. */
export interface Report {
  /** The task's id in hexadecimal. */
  readonly task: string;
  readonly epoch: number;
  /**
   * `claimed`: set before the SDK randomizes the value, so that no other tab randomizes too. If the tab dies before
   * sealing, the state stays `claimed`. The first draft of an epoch skips it. `sealed`: ready to send, or a draft (see
   * `tags`). `delivered`: the relay has it. `dropped`: its epoch closed, the relay refused it, or the page withdrew it.
   * `left-out`: nothing was randomized, because the draw of `sample` left this browser out of the epoch.
   */
  readonly state: 'claimed' | 'sealed' | 'delivered' | 'dropped' | 'left-out';
  /** The bytes to post; only in state `sealed`. */
  readonly body?: Bytes;
  /**
   * How often the report was refused because a quota was used up, and when that last happened, in Unix milliseconds.
   * Only in state `sealed`.
   */
  readonly limited?: number;
  readonly limitedAt?: number;
  /**
   * The report's token, once the issuer has signed it. Only in state `sealed`, and only if the task requires tokens.
   */
  readonly token?: Bytes;
  /**
   * How often all attempts of a delivery failed, and when the next delivery may begin, in Unix milliseconds. Only in
   * state `sealed`.
   */
  readonly failed?: number;
  readonly retryAt?: number;
  /**
   * The tags of all layers, one for each hop. They make the report a draft: it waits until the visitor leaves the site,
   * at most until `leaveAt` in Unix milliseconds, and a later value may replace it unless `final` is true. Only in state
   * `sealed`. Whoever has the tags could recognize the message at the verifier, so they are deleted when it leaves.
   */
  readonly tags?: Bytes;
  readonly leaveAt?: number;
  readonly final?: boolean;
}

/** Returns a report that was claimed and is not sealed yet. */
export function claimed(task: string, epoch: number): Report {
  return { task, epoch, state: 'claimed' };
}

/**
 * Drops a report that is sealed and not delivered, or claimed and not sealed yet. A tab that is sealing it then
 * withdraws it. Returns whether the report was dropped and had been sealed.
 */
export async function dropReport(store: Store, task: string, epoch: number): Promise<boolean> {
  let wasSealed = false;
  await store.update(task, epoch, ({ state }) => {
    wasSealed = state === 'sealed';
    return wasSealed || state === 'claimed' ? { task, epoch, state: 'dropped' } : undefined;
  });
  return wasSealed;
}

/** The store keeps the opt-out as a report with these words as task id; no task has such an id. */
export const optOutRecord = 'opted out';

/** A privacy cost (ε, δ). */
export interface Cost {
  readonly epsilon: number;
  readonly delta: number;
}

/** What the reports of one ledger line cost. This device computes it before the first report. */
export interface Price {
  /** The cost of one report. */
  readonly first: Cost;
  /** The maximum number of reports in one window of the budget's days. */
  readonly reports: number;
  /** The cost of that many reports together, by composition. */
  readonly all: Cost;
  /** Whether `all` relies on the task's limit on events, in all its epochs that begin in a window. */
  readonly events?: true | undefined;
}

/** A run of `count` consecutive epochs, each with a report. The first epoch begins at `start`, in Unix seconds. */
export interface Run {
  readonly start: number;
  readonly count: number;
}

/**
 * A line of the ledger: the reports of one task, or of one stream. All tasks of a stream have the same distribution of
 * privacy loss. The ledger records each report at the start of its epoch and never deletes it, so a wrong clock cannot
 * change the ledger.
 */
export interface Line {
  /** The id of the task, or of the stream's first task, in hexadecimal. */
  readonly id: string;
  readonly price: Price;
  /**
   * Whether the cost grows with each report, up to the composed cost of all. If not, the first report costs as much as
   * all. Fixed with the first report.
   */
  readonly stepped: boolean;
  /** The length of an epoch, as in the task. */
  readonly length: number;
  /** The epochs with a report, ascending and disjoint. */
  readonly runs: readonly Run[];
  /** When a block of the task's pace begins, in Unix seconds; drawn with the first report. */
  readonly block?: number | undefined;
  /** When the epochs of the last events begin, ascending: as many as the task allows in a window. */
  readonly events?: readonly number[];
  /** The report that was claimed last; undefined if it was taken back. */
  readonly latest?: Latest | undefined;
  /** When the epoch begins that `sample` drew last and whose claim was taken back, in Unix seconds. The draw stands. */
  readonly drawn?: number;
}

/** A ledger line before its first report. */
export type LineStart = Pick<Line, 'id' | 'price' | 'length'>;

/** The last claimed report of a line. By it, a later page view knows that the epoch has its report. */
export interface Latest {
  /** The id of the task, in hexadecimal. */
  readonly task: string;
  readonly epoch: number;
  /** When the epoch begins, in Unix seconds. */
  readonly start: number;
  /** When the task's next epoch begins, in Unix seconds; null after the last epoch. */
  readonly next: number | null;
  /** False if the draw of `sample` left this browser out of the epoch, which then has no report. */
  readonly sampled?: boolean | undefined;
}

/**
 * Decides, given all lines of the ledger, whether the budget admits a report. Returns the report's line with the report
 * added, or throws.
 */
export type Permit = (lines: readonly Line[]) => Line;

/** The store of one site. Every method is atomic across all tabs that share the store. */
export interface Store {
  /**
   * Claims the report of a task and epoch, stores the line that `permit` returns under its id, and returns undefined.
   * Also stores `report`, by default one in state `claimed`. If there is already a report, it returns that report and
   * changes nothing. If `permit` throws, it throws the same error and changes nothing.
   */
  claim(task: string, epoch: number, permit: Permit, report?: Report): Promise<Report | undefined>;
  /**
   * Deletes a claim for which no value was randomized, if the report is still `claimed`: another tab may have dropped
   * it. `change` then returns the ledger line `line` without that report.
   */
  release(task: string, epoch: number, line: string, change: (line: Line) => Line): Promise<void>;
  /** Returns all lines of the ledger. */
  lines(): Promise<Line[]>;
  /** Stores a report. It replaces the report of the same task and epoch. */
  put(report: Report): Promise<void>;
  /**
   * Replaces the report of a task and epoch by what `change` returns for it. If `change` returns undefined, or there is
   * no report, it changes nothing. Returns the report that the store then has.
   */
  update(task: string, epoch: number, change: (old: Report) => Report | undefined): Promise<Report | undefined>;
  /** Returns the task's reports in state `sealed`. */
  sealed(task: string): Promise<Report[]>;
}
