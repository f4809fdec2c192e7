/**
 * The page's script for a task of an edge worker whose source is "page" (docs/edge.md). It posts one value per browser
 * and epoch. It records the epoch in IndexedDB before it posts. The worker's clock decides the epoch: the page asks for
 * it and sends it with the value, and the worker accepts the value only in that epoch.
 * @module
 */

import { resultOf, whenCommitted } from '../sdk/store-indexeddb.js';

/**
 * The object store. It maps each reported epoch to true, and each task's address to the end of its last reported epoch,
 * in Unix milliseconds.
 */
const store = 'epochs';

/**
 * Posts a value to a task of the edge worker, unless this browser has already reported in this epoch. A prerendered
 * page waits until it is shown.
 * @param task The path of the task: "/doona/rating".
 * @returns Whether the value was sent.
 * @throws Error if IndexedDB fails, if a page of another origin frames this page, or if the worker refuses. The value
 *   is not stored, so nothing retries a failed post.
 */
export async function report(task: string, value: number | readonly number[]): Promise<boolean> {
  if (isFramed()) throw new Error('doona: in a frame of another site nothing is reported');
  const { prerendering } = document as { prerendering?: boolean }; // Chromium only
  if (prerendering) await new Promise((resolve) => document.addEventListener('prerenderingchange', resolve));
  const { href } = new URL(task, location.href);
  const db = await openDatabase();
  try {
    const last: number | undefined = await resultOf(db.transaction(store).objectStore(store).get(href));
    if (last && Date.now() < last) return false;
    const opened: { epoch: string; end: number } = await (await post(href + '/epoch', {})).json();
    if (!await recordEpoch(db, href, opened.epoch, opened.end * 1000)) return false;
    await post(href, { 'Doona-Epoch': opened.epoch }, JSON.stringify({ value }));
    return true;
  } finally {
    db.close();
  }
}

/**
 * Whether a page of another origin frames this page. A framed page has a separate storage, so the same browser would
 * report twice.
 */
function isFramed(): boolean {
  try {
    for (let frame: Window = window; frame !== frame.parent; frame = frame.parent) {
      if (frame.parent.origin !== origin) return true;
    }
    return false;
  } catch {
    return true;
  }
}

function openDatabase(): Promise<IDBDatabase> {
  const opening = indexedDB.open('doona-edge', 1);
  opening.onupgradeneeded = () => opening.result.createObjectStore(store);
  return resultOf(opening);
}

/** Records durably that this browser reports in an epoch. Returns false if it had already reported. */
async function recordEpoch(db: IDBDatabase, task: string, epoch: string, end: number): Promise<boolean> {
  const tx = db.transaction(store, 'readwrite', { durability: 'strict' });
  const committed = whenCommitted(tx);
  const epochs = tx.objectStore(store);
  const known = await resultOf(epochs.get(epoch));
  epochs.put(true, epoch);
  epochs.put(end, task);
  await committed;
  return !known;
}

async function post(url: string, headers: Record<string, string>, body = ''): Promise<Response> {
  const response = await fetch(url, { method: 'POST', headers: { ...headers, 'Content-Type': 'application/json' }, body,
    credentials: 'omit', keepalive: body.length < 60_000 });
  if (!response.ok) throw new Error(`doona: ${url} answered ${response.status}: ${await response.text()}`);
  return response;
}
