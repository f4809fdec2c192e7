/**
 * A store in memory, for servers and tests. It is lost when the process ends. The caller must therefore ensure that no
 * client reports twice in one epoch, for example after a restart.
 * @module
 */

import { type Line, type Permit, type Report, type Store, claimed } from './store.js';

/** Returns an empty store. */
export function memoryStore(): Store {
  const reports = new Map<string, Report>();
  const ledger = new Map<string, Line>();
  const key = (task: string, epoch: number) => `${task}/${epoch}`;
  return {
    async claim(task: string, epoch: number, permit: Permit, report = claimed(task, epoch)) {
      const old = reports.get(key(task, epoch));
      if (old) return old;
      const line = permit([...ledger.values()]);
      ledger.set(line.id, line);
      reports.set(key(task, epoch), report);
      return undefined;
    },
    async release(task, epoch, id, change) {
      if (reports.get(key(task, epoch))?.state !== 'claimed') return;
      reports.delete(key(task, epoch));
      const line = ledger.get(id);
      if (line) ledger.set(id, change(line));
    },
    async lines() {
      return [...ledger.values()];
    },
    async put(report) {
      reports.set(key(report.task, report.epoch), report);
    },
    async update(task, epoch, change) {
      const old = reports.get(key(task, epoch));
      const report = (old && change(old)) ?? old;
      if (report) reports.set(key(task, epoch), report);
      return report;
    },
    async sealed(task) {
      return [...reports.values()].filter((r) => r.task === task && r.state === 'sealed');
    },
  };
}
