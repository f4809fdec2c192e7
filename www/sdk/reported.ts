/**
 * Reads from the store what a page view needs to know before it loads anything: whether the epoch already has its
 * report, and whether a sealed report waits.
 * @module
 */

import { addEpochs } from './epochs.js';
import type { Latest, Report, Store } from './store.js';
import { StreamHistory } from './stream-history.js';

/** The report that the current epoch already has. */
export interface Reported extends Latest {
  /** When the epoch ends, in Unix milliseconds. */
  readonly end: number;
  /** Whether a sealed report waits for the relay to recover. */
  readonly waits: boolean;
}

/** Returns the reports of a task, or of all tasks of a stream, that are sealed and not delivered. */
export async function waitingReports(store: Store, line: string): Promise<Report[]> {
  const opened = await new StreamHistory(store, line).withReports();
  const all = await store.sealed(line);
  for (const { id } of opened) if (id !== line) all.push(...(await store.sealed(id)));
  return all;
}

/**
 * Returns the report of the current epoch if there is nothing to do for it now: it was made, and no report may be sent
 * yet. Otherwise returns undefined.
 * @param line the id of the task, or of the stream's first task, in hexadecimal
 * @throws DoonaError `storage-unavailable`
 */
export async function reportOf(store: Store, line: string): Promise<Reported | undefined> {
  const found = (await store.lines()).find(({ id }) => id === line);
  if (!found?.latest) return undefined;
  const { latest, length } = found;
  const [now, end] = [Date.now(), 1000 * addEpochs(length, latest.start, 1)];
  if (now < 1000 * latest.start || now >= end) return undefined;
  const waiting = await waitingReports(store, line);
  return waiting.some((report) => isDue(report, now)) ? undefined : { ...latest, end, waits: waiting.length > 0 };
}

/** The longest pause after a failed delivery, in milliseconds. */
const maxPause = 3_600_000;

/** When the next delivery may begin after `failed` failed ones: at once, then 1, 4, 16 and 60 minutes later. */
export function retryTime(failed: number, now: number): number {
  return failed < 2 ? now : now + Math.min(60_000 * 4 ** (failed - 2), maxPause);
}

/** Whether a report may be sent now. If the clock was turned back since the last delivery, it may. */
export function isDue({ retryAt = 0 }: Report, now: number): boolean {
  return retryAt <= now || retryAt > now + maxPause;
}
