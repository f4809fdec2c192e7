/**
 * Waits for answers, for a time, for an idle page, or until the page is hidden.
 * @module
 */

/** Waits for a promise. Rejects with the signal's reason on an abort; the awaited work continues. */
export async function abortable<T>(promise: Promise<T>, signal?: AbortSignal): Promise<T> {
  if (!signal) return promise;
  promise.catch(() => {}); // Nobody may await it after an abort.
  throwIfAborted(signal);
  let abort = () => {};
  const aborted = new Promise<never>((_, reject) => {
    abort = () => reject(reasonOf(signal));
    signal.addEventListener('abort', abort);
  });
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener('abort', abort);
  }
}

/**
 * Throws the signal's reason if the signal is aborted. Browsers before 2022 lack signal.throwIfAborted and
 * signal.reason.
 */
export function throwIfAborted(signal?: AbortSignal): void {
  if (signal?.aborted) throw reasonOf(signal);
}

function reasonOf(signal: AbortSignal): unknown {
  return signal.reason ?? new DOMException('the call was aborted', 'AbortError');
}

/** Runs `work` with a signal that is aborted as soon as `a` or `b` is. Stops listening once the work ends. */
export async function withEither<T>(a: AbortSignal | undefined, b: AbortSignal | undefined,
  work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const either = new AbortController();
  const abortA = () => either.abort(reasonOf(a!));
  const abortB = () => either.abort(reasonOf(b!));
  if (b?.aborted) abortB();
  if (a?.aborted) abortA();
  a?.addEventListener('abort', abortA);
  b?.addEventListener('abort', abortB);
  try {
    return await work(either.signal);
  } finally {
    a?.removeEventListener('abort', abortA);
    b?.removeEventListener('abort', abortB);
  }
}

/** The longest wait for another party's answer and its body, in milliseconds. */
const maxWait = 30_000;

/**
 * Runs a request. Rejects with a TimeoutError if the answer takes longer than `patience` milliseconds (at most
 * `maxWait`), or with the reason of `outer` if that signal is aborted.
 */
export async function withTimeout<T>(ask: (signal: AbortSignal) => Promise<T>, patience = maxWait,
  outer?: AbortSignal): Promise<T> {
  throwIfAborted(outer);
  const wait = Math.min(patience, maxWait);
  const request = new AbortController();
  const late = new DOMException(`no answer within ${wait / 1000} seconds`, 'TimeoutError');
  const abort = () => request.abort();
  outer?.addEventListener('abort', abort);
  try {
    return await abortable(within(ask(request.signal), wait, () => late), outer);
  } catch (error) {
    abort();
    throw error;
  } finally {
    outer?.removeEventListener('abort', abort);
  }
}

/** Waits for a promise. Rejects with `late()` after `milliseconds`; the awaited work continues. */
export async function within<T>(promise: Promise<T>, milliseconds: number, late: () => Error): Promise<T> {
  promise.catch(() => {}); // Nobody may await it after the timeout.
  let timer: ReturnType<typeof setTimeout> | undefined;
  const timeout = new Promise<never>((_, reject) => (timer = setTimeout(() => reject(late()), milliseconds)));
  try {
    return await Promise.race([promise, timeout]);
  } finally {
    clearTimeout(timer); // A running timer keeps Node alive.
  }
}

/** Waits for a number of milliseconds. Rejects with the signal's reason on an abort, and clears its timer. */
export async function pause(milliseconds: number, signal?: AbortSignal): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  try {
    await abortable(new Promise<void>((resolve) => (timer = setTimeout(resolve, milliseconds))), signal);
  } finally {
    clearTimeout(timer);
  }
}

/** Whether the page is hidden. A hidden page may never run again. */
export function isHidden(): boolean {
  return typeof document !== 'undefined' && document.visibilityState === 'hidden';
}

/** Waits until the page is visible. Rejects with the signal's reason on an abort. */
async function whenVisible(signal: AbortSignal): Promise<void> {
  if (!isHidden()) return;
  let show = () => {};
  const shown = new Promise<void>((resolve) => {
    show = () => isHidden() || resolve();
    document.addEventListener('visibilitychange', show);
  });
  try {
    await abortable(shown, signal);
  } finally {
    document.removeEventListener('visibilitychange', show);
  }
}

/** Returns a random number in [0, 1). Only for times of sending, not for noise. */
export function randomFraction(): number {
  return crypto.getRandomValues(new Uint32Array(1))[0]! / 2 ** 32;
}

/** The longest timer, in milliseconds: browsers end one of more than 24 days at once. */
export const maxTimer = 3_600_000;

/**
 * Returns how long to wait after this many failed requests in a row, at least one, in milliseconds: 30 seconds, doubled
 * with each further one, at most an hour.
 */
export function waitAfter(failures: number): number {
  return Math.min(30_000 * 2 ** (failures - 1), maxTimer);
}

