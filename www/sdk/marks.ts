/**
 * Marks in `localStorage`, which answers at once and tells all tabs of an origin of a change: a page that is being left
 * has no time to ask IndexedDB, or to wait for it. One mark tells other tabs of `forget()` and `optOut()`, others tell
 * later pages which drafts have left, or which tasks were fetched.
 * @module
 */

const key = 'doona-withdrawn';

/** Returns undefined where storage is denied or full. Then the tabs' channel and the store must do. */
export function withStorage<T>(work: (storage: Storage) => T): T | undefined {
  try {
    const { localStorage: storage } = globalThis;
    return storage && work(storage);
  } catch {
    return undefined;
  }
}

/** Called at each withdrawal on this page: the event `storage` tells only of other tabs'. */
let watchers: readonly (() => void)[] = [];

/**
 * Marks that the visitor has withdrawn reports. A page that knows of it sends no draft that it holds when it is left.
 * The next visit asks the store for those that were not withdrawn.
 */
export function markWithdrawal(): void {
  withStorage((storage) => storage.setItem(key, crypto.randomUUID()));
  for (const watcher of watchers) watcher();
}

/** Calls a function when the mark may have changed, in any tab. Returns a function that ends this. */
export function watchWithdrawals(callback: () => void): () => void {
  if (typeof document === 'undefined') return () => {};
  const changed = (event: StorageEvent) => (event.key === key || event.key === null) && callback(); // null: cleared
  watchers = [...watchers, callback];
  addEventListener('storage', changed);
  return () => {
    watchers = watchers.filter((watcher) => watcher !== callback);
    removeEventListener('storage', changed);
  };
}

/**
 * Returns the mark that a draft is sealed under. If there is none, it writes one: then a page can tell if the site's
 * data was cleared meanwhile, after a withdrawal too. Returns null where nothing can be stored.
 */
export function markAtSealing(): string | null {
  withStorage((storage) => storage.getItem(key) ?? storage.setItem(key, 'none'));
  return withdrawalMark();
}

/** Returns the last mark, or null if there is none, or none can be read. */
export function withdrawalMark(): string | null {
  return withStorage((storage) => storage.getItem(key)) ?? null;
}

/** Marks that this browser has fetched a task or stream. */
export function markFetched(id: string): void {
  withStorage((storage) => storage.setItem(`doona-fetched-${id}`, ''));
}

/**
 * Whether this browser may have a task or stream in its store. If not, a page asks for it before the store is open. It
 * may, too, where marks are denied: mostly the store is then denied as well, and every view would ask in vain.
 */
export function mayHave(id: string): boolean {
  return withStorage((storage) => storage.getItem(`doona-fetched-${id}`)) !== null;
}

/** Marks that the draft of a task's epoch leaves. No later value may replace it. */
export function markLeaving(task: string, epoch: number): void {
  withStorage((storage) => storage.setItem(`doona-left-${task}`, String(epoch)));
}

/** Whether the draft of a task's epoch has left, although the store may not say so. */
export function hasLeft(task: string, epoch: number): boolean {
  return withStorage((storage) => storage.getItem(`doona-left-${task}`)) === String(epoch);
}
