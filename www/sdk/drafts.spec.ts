/**
 * Tests the outcome of a draft in the last epoch of a task. test/drafts.test.mjs tests drafts on pages.
 * @module
 */

import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';

import { type ConnectionParts, Doona, type Receipt } from './doona.js';
import { memoryStore } from './store-memory.js';

const day = 86_400;

/** Lets a draft of a task's last epoch leave, and returns its receipt. */
async function leave(t: TestContext, continues: boolean): Promise<Receipt | undefined> {
  const store = memoryStore();
  const draft = { task: 'a task', epoch: 2, state: 'sealed', body: new Uint8Array(8), tags: new Uint8Array(32),
    leaveAt: 2.5 * day * 1000 } as const;
  await store.put(draft);
  t.mock.method(Date, 'now', () => draft.leaveAt);
  t.mock.method(globalThis, 'fetch', async () => new Response(null, { status: 201 }));
  let left: Promise<Receipt | undefined> | undefined;
  const parts = { id: draft.task, store, spread: 0, continues, onDraft: (outcome: typeof left) => (left = outcome),
    task: { epochs: { start: 0, length: day, count: 3 }, relays: [{ url: 'https://relay.test' }] } };
  const doona = new Doona(parts as unknown as ConnectionParts);
  await doona.flushLater();
  return left;
}

test('after a draft of a stream, the next epoch begins when the task ends', async (t) => {
  assert.equal((await leave(t, true))?.next?.getTime(), 3 * day * 1000);
});

test('after a draft of the last epoch of a single task, none begins', async (t) => {
  assert.equal((await leave(t, false))?.next, null);
});
