/**
 * Waits until the visitor leaves the site, where a visit may go through other origins, such as a checkout's; and marks
 * in `localStorage` that a submission has left.
 * @module
 */

import { withStorage } from './marks.js';
import { abortable, isHidden, maxNavigation, maxTimer, onHide, throwIfAborted } from './timing.js';

/** The navigation within the visit that is under way, while somebody watches. */
let goingOn: Event | undefined;

function isGoingOn(): boolean {
  return goingOn !== undefined && !goingOn.defaultPrevented && performance.now() - goingOn.timeStamp < maxNavigation;
}

/** A navigation, as the event `navigate` tells of it. */
interface Navigation extends Event {
  readonly downloadRequest?: unknown;
  readonly destination: { readonly url: string; readonly sameDocument: boolean };
}

/**
 * Watches for navigations to pages of the site, or of an origin that `belongs` to the visit. Calls `onReturn` when the
 * page is back from the back-forward cache. Returns a function that ends this.
 */
export function watchVisit(belongs: (origin: string) => boolean, onReturn: () => void): () => void {
  if (typeof document === 'undefined') return () => {};
  const { navigation } = globalThis as { navigation?: EventTarget };
  const begin = (event: Event) => {
    const { destination, downloadRequest } = event as Navigation;
    const stays = !destination.sameDocument && (downloadRequest ?? null) === null &&
      belongs(new URL(destination.url).origin);
    goingOn = stays ? event : undefined;
  };
  const end = () => (goingOn = undefined);
  // Without the Navigation API: comes before pagehide, and names the next page only if it is of the same origin.
  const swap = (event: Event) => (goingOn = (event as { activation?: unknown }).activation ? event : undefined);
  const listeners = navigation ? [['navigate', begin], ['navigatesuccess', end], ['navigateerror', end]] as const
    : [['pageswap', swap]] as const;
  const target = navigation ?? globalThis;
  for (const [name, listener] of listeners) target.addEventListener(name, listener);
  const show = ({ persisted }: PageTransitionEvent) => {
    if (!persisted) return;
    end();
    onReturn();
  };
  addEventListener('pageshow', show);
  return () => {
    removeEventListener('pageshow', show);
    for (const [name, listener] of listeners) target.removeEventListener(name, listener);
  };
}

/**
 * Waits until a time in Unix milliseconds, but only until the visitor leaves. Resolves to whether the page is still
 * visible. Rejects with the signal's reason on an abort.
 */
export async function untilLeaving(time: number, signal: AbortSignal): Promise<boolean> {
  for (;;) {
    throwIfAborted(signal);
    if (isHidden()) return false;
    const wait = Math.min(time - Date.now(), maxTimer);
    if (wait <= 0) return true;
    let stop = () => {};
    const waited = new Promise<boolean>((resolve) => {
      const timer = setTimeout(() => resolve(true), wait);
      const stopListening = onHide(() => isGoingOn() || resolve(false)); // At pagehide, the page counts as visible.
      stop = () => {
        clearTimeout(timer);
        stopListening();
      };
    });
    try {
      if (!(await abortable(waited, signal))) return false;
    } finally {
      stop();
    }
  }
}

const mark = (root: string) => `doona-left-${root}`;

/** Marks that a draft of a day leaves. `day` is when it begins, `version` the draft's. */
export function markLeft(root: string, day: number, version: number): void {
  withStorage((storage) => storage.setItem(mark(root), `${day} ${version}`));
}

/** Returns the version of the draft of a day that has left, although the store may not say so. */
export function leftVersion(root: string, day: number): number | undefined {
  const [at, version] = withStorage((storage) => storage.getItem(mark(root)))?.split(' ') ?? [];
  return at === String(day) ? Number(version) : undefined;
}
