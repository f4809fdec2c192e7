/**
 * The store of a browser: IndexedDB, shared by all tabs and workers of an origin. Its write
 * transactions exclude each other, so two tabs cannot claim one epoch.
 * @module
 */

import { DoonaError } from './errors.js';
import type { Line, Permit, Report, Store } from './store.js';

const reports = 'reports';
const ledger = 'lines';

/**
 * Runs `work` on a connection of its own to the origin's store. The connection is new each time: browsers close one
 * that a page keeps, such as Safari in the background.
 * @throws DoonaError `storage-unavailable`
 */
export async function withIndexedDB<T>(work: (store: Store) => Promise<T>): Promise<T> {
  const store = await indexedDBStore();
  try {
    return await work(store);
  } finally {
    store.close();
  }
}

/** Opens the origin's store. @throws DoonaError `storage-unavailable` */
export async function indexedDBStore(): Promise<Store & { close(): void }> {
  let db: IDBDatabase;
  try {
    const opening = indexedDB.open('doona', 2);
    opening.onupgradeneeded = () => {
      const names = opening.result.objectStoreNames;
      if (!names.contains(reports)) opening.result.createObjectStore(reports, { keyPath: ['task', 'epoch'] });
      opening.result.createObjectStore(ledger, { keyPath: 'id' });
    };
    db = await resultOf(opening);
    db.onversionchange = () => db.close(); // Else a newer version of the page would wait for this tab.
  } catch (cause) {
    // Without a store every visit would randomize anew, and the average of those reports reveals the value.
    const message = "couldn't open IndexedDB, without which one epoch could be reported twice: give a store that remembers";
    throw new DoonaError('storage-unavailable', message, 'store', { cause });
  }
  return new IndexedDBStore(db);
}

class IndexedDBStore implements Store {
  readonly #db: IDBDatabase;

  constructor(db: IDBDatabase) {
    this.#db = db;
  }

  close(): void {
    this.#db.close(); // It waits for the transactions that run.
  }

  async claim(task: string, epoch: number, permit: Permit): Promise<Report | undefined> {
    return this.#write([reports, ledger], 'strict', async (tx) => {
      const old: Report | undefined = await resultOf(tx.objectStore(reports).get([task, epoch]));
      if (old) return old;
      const lines: Line[] = await resultOf(tx.objectStore(ledger).getAll());
      tx.objectStore(ledger).put(permit(lines));
      tx.objectStore(reports).put({ task, epoch, state: 'claimed' } satisfies Report);
      return undefined;
    });
  }

  async release(task: string, epoch: number, id: string, change: (line: Line) => Line): Promise<void> {
    await this.#write([reports, ledger], 'relaxed', async (tx) => {
      tx.objectStore(reports).delete([task, epoch]);
      const line: Line | undefined = await resultOf(tx.objectStore(ledger).get(id));
      if (line) tx.objectStore(ledger).put(change(line));
    });
  }

  async lines(): Promise<Line[]> {
    try {
      return await resultOf(this.#db.transaction(ledger).objectStore(ledger).getAll());
    } catch (cause) {
      throw unavailable('read', cause);
    }
  }

  async put(report: Report): Promise<void> {
    await this.#write([reports], 'relaxed', async (tx) => {
      tx.objectStore(reports).put(report);
    });
  }

  async sealed(task: string): Promise<Report[]> {
    const range = IDBKeyRange.bound([task], [task, []]); // Arrays sort after numbers.
    try {
      const all: Report[] = await resultOf(this.#db.transaction(reports).objectStore(reports).getAll(range));
      return all.filter((report) => report.state === 'sealed');
    } catch (cause) {
      throw unavailable('read', cause);
    }
  }

  /**
   * Runs `work` in one transaction and resolves once it is committed; an error of `work` undoes it. Only claims use
   * strict durability: a claim must survive a power loss, or the next visit would randomize again.
   */
  async #write<T>(stores: string[], durability: IDBTransactionDurability,
    work: (tx: IDBTransaction) => Promise<T>): Promise<T> {
    let tx: IDBTransaction | undefined;
    try {
      tx = this.#db.transaction(stores, 'readwrite', { durability }); // It throws after the site's data was cleared.
      const committed = whenCommitted(tx);
      const result = await work(tx);
      await committed;
      return result;
    } catch (error) {
      abort(tx);
      throw error instanceof DoonaError ? error : unavailable('write to', error);
    }
  }
}

/** Resolves once a transaction is committed. */
export function whenCommitted(tx: IDBTransaction): Promise<void> {
  const committed = new Promise<void>((resolve, reject) => {
    tx.oncomplete = () => resolve();
    tx.onabort = () => reject(tx.error ?? new Error('transaction aborted'));
  });
  committed.catch(() => {}); // The caller reports the error that caused an abort.
  return committed;
}

function abort(tx?: IDBTransaction): void {
  try {
    tx?.abort();
  } catch {
    // The transaction has already ended.
  }
}

function unavailable(what: string, cause: unknown): DoonaError {
  return new DoonaError('storage-unavailable', `couldn't ${what} IndexedDB: ${cause}`, undefined, { cause });
}

export function resultOf<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}
