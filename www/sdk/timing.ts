/**
 * Waits for answers, times, idle pages and the end of a visit.
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

/** Throws the signal's reason if it is aborted. Browsers before 2022 have no method for this, and no reason. */
export function throwIfAborted(signal?: AbortSignal): void {
  if (signal?.aborted) throw reasonOf(signal);
}

function reasonOf(signal: AbortSignal): unknown {
  return signal.reason ?? new DOMException('the call was aborted', 'AbortError');
}

/** The longest wait for another party's answer and its body, in milliseconds. */
const maxWait = 30_000;

/**
 * Runs a request. Rejects with a TimeoutError if the answer takes longer than `patience` milliseconds, or with the
 * reason of `outer` if that is aborted.
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
  promise.catch(() => {}); // Nobody may await it after that.
  let timer: ReturnType<typeof setTimeout> | undefined;
  const timeout = new Promise<never>((_, reject) => (timer = setTimeout(() => reject(late()), milliseconds)));
  try {
    return await Promise.race([promise, timeout]);
  } finally {
    clearTimeout(timer); // Else it would keep a Node process alive.
  }
}

/** Waits for a number of milliseconds. */
export function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

/**
 * Waits for a number of milliseconds, or until the page is hidden: a hidden page may never run again. Rejects with the
 * signal's reason on an abort. Clears its timer, which would otherwise keep a Node process alive.
 */
export async function waitWhileVisible(milliseconds: number, signal?: AbortSignal): Promise<void> {
  throwIfAborted(signal);
  if (milliseconds <= 0) return; // Tests with fake timers never reach a timeout of 0.
  if (typeof document !== 'undefined' && document.visibilityState === 'hidden') return;
  let stop = () => {};
  const waited = new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
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

/** Calls back when the page is hidden or left. On phones, being hidden is often a page's last event. */
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

/** The longest waits for the page's `load` event and, after it, for an idle period, in milliseconds. */
const maxLoad = 5000;
const patience = 2000;

/**
 * Waits until a visitor sees the page, which is later than prerendering. Without `now` it also waits until the page has
 * loaded, is painted and is idle, or for 7 seconds: one image that never ends must not decide who is counted. Without a
 * page it does not wait.
 */
export async function whenIdle(when: 'idle' | 'now'): Promise<void> {
  if (typeof document === 'undefined') return;
  const { prerendering } = document as { prerendering?: boolean }; // Chromium only
  if (prerendering) await new Promise((resolve) => document.addEventListener('prerenderingchange', resolve,
    { once: true }));
  if (when === 'now') return;
  if (document.readyState !== 'complete') {
    const loaded = new Promise((resolve) => addEventListener('load', resolve, { once: true }));
    await Promise.race([loaded, pause(maxLoad)]);
  }
  await whenPainted();
  if (typeof requestIdleCallback === 'undefined') return; // Safari
  const idle = new Promise((resolve) => requestIdleCallback(resolve, { timeout: patience }));
  await Promise.race([idle, pause(patience)]); // A page may have replaced it.
}

/**
 * Waits until the loaded page is painted: the second animation frame begins after the first is painted. A hidden page
 * has no frames, so the wait ends after a fifth of a second.
 */
function whenPainted(): Promise<unknown> {
  const frames = new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
  return Promise.race([frames, pause(patience / 10)]);
}
