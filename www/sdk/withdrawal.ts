/**
 * Tells pages that are being left of `forget()` and `optOut()` in other tabs. A page that is left has no time to ask
 * IndexedDB whether its draft is still wanted. `localStorage` answers at once, and is shared by all tabs of an origin.
 * @module
 */

const key = 'doona-withdrawn';

/**
 * Marks that the visitor has withdrawn reports. A page that is then left sends no draft that it holds. The next visit
 * asks the store for those that were not withdrawn.
 */
export function markWithdrawal(): void {
  try {
    globalThis.localStorage?.setItem(key, crypto.randomUUID());
  } catch {} // Storage is denied or full. Then the tabs' channel and the store must do.
}

/**
 * Returns the mark that a draft is sealed under. If there is none, it writes one: then a page can tell if the site's
 * data was cleared meanwhile, after a withdrawal too. Returns null where nothing can be stored.
 */
export function markAtSealing(): string | null {
  try {
    if (globalThis.localStorage?.getItem(key) === null) globalThis.localStorage.setItem(key, 'none');
  } catch {}
  return withdrawalMark();
}

/** Returns the last mark, or null if there is none, or none can be read. */
export function withdrawalMark(): string | null {
  try {
    return globalThis.localStorage?.getItem(key) ?? null;
  } catch {
    return null;
  }
}
