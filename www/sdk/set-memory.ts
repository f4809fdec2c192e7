/**
 * The records of a set in memory, for tests. It runs one transaction after the other, and undoes one that fails.
 * @module
 */

import type { Line, Report } from './store.js';
import type { Transact } from './set-ledger.js';

/** The records that transactions in memory share. */
export interface MemoryRecords {
  lines: ReadonlyMap<string, Line>;
  reports: ReadonlyMap<string, Report>;
}

/** Returns what runs transactions over records in memory. */
export function memoryTransact(held: MemoryRecords = { lines: new Map(), reports: new Map() }): Transact {
  let last: Promise<unknown> = Promise.resolve();
  return (_durability, work) => {
    const turn = last.then(async () => {
      const [lines, reports] = [new Map(held.lines), new Map(held.reports)];
      const result = await work({
        lines: async () => structuredClone([...lines.values()]),
        report: async (task, epoch) => structuredClone(reports.get(`${task}/${epoch}`)),
        putLine: (line) => void lines.set(line.id, structuredClone(line)),
        putReport: (report) => void reports.set(`${report.task}/${report.epoch}`, structuredClone(report)),
      });
      [held.lines, held.reports] = [lines, reports];
      return result;
    });
    last = turn.catch(() => {});
    return turn;
  };
}
