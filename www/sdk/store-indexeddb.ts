/**
 * The store of a browser: IndexedDB, shared by all tabs and workers of an origin. Its write transactions exclude each
 * other, so two tabs cannot both claim the same epoch.
 * @module
 */

import { DoonaError } from './errors.js';
import { type Line, type Permit, type Report, type Store, claimed, optOutRecord } from './store.js';
import { within } from './timing.js';

const reports = 'reports';
const ledger = 'lines';

/**
 * Opens a connection to the origin's store, runs `work` with it and closes it. A connection that stays open is
 * unreliable: Safari, for example, closes it when the page is in the background.
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

/**
 * Does the same, but creates and upgrades nothing. Returns undefined if the origin has no store, or only one of an
 * older SDK.
 * @throws DoonaError `storage-unavailable`
 */
export async function withExistingIndexedDB<T>(work: (store: Store) => Promise<T>): Promise<T | undefined> {
  const store = new IndexedDBStore(openExisting);
  try {
    return (await store.open()) && (await work(store));
  } catch (error) {
    if ((error as { cause?: unknown } | null)?.cause === noStore) return undefined;
    throw error;
  } finally {
    store.close();
  }
}

/**
 * Opens the origin's store.
 * @throws DoonaError `storage-unavailable`
 */
export async function indexedDBStore(): Promise<Store & { close(): void }> {
  const store = new IndexedDBStore(openDatabase);
  await store.open();
  return store;
}

/**
 * The longest wait for IndexedDB, in milliseconds. Some browsers never answer, and another tab may block an upgrade.
 */
const maxWait = 10_000;

/** Opens the database. If a newer SDK has upgraded it, opens that version: newer versions only add to it. */
async function openDatabase(): Promise<IDBDatabase> {
  try {
    return await opened(indexedDB.open('doona', 2));
  } catch (error) {
    if ((error as { name?: unknown } | null)?.name !== 'VersionError') throw error;
    return opened(indexedDB.open('doona'));
  }
}

function opened(opening: IDBOpenDBRequest): Promise<IDBDatabase> {
  opening.onupgradeneeded = () => {
    const names = opening.result.objectStoreNames;
    if (!names.contains(reports)) opening.result.createObjectStore(reports, { keyPath: ['task', 'epoch'] });
    if (!names.contains(ledger)) opening.result.createObjectStore(ledger, { keyPath: 'id' });
  };
  return connected(opening);
}

function connected(opening: IDBOpenDBRequest): Promise<IDBDatabase> {
  let late = false;
  opening.addEventListener('success', () => late && opening.result.close()); // It would block an upgrade.
  return answered(resultOf(opening), () => (late = true), '; another tab may hold an older version open');
}

/** The cause of an error: the origin has no store, or only one of an older SDK. */
const noStore = new Error('no store');

/** Opens the database in the version that it has. @throws noStore */
async function openExisting(): Promise<IDBDatabase> {
  const opening = indexedDB.open('doona');
  opening.onupgradeneeded = () => opening.transaction!.abort(); // There is no store, and the abort leaves none.
  const db = await connected(opening).catch((cause) => {
    throw (cause as { name?: unknown } | null)?.name === 'AbortError' ? noStore : cause;
  });
  const names = db.objectStoreNames;
  if (names.contains(reports) && names.contains(ledger)) return db;
  db.close();
  throw noStore;
}

/** Waits for IndexedDB, at most `maxWait`. */
function answered<T>(work: Promise<T>, onLate = () => {}, hint = ''): Promise<T> {
  return within(work, maxWait, () => {
    onLate();
    return new Error(`it did not answer within ${maxWait / 1000} seconds${hint}`);
  });
}

/** The open stores of this thread, and its transactions. */
let stores: IndexedDBStore[] = [];
let running: IDBTransaction[] = [];

/** Resolves once the page is back from the back-forward cache; undefined while it is not in there. */
let shown: Promise<void> | undefined;
let show = (): void => {};

/** How often this thread was suspended. */
let suspensions = 0;

/**
 * Aborts the transactions of this thread and closes its connections, because the page enters the back-forward cache.
 * WebKit keeps them open in there, and a transaction then blocks the database for all pages of the site. The aborted
 * transactions run anew after `resumeStores`.
 */
