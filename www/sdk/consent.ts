/**
 * The visitor's opt-out of all reports at this site. It is in the store that also holds reports and the ledger, so it
 * lasts as long as they do, and all tabs see it.
 * @module
 */

import { type Store, optOutRecord as record } from './store.js';
import { hasIndexedDB, withIndexedDB } from './store-indexeddb.js';
import { StreamHistory } from './stream-history.js';

/**
 * Runs `work` with the page's own store, or with IndexedDB. Without `creates` it returns undefined if IndexedDB has no
 * store, and creates none.
 * @throws DoonaError `storage-unavailable`
 */
export async function withStore<T>(own: Store | undefined, creates: boolean,
  work: (store: Store) => Promise<T>): Promise<T | undefined> {
  if (own) return work(own);
  return creates || (await hasIndexedDB()) ? withIndexedDB(work) : undefined;
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
 * Drops all sealed reports of the given tasks or streams, and keeps the ledger. Returns how many it dropped.
 * @param ids of the ledger's lines: of tasks, or of the first tasks of streams, in hexadecimal; default all
 * @throws DoonaError `storage-unavailable`
 */
export async function dropSealed(store: Store, ids?: readonly string[]): Promise<number> {
  let dropped = 0;
  for (const line of ids ?? (await store.lines()).map(({ id }) => id)) {
    const opened = await new StreamHistory(store, line).withReports();
    for (const id of [line, ...opened.map((task) => task.id)]) {
      for (const { task, epoch } of await store.sealed(id)) {
        await store.put({ task, epoch, state: 'dropped' });
        dropped++;
      }
    }
  }
  return dropped;
}

/** Whether the browser sends the Global Privacy Control signal. */
export function hasPrivacyControl(): boolean {
  const { navigator } = globalThis as { navigator?: { readonly globalPrivacyControl?: unknown } };
  return navigator?.globalPrivacyControl === true;
}
