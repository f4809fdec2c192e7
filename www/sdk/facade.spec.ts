/**
 * Tests init without a browser: consent, opting out and forgetting. test/facade.test.mjs tests it on pages with several
 * tabs.
 * @module
 */

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { type TestContext, test } from 'node:test';

import { hasOptedOut, setOptOut } from './consent.js';
import type { Receipt } from './doona.js';
import { type DoonaClient, type InitOptions, init } from './facade.js';
import type { Store } from './store.js';
import { memoryStore } from './store-memory.js';
import { type FakeRelay, fakeRelay } from './testing.js';

const built = '../build/www/';
const module = await WebAssembly.compile(
  new Uint8Array(readFileSync(built + readdirSync(built).find((file) => /^doona-[0-9a-f]+\.wasm$/.test(file))!)));

const pause = (milliseconds: number) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** A spread so long that a report stays sealed. */
const hour = 3_600_000;

/** A visitor with a store that all tabs share, and a fake relay. */
interface Visitor {
  readonly relay: FakeRelay;
  readonly store: Store;
  /** The task's id. */
  readonly id: string;
  readonly receipts: readonly Receipt[];
  /** How many requests were made. */
  readonly asked: () => number;
  /** Opens a tab. */
  readonly tab: (options?: Partial<InitOptions>) => DoonaClient;
  /** Opens a tab that seals a value and does not send it. */
  readonly seal: (value: number) => Promise<DoonaClient>;
}

async function visitor(t: TestContext, store = memoryStore()): Promise<Visitor> {
  const relay = await fakeRelay();
  const receipts: Receipt[] = [];
  const { fetch } = globalThis;
  const asked = t.mock.fn(fetch);
  globalThis.fetch = asked;
  const tabs: DoonaClient[] = [];
  t.after(() => {
    for (const tab of tabs) tab.close();
    globalThis.fetch = fetch;
    relay.close();
  });
  const id = relay.options.task.slice(-64);
  const tab = (options: Partial<InitOptions> = {}) => {
    const client = init({ ...relay.options, compiled: { browser: module }, store,
      onReceipt: (one: Receipt) => receipts.push(one), ...options } as InitOptions);
    tabs.push(client);
    return client;
  };
  const seal = async (value: number) => {
    const client = tab({ spread: hour });
    client.report(value);
    await until(async () => (await store.sealed(id)).length === 1);
    return client;
  };
  return { relay, store, id, receipts, asked: () => asked.mock.callCount(), tab, seal };
}

/** Waits until something holds. Fails after a minute. */
async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  for (const deadline = Date.now() + 60_000; !(await holds()); await pause(5)) assert.ok(Date.now() < deadline);
}

const reaches = (client: DoonaClient, state: string) => until(() => client.status.state === state);

test('before consent nothing is asked and nothing is stored; optIn sends what waits', async (t) => {
  const store = memoryStore();
  const put = t.mock.method(store, 'put');
  const { relay, tab, asked } = await visitor(t, store);
  const client = tab({ consent: 'pending' });
  client.report(7);
  await pause(200);
  assert.deepEqual([client.status.state, asked(), put.mock.callCount()], ['waiting-for-consent', 0, 0]);
  await client.optIn();
  await reaches(client, 'reported');
  assert.deepEqual(relay.values, [7]);
});

test('the Global Privacy Control signal stops init until optIn', async (t) => {
  Object.defineProperty(navigator, 'globalPrivacyControl', { value: true, configurable: true });
  t.after(() => Reflect.deleteProperty(navigator, 'globalPrivacyControl'));
  const { relay, tab, asked } = await visitor(t);
  const client = tab();
  client.report(7);
  await pause(100);
  assert.deepEqual([client.status.state, asked()], ['gpc', 0]);
  await client.optIn();
  client.report(8);
  await reaches(client, 'reported');
  assert.deepEqual(relay.values, [8]);
});

test('an opt-out drops the sealed report, lasts for other tabs, and ends with optIn', async (t) => {
  const { relay, store, id, tab, seal } = await visitor(t);
  const client = await seal(7);
  await client.optOut();
  assert.deepEqual([await store.sealed(id), client.status.state], [[], 'opted-out']);
  client.report(8);
  const other = tab();
  await reaches(other, 'opted-out');
  await other.optIn();
  assert.equal(await hasOptedOut(store), false);
  other.report(9);
  await reaches(other, 'reported');
  assert.deepEqual(relay.values, [], 'the epoch was charged before the opt-out');
});

test('a value that is reported after an opt-out does not wait for optIn', async (t) => {
  const { relay, tab } = await visitor(t);
  const client = tab({ consent: 'pending' });
  await client.optOut();
  client.report(7);
  await client.optIn();
  await reaches(client, 'ready');
  await pause(100);
  assert.deepEqual(relay.values, []);
});

test('optIn drops what waited and what was sealed under an opt-out', async (t) => {
  const { relay, store, id, tab, seal } = await visitor(t);
  (await seal(7)).close();
  await setOptOut(store, true); // by another tab, which did not see the sealed report
  const client = tab({ consent: 'pending' });
  client.report(8);
  await client.optIn();
  assert.deepEqual(await store.sealed(id), []);
  await reaches(client, 'reported'); // The dropped report was this epoch's.
  await pause(100);
  assert.deepEqual(relay.values, []);
});

test('an opt-out in another tab stops a report that is sealed and not sent', async (t) => {
  const shared = memoryStore();
  const { relay, id, tab } = await visitor(t, { ...shared, update: async (task, epoch, change) => {
    const report = await shared.update(task, epoch, change);
    if (task === id && report?.state === 'sealed') await setOptOut(shared, true);
    return report;
  } });
  const client = tab();
  client.report(7);
  await reaches(client, 'opted-out');
  await until(async () => (await shared.sealed(id)).length === 0);
  assert.deepEqual(relay.values, []);
});

test('forget drops what waits', async (t) => {
  const { relay, tab } = await visitor(t);
  const client = tab({ consent: 'pending' });
  client.report(7);
  const { reports, text } = await client.forget();
  assert.deepEqual([reports, /1 value that waited/.test(text), /The ledger stays/.test(text)], [0, true, true]);
  await client.optIn();
  await reaches(client, 'ready');
  await pause(100);
  assert.deepEqual(relay.values, []);
});

test('forget drops the sealed reports of its own task alone', async (t) => {
  const first = await visitor(t);
  const second = await visitor(t, first.store);
  for (const one of [first, second]) (await one.seal(7)).close();
  const client = first.tab({ consent: 'pending' });
  assert.equal((await client.forget()).reports, 1);
  assert.deepEqual([(await first.store.sealed(first.id)).length, (await first.store.sealed(second.id)).length], [0, 1]);
});

test('at most 16 values wait, and one report leaves', async (t) => {
  const { relay, receipts, tab } = await visitor(t);
  const client = tab({ consent: 'pending' });
  for (let i = 0; i < 20; i++) client.report(7);
  await client.optIn();
  await until(() => receipts.length >= 16);
  await pause(100);
  assert.deepEqual([receipts.length, receipts.filter(({ repeated }) => repeated).length, relay.values], [16, 15, [7]]);
});
