/**
 * Tests when the SDK retries a report that was refused because a quota was used up.
 * @module
 */

import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';

import { Doona, type ConnectionParts } from './doona.js';
import type { Report } from './store.js';
import { memoryStore } from './store-memory.js';

const hour = 3_600_000;
const task = 'a task';

/**
 * Returns a connection with one sealed report, whose relay always says that the quota is used up. `asked` counts
 * requests, `at` sets the clock, and `report` reads the store.
 */
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

test('no request is made within an hour of a refusal', async (t) => {
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

test('if the clock is turned back, a report waits an hour from then', async (t) => {
  const { doona, asked, at, report } = await visitor(t, { limited: 1, limitedAt: 20 * hour });
  at(2 * hour);
  assert.deepEqual(await doona.flush(), waits);
  assert.deepEqual([(await report())?.limitedAt, (await report())?.limited, asked()], [2 * hour, 1, 0]);
  at(3 * hour);
  await doona.flush();
  assert.equal(asked(), 1);
});

test('the third refusal drops a report, and so does the first one of a report with a token', async (t) => {
  for (const left of [{ limited: 2, limitedAt: 0 }, { token: new Uint8Array(354) }]) {
    const { doona, at, report } = await visitor(t, left);
    at(hour);
    assert.deepEqual(await doona.flush(), { delivered: 0, dropped: 1, waiting: 0 });
    assert.equal(await report(), undefined);
    assert.equal(doona.dropped, 1);
  }
});