export function suspendStores(): void {
  suspensions++;
  shown ??= new Promise<void>((resolve) => (show = resolve));
  for (const tx of running) abort(tx);
  for (const store of stores) store.close();
}

/** Ends the suspension. */
export function resumeStores(): void {
  show();
  shown = undefined;
}

function onHide({ persisted }: PageTransitionEvent): void {
  if (!persisted) return;
  suspendStores();
  addEventListener('pageshow', resumeStores, { once: true });
}

class IndexedDBStore implements Store {
  /** The connection; undefined once it is closed. */
  #db: IDBDatabase | undefined;

  /** The connection that opens now. */
  #opening: Promise<IDBDatabase> | undefined;

  constructor(readonly connect: () => Promise<IDBDatabase>) {}

  /** Opens a connection, if none is open. @throws DoonaError `storage-unavailable` */
  open(): Promise<IDBDatabase> {
    if (this.#db) return Promise.resolve(this.#db);
    this.#opening ??= this.#open().finally(() => (this.#opening = undefined));
    return this.#opening;
  }

  async #open(): Promise<IDBDatabase> {
    try {
      const db = await this.connect();
      const forget = () => {
        if (this.#db === db) this.close();
      };
      db.onclose = forget; // The browser closed it; Safari does so in the background.
      db.onversionchange = () => {
        db.close(); // Otherwise a newer SDK in another tab could not upgrade the database while this tab is open.
        forget();
      };
      if (typeof document !== 'undefined') addEventListener('pagehide', onHide);
      stores.push(this);
      return (this.#db = db);
    } catch (cause) {
      // Without a store, every visit would randomize the value anew, and the average of many reports reveals the value.
      const message = "couldn't open IndexedDB, without which one epoch could be reported twice: give a store that remembers";
      throw new DoonaError('storage-unavailable', message, 'store', { cause });
    }
  }

  close(): void {
    this.#db?.close(); // Running transactions still finish.
    this.#db = undefined;
    stores = stores.filter((store) => store !== this);
    if (stores.length === 0 && typeof document !== 'undefined') removeEventListener('pagehide', onHide);
  }

  /** Begins a transaction. If the browser has closed the connection without an event, opens a new connection first. */
  async #begin(names: string[], mode: IDBTransactionMode, options?: IDBTransactionOptions): Promise<IDBTransaction> {
    let db: IDBDatabase;
    do {
      await shown;
      db = await this.open();
    } while (shown); // It opened while the page was suspended.
    try {
      return db.transaction(names, mode, options);
    } catch (error) {
      if ((error as { name?: unknown } | null)?.name !== 'InvalidStateError') throw error;
      this.close();
      return (await this.open()).transaction(names, mode, options);
    }
  }

  /** Runs `work` in a transaction, and anew if the thread is suspended meanwhile. A failure aborts the transaction. */
  async #transact<T>(names: string[], mode: IDBTransactionMode, options: IDBTransactionOptions | undefined,
    work: (tx: IDBTransaction) => Promise<T>): Promise<T> {
    for (;;) {
      const before = suspensions;
      let tx: IDBTransaction | undefined;
      try {
        tx = await this.#begin(names, mode, options);
        running.push(tx);
        return await work(tx);
      } catch (error) {
        abort(tx);
        if (before === suspensions) throw error;
      } finally {
        running = running.filter((other) => other !== tx);
      }
    }
  }

