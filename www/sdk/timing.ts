/**
 * Waiting: for an answer, for a moment, for an idle page, for the end of a visit.
 * @module
 */

/** Rejects with the signal's reason when it is aborted; what it waited for goes on. */
export async function abortable<T>(promise: Promise<T>, signal?: AbortSignal): Promise<T> {
  if (!signal) return promise;
  promise.catch(() => {}); // nobody may be left to hear of it
  signal.throwIfAborted();
  let abort = () => {};
  const aborted = new Promise<never>((_, reject) => {
    abort = () => reject(signal.reason);
    signal.addEventListener('abort', abort);
  });
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener('abort', abort);
  }
}

/** The longest to wait for another party's answer, its body included, in milliseconds. */
const maxWait = 30_000;

/** Asks another party something; rejects with a TimeoutError where the answer takes longer, in milliseconds. */
export function withTimeout<T>(ask: (signal: AbortSignal) => Promise<T>, patience = maxWait): Promise<T> {
  const signal = AbortSignal.timeout(Math.min(patience, maxWait));
  return abortable(ask(signal), signal);
}

/** Waits so long. */
export function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

/**
 * Waits so long, but no longer than the page is seen: once hidden it may never run again. Rejects
 * with the signal's reason when it is aborted. Leaves no timer behind, which would keep a Node
 * process alive.
 */
export async function waitWhileVisible(milliseconds: number, signal?: AbortSignal): Promise<void> {
  signal?.throwIfAborted();
  if (typeof document !== 'undefined' && document.visibilityState === 'hidden') return;
  let stop = () => {};
  const waited = new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, Math.max(milliseconds, 0)); // Deno warns of a time that has passed
    const stopListening = onHide(resolve);
    stop = () => {
      clearTimeout(timer);
      stopListening();
    };
  });
  try {
    await abortable(waited, signal);
  } finally {
    stop();
  }
}

/** Calls back when the page is hidden, which on phones is the last it hears, or left. */
function onHide(callback: () => void): () => void {
  if (typeof document === 'undefined') return () => {};
  const hidden = () => document.visibilityState === 'hidden' && callback();
  document.addEventListener('visibilitychange', hidden);
  addEventListener('pagehide', callback);
  return () => {
    document.removeEventListener('visibilitychange', hidden);
    removeEventListener('pagehide', callback);
  };
}

/** How long an idle moment may take to come, in milliseconds. */
const patience = 2000;

/**
 * Waits until a page has a visitor, which one that the browser prerenders has not; and, but for
 * `now`, until it has loaded, been painted and is idle. Waits for nothing where there is no page.
 */
export async function whenIdle(when: 'idle' | 'now'): Promise<void> {
  if (typeof document === 'undefined') return;
  const { prerendering } = document as { prerendering?: boolean }; // Chromium's alone
  if (prerendering) await new Promise((resolve) => document.addEventListener('prerenderingchange', resolve,
    { once: true }));
  if (when === 'now') return;
  if (document.readyState !== 'complete') await new Promise((resolve) => addEventListener('load', resolve,
    { once: true }));
  await whenPainted();
  if (typeof requestIdleCallback === 'undefined') return; // Safari
  await new Promise((resolve) => requestIdleCallback(resolve, { timeout: patience }));
}

/**
 * Waits until what has loaded is on the screen: the second frame begins when the first is done. A hidden page has
 * none.
 */
function whenPainted(): Promise<unknown> {
  const frames = new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
  return Promise.race([frames, pause(patience / 10)]);
}
