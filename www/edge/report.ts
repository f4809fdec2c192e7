/**
 * The page's side of an edge worker's task of source "page" (docs/edge.md): one post per browser and epoch, noted in
 * IndexedDB before it leaves. The epoch is the worker's word, by its clock; the post names it, and the worker takes it
 * in that epoch only.
 * @module
 */

import { resultOf, whenCommitted } from '../sdk/store-indexeddb.js';

/** By epoch: that it is reported. By address of a task: when the epoch that was reported last ends. */
const store = 'epochs';

/**
 * Posts a value to a task of the edge worker, unless this browser has reported in this epoch. A page that the browser
 * prerenders waits for its visitor.
 * @param task The path of the task: "/doona/rating".
 * @returns Whether the value was sent.
 * @throws Error Where nothing can be remembered, in a frame of another site, and where the worker refuses. Nothing of a
 *   failed post is sent later: the value is not kept.
 */
export async function report(task: string, value: number | readonly number[]): Promise<boolean> {
  if (isFramed()) throw new Error('doona: in a frame of another site nothing is reported');
  const { prerendering } = document as { prerendering?: boolean }; // Chromium's alone
  if (prerendering) await new Promise((resolve) => document.addEventListener('prerenderingchange', resolve));
  const { href } = new URL(task, location.href);
  const db = await openDatabase();
  try {
    const last: number | undefined = await resultOf(db.transaction(store).objectStore(store).get(href));
    if (last && Date.now() < last) return false;
    const told: { epoch: string; end: number } = await (await post(href + '/epoch', {})).json();
    if (!await recordEpoch(db, href, told.epoch, told.end * 1000)) return false;
    await post(href, { 'Doona-Epoch': told.epoch }, JSON.stringify({ value }));
    return true;
  } finally {
    db.close();
  }
}

/** Whether a page of another site shows this one: it has storage of its own there, and would report again. */
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

/** Notes durably that an epoch is reported. Resolves to whether it was not yet. */
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
