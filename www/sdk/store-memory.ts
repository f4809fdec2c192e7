/**
 * A store that forgets at the end of the process: for servers and tests, where the caller makes
 * sure that one client does not come back as another within an epoch.
 * @module
 */

import { type Permit, type Report, type Spent, type Store, charged } from './store.js';

/** Returns an empty store. */
export function memoryStore(): Store {
  const reports = new Map<string, Report>();
  const ledger = new Map<string, Spent>();
  const key = (task: string, epoch: number) => `${task}/${epoch}`;
  return {
    async claim(task: string, epoch: number, epsilon: number, delta: number, permit: Permit) {
      const old = reports.get(key(task, epoch));
      if (old) return old;
      permit([...ledger.values()]);
      ledger.set(task, charged(ledger.get(task), task, epsilon, delta));
      reports.set(key(task, epoch), { task, epoch, state: 'claimed' });
      return undefined;
    },
    async release(task, epoch) {
      reports.delete(key(task, epoch));
      const spent = ledger.get(task);
      if (spent) ledger.set(task, { ...spent, epochs: spent.epochs - 1 });
    },
    async put(report) {
      reports.set(key(report.task, report.epoch), report);
    },
    async sealed(task) {
      return [...reports.values()].filter((r) => r.task === task && r.state === 'sealed');
    },
  };
}