  /** Reads in one transaction. @throws DoonaError `storage-unavailable` */
  async #read<T>(from: string, query?: IDBKeyRange): Promise<T[]> {
    try {
      return await this.#transact([from], 'readonly', undefined,
        (tx) => answered(resultOf(tx.objectStore(from).getAll(query))));
    } catch (error) {
      throw error instanceof DoonaError ? error : unavailable('read', error);
    }
  }

  async claim(task: string, epoch: number, permit: Permit, report = claimed(task, epoch)): Promise<Report | undefined> {
    return this.#write([reports, ledger], 'strict', async (tx) => {
      const old: Report | undefined = await resultOf(tx.objectStore(reports).get([task, epoch]));
      if (old) return old;
      const lines: Line[] = await resultOf(tx.objectStore(ledger).getAll());
      tx.objectStore(ledger).put(permit(lines));
      tx.objectStore(reports).put(report);
      return undefined;
    });
  }

  async release(task: string, epoch: number, id: string, change: (line: Line) => Line): Promise<void> {
    await this.#write([reports, ledger], 'relaxed', async (tx) => {
      const old: Report | undefined = await resultOf(tx.objectStore(reports).get([task, epoch]));
      if (old?.state !== 'claimed') return;
      tx.objectStore(reports).delete([task, epoch]);
      const line: Line | undefined = await resultOf(tx.objectStore(ledger).get(id));
      if (line) tx.objectStore(ledger).put(change(line));
    });
  }

  async lines(): Promise<Line[]> {
    return this.#read(ledger);
  }

  async put(report: Report): Promise<void> {
    await this.#write([reports], report.task === optOutRecord ? 'strict' : 'relaxed', async (tx) => {
      tx.objectStore(reports).put(report);
    });
  }

  async update(task: string, epoch: number,
    change: (old: Report) => Report | undefined): Promise<Report | undefined> {
    return this.#write([reports], 'relaxed', async (tx) => {
      const old: Report | undefined = await resultOf(tx.objectStore(reports).get([task, epoch]));
      const report = old && change(old);
      if (report) tx.objectStore(reports).put(report);
      return report ?? old;
    });
  }

  async sealed(task: string): Promise<Report[]> {
    const range = IDBKeyRange.bound([task], [task, []]); // Arrays sort after numbers.
    const all = await this.#read<Report>(reports, range);
    return all.filter((report) => report.state === 'sealed');
  }

  /**
   * Runs `work` in one transaction and resolves once it is committed. Only claims and the opt-out use strict
   * durability: they must survive a power failure, or the next visit would randomize again, or report against the
   * visitor's will.
   */
  async #write<T>(names: string[], durability: IDBTransactionDurability,
    work: (tx: IDBTransaction) => Promise<T>): Promise<T> {
    try {
      return await this.#transact(names, 'readwrite', { durability }, async (tx) => {
        const committed = whenCommitted(tx);
        const result = await answered(work(tx));
        await answered(committed);
        return result;
      });
    } catch (error) {
      throw error instanceof DoonaError ? error : unavailable('write to', error);
    }
  }
}

/** What a transaction of {@link transact} reads and writes. */
export interface Records {
  /** All lines of the ledger. */
  lines(): Promise<Line[]>;
  report(task: string, epoch: number): Promise<Report | undefined>;
  putLine(line: Line): void;
  putReport(report: Report): void;
}

/**
 * Runs `work` in one transaction over the ledger and the reports, and resolves once it is committed. It opens a
 * connection of its own. A class method would be in the scripts of every page; only pages with a set use this.
 * @throws DoonaError `storage-unavailable`
 */
export async function transact<T>(durability: IDBTransactionDurability,
  work: (records: Records) => Promise<T>): Promise<T> {
  for (;;) {
    const before = suspensions;
    let [db, tx]: [IDBDatabase | undefined, IDBTransaction | undefined] = [undefined, undefined];
    try {
      await shown;
      db = await openDatabase();
      if (shown) continue; // It opened while the page was suspended.
      tx = db.transaction([reports, ledger], 'readwrite', { durability });
      running.push(tx);
      const committed = whenCommitted(tx);
      const result = await answered(work(recordsOf(tx)));
      await answered(committed);
      return result;
    } catch (error) {
      abort(tx);
      if (before === suspensions) throw error instanceof DoonaError ? error : unavailable('write to', error);
    } finally {
      running = running.filter((other) => other !== tx);
      db?.close();
    }
  }
}

function recordsOf(tx: IDBTransaction): Records {
  const [all, lines] = [tx.objectStore(reports), tx.objectStore(ledger)];
  return {
    lines: () => resultOf(lines.getAll()),
    report: (task, epoch) => resultOf(all.get([task, epoch])),
    putLine: (line) => void lines.put(line),
    putReport: (report) => void all.put(report),
  };
}

export function whenCommitted(tx: IDBTransaction): Promise<void> {
  const committed = new Promise<void>((resolve, reject) => {
    tx.oncomplete = () => resolve();
    tx.onabort = () => reject(tx.error ?? new Error('transaction aborted'));
  });
  committed.catch(() => {}); // The caller already reports the error behind an abort.
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
