/**
 * The visitor's opt-out of all reports at this site. It is in the store that also holds reports and the ledger, so it
 * lasts as long as they do, and all tabs see it.
 * @module
 */

import { type Store, dropReport, optOutRecord as record } from './store.js';
import { withExistingIndexedDB, withIndexedDB } from './store-indexeddb.js';
import { waitingReports } from './reported.js';
import { markWithdrawal } from './marks.js';

/**
 * Runs `work` with the page's own store, or with IndexedDB. Without `creates` it creates and upgrades nothing, and
 * returns undefined if IndexedDB has no store, or only one of an older SDK.
 * @throws DoonaError `storage-unavailable`
 */
export async function withStore<T>(own: Store | undefined, creates: boolean,
  work: (store: Store) => Promise<T>): Promise<T | undefined> {
  if (own) return work(own);
  return (creates ? withIndexedDB : withExistingIndexedDB)(work);
}

/** Whether the visitor has opted out. @throws DoonaError `storage-unavailable` */
export async function hasOptedOut(store: Store): Promise<boolean> {
  return (await store.sealed(record)).length > 0;
}

/** Records or removes the opt-out. @throws DoonaError `storage-unavailable` */
export async function setOptOut(store: Store, out: boolean): Promise<void> {
  await store.put({ task: record, epoch: 0, state: out ? 'sealed' : 'dropped' });
}

/**
 * Drops all sealed reports of the given tasks or streams, and keeps the ledger. Also withdraws a report that another
 * tab is sealing. Returns how many sealed reports it dropped.
 * @param ids of the ledger's lines: of tasks, or of the first tasks of streams, in hexadecimal; default all
 * @throws DoonaError `storage-unavailable`
 */
export async function dropSealed(store: Store, ids?: readonly string[]): Promise<number> {
  markWithdrawal();
  let dropped = 0;
  for (const { id, latest } of await store.lines()) {
    if (ids && !ids.includes(id)) continue;
    if (latest && (await dropReport(store, latest.task, latest.epoch))) dropped++;
    for (const { task, epoch } of await waitingReports(store, id)) {
      if (await dropReport(store, task, epoch)) dropped++;
    }
  }
  return dropped;
}

/** Whether the browser sends the Global Privacy Control signal. */
export function hasPrivacyControl(): boolean {
  const { navigator } = globalThis as { navigator?: { readonly globalPrivacyControl?: unknown } };
  return navigator?.globalPrivacyControl === true;
}