/**
 * Waits until a time, in Unix milliseconds, and then until the page is visible. Rejects on an abort. It looks at the
 * clock every 30 seconds: a timer stops while the device sleeps, and reports may wait for this.
 */
export async function untilShown(time: number, signal: AbortSignal): Promise<void> {
  while (Date.now() < time || isHidden()) {
    await (isHidden() ? whenVisible(signal) : pause(Math.min(time - Date.now(), 30_000), signal));
  }
}

/**
 * Waits for a number of milliseconds, but only until the page is hidden, because a hidden page may never run again.
 * Resolves to whether the page is still visible. With `ofSite` it continues if the visitor goes on to another page of
 * the site. Rejects with the signal's reason on an abort. Clears its timer, because a running timer keeps a Node
 * process alive.
 */
export async function waitWhileVisible(milliseconds: number, signal?: AbortSignal,
  ofSite = false): Promise<boolean> {
  throwIfAborted(signal);
  if (isHidden()) return false;
  if (milliseconds <= 0) return true; // With fake timers, a timeout of 0 may never fire.
  let stop = () => {};
  const waited = new Promise<boolean>((resolve) => {
    const timer = setTimeout(() => resolve(true), milliseconds);
    // At the event pagehide, the page still counts as visible.
    const stopListening = onHide(() => (ofSite && isGoingOn()) || resolve(false));
    stop = () => {
      clearTimeout(timer);
      stopListening();
    };
  });
  try {
    return await abortable(waited, signal);
  } finally {
    stop();
  }
}

/** The last navigation to another page of the same origin, while somebody watches. */
let goingOn: Event | undefined;

/** How long a navigation may take, in milliseconds. It may have ended in a download. */
export const maxNavigation = 10_000;

/** Whether the visitor is on the way to another page of the same origin. */
function isGoingOn(): boolean {
  return goingOn !== undefined && !goingOn.defaultPrevented && performance.now() - goingOn.timeStamp < maxNavigation;
}

/**
 * Watches for navigations to other pages of the same origin, if the browser tells of them. Calls `onReturn` when the
 * page is back from the back-forward cache. Returns a function that ends this.
 */
export function watchNavigation(onReturn: () => void): () => void {
  if (typeof document === 'undefined') return () => {};
  const { navigation } = globalThis as { navigation?: EventTarget };
  const begin = (event: Event) => {
    const { destination, downloadRequest } = event as Event & { readonly downloadRequest?: unknown;
      readonly destination: { readonly url: string; readonly sameDocument: boolean } };
    const stays = !destination.sameDocument && (downloadRequest ?? null) === null &&
      new URL(destination.url).origin === location.origin;
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
 * Calls `callback` when the page is hidden or left. Returns a function that stops this. On phones, being hidden is
 * often a page's last event.
 */
export function onHide(callback: () => void): () => void {
  if (typeof document === 'undefined') return () => {};
  const hidden = () => isHidden() && callback();
  document.addEventListener('visibilitychange', hidden);
  addEventListener('pagehide', callback);
  return () => {
    document.removeEventListener('visibilitychange', hidden);
    removeEventListener('pagehide', callback);
  };
}

/**
 * The longest waits for the page's `load` event (`maxLoad`) and then for an idle period (`patience`), in milliseconds.
 */
const maxLoad = 5000;
const patience = 2000;

/**
 * Waits until a prerendered page is shown. With `idle` it also waits until the page has loaded, is painted and is idle,
 * but at most 7 seconds: an image that never finishes loading must not exclude a visitor. Without a page it does not
 * wait.
 */
export async function whenIdle(when: 'idle' | 'now'): Promise<void> {
  if (typeof document === 'undefined') return;
  const { prerendering } = document as { prerendering?: boolean }; // Chromium only
  if (prerendering) await new Promise((resolve) => document.addEventListener('prerenderingchange', resolve,
    { once: true }));
  if (when === 'idle') await Promise.race([whenLoaded(), pause(maxLoad + patience)]);
}

async function whenLoaded(): Promise<void> {
  if (document.readyState !== 'complete') {
    const loaded = new Promise((resolve) => addEventListener('load', resolve, { once: true }));
    await Promise.race([loaded, pause(maxLoad)]);
  }
  await whenPainted();
  if (typeof requestIdleCallback === 'undefined') return; // Safari
  const idle = new Promise((resolve) => requestIdleCallback(resolve, { timeout: patience }));
  await Promise.race([idle, pause(patience)]); // A page may have replaced requestIdleCallback.
}

/**
 * Waits until the page is painted: when the second animation frame begins, the first is painted. A hidden page has no
 * animation frames, so it waits at most 200 milliseconds.
 */
function whenPainted(): Promise<unknown> {
  const frames = new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
  return Promise.race([frames, pause(patience / 10)]);
}
