/**
 * When a report that found a quota used up is tried again.
 * @module
 */

import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';

import { Doona, type ConnectionParts } from './doona.js';
import type { Report } from './store.js';
import { memoryStore } from './store-memory.js';

const hour = 3_600_000;
const task = 'a task';

/** A connection with one sealed report, the requests that it makes, and the clock. */
async function visitor(t: TestContext, left: Partial<Report>): Promise<{ doona: Doona; asked: () => number;
  at: (time: number) => void; report: () => Promise<Report | undefined> }> {
  const store = memoryStore();
  await store.put({ task, epoch: 0, state: 'sealed', body: new Uint8Array(8), ...left });
  const answer = t.mock.method(globalThis, 'fetch', async () => new Response('{"type":"urn:doona:error:limit"}',
    { status: 429, headers: { 'Content-Type': 'application/problem+json' } }));
  const epochs = { start: 0, length: 86_400, count: 1 };
  const parts = { id: task, task: { epochs, relays: [{ url: 'https://relay.test' }] }, store };
  return { doona: new Doona(parts as unknown as ConnectionParts), asked: () => answer.mock.callCount(),
    at: (time) => void t.mock.method(Date, 'now', () => time),
    report: async () => (await store.sealed(task))[0] };
}

const waits = { delivered: 0, dropped: 0, waiting: 1 };

test('nobody is asked within an hour of a refusal', async (t) => {
  const { doona, asked, at } = await visitor(t, { limited: 1, limitedAt: 2 * hour });
  for (const time of [2 * hour, 3 * hour - 1]) {
    at(time);
    assert.deepEqual(await doona.flush(), waits);
    assert.equal(asked(), 0);
  }
  at(3 * hour);
  assert.deepEqual(await doona.flush(), waits);
  assert.equal(asked(), 1);
});

test('a clock that was set back holds a report for an hour from then', async (t) => {
  const { doona, asked, at, report } = await visitor(t, { limited: 1, limitedAt: 20 * hour });
  at(2 * hour);
  assert.deepEqual(await doona.flush(), waits);
  assert.deepEqual([(await report())?.limitedAt, (await report())?.limited, asked()], [2 * hour, 1, 0]);
  at(3 * hour);
  await doona.flush();
  assert.equal(asked(), 1);
});

test('the third refusal is the last, and so is that of a token', async (t) => {
  for (const left of [{ limited: 2, limitedAt: 0 }, { token: new Uint8Array(354) }]) {
    const { doona, at, report } = await visitor(t, left);
    at(hour);
    assert.deepEqual(await doona.flush(), { delivered: 0, dropped: 1, waiting: 0 });
    assert.equal(await report(), undefined);
    assert.equal(doona.dropped, 1);
  }
});
