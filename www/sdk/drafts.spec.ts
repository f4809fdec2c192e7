/**
 * Tests the outcome of a draft in the last epoch of a task, and drafts of tasks with events. test/drafts.test.mjs tests
 * drafts on pages.
 * @module
 */

import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';

import { type ConnectionParts, Doona, type Receipt } from './doona.js';
import { ledgerOf } from './ledger.js';
import type { Report, Store } from './store.js';
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

/** A count task with events, at most one in two epochs of a day. A sealed report is one byte, its value. */
const events = { start: 0, length: day, count: 9, events: { most: 1, window: 2, usual: 0 } };

/** Connects a tab to that task. `sealing` is called before each value is sealed. */
function connectTab(t: TestContext, store: Store, sealing: (value: number) => unknown = () => {},
  onDraft: ConnectionParts['onDraft'] = undefined): Doona {
  const price = { first: { epsilon: 1, delta: 1e-7 }, reports: 9, all: { epsilon: 5, delta: 1e-6 }, events: true };
  const draft = async (_: number, input: Float64Array, tags = crypto.getRandomValues(new Uint8Array(32))) => {
    await sealing(input[0]!);
    return { body: Uint8Array.from(input), tags };
  };
  const parts = { id: 'a task', store, ledger: ledgerOf(store), spread: 0, sample: 1, check: async () => {}, draft,
    limit: { epsilon: 10, delta: .5, days: 9, option: 'budget' }, line: { id: 'a task', price, length: day },
    hold: <T>(work: () => Promise<T>) => work(), stop: () => {}, guarantee: { localEpsilon: null }, onDraft,
    task: { epochs: events, query: 'count', input: { bins: 0, lo: '0', hi: '1' }, noise: { kind: 'cells' },
      relays: [{ url: 'https://relay.test' }] } };
  const doona = new Doona(parts as unknown as ConnectionParts);
  t.after(() => doona.close());
  return doona;
}

/** Sets the clock to the middle of an epoch. */
const setEpoch = (t: TestContext, epoch: number) => t.mock.timers.setTime((epoch + .5) * day * 1000);

const bodies = async (store: Store) => (await store.sealed('a task')).map(({ epoch, body }) => [epoch, ...body!]);

test('a connection seals the default, an event replaces it under the same tags, and beyond the allowance it stays',
  async (t) => {
    t.mock.timers.enable({ apis: ['Date'] });
    setEpoch(t, 0);
    const store = memoryStore();
    const doona = connectTab(t, store);
    await doona.draftUsual();
    const [first] = await store.sealed('a task');
    assert.deepEqual(await bodies(store), [[0, 0]]);
    assert.equal((await doona.report(1)).draft, true);
    const [second] = await store.sealed('a task');
    assert.deepEqual([second!.tags, second!.leaveAt, await bodies(store)], [first!.tags, first!.leaveAt, [[0, 1]]]);
    assert.deepEqual((await store.lines())[0]!.events, [0]);
    setEpoch(t, 1);
    await doona.report(1);
    assert.deepEqual(await bodies(store), [[0, 1], [1, 0]], 'no default was sealed before, and no event has room');
    setEpoch(t, 2);
    await Promise.all([doona.report(1, { final: false }), connectTab(t, store).draftUsual()]);
    assert.deepEqual(await bodies(store), [[0, 1], [1, 0], [2, 1]]);
    const [{ runs, events }] = await store.lines() as [Awaited<ReturnType<Store['lines']>>[number]];
    assert.deepEqual([runs, events], [[{ start: 0, count: 3 }], [2 * day]]);
  });

test('an invalid value in an epoch without a draft leaves the default, and an event of the epoch stays', async (t) => {
  t.mock.timers.enable({ apis: ['Date'] });
  const store = memoryStore();
  const doona = connectTab(t, store);
  for (const value of [2, NaN, [1, 1], 'x', undefined]) {
    setEpoch(t, 0);
    await assert.rejects(doona.report(value as number), { code: 'invalid-value' });
    assert.deepEqual(await bodies(store), [[0, 0]], String(value));
  }
  await doona.report(1);
  await assert.rejects(doona.report(2), { code: 'invalid-value' });
  assert.deepEqual(await bodies(store), [[0, 1]]);
  setEpoch(t, 1);
  await Promise.all([assert.rejects(doona.report(-1), { code: 'invalid-value' }), doona.report(1)]);
  assert.deepEqual(await bodies(store), [[0, 1], [1, 0]]);
});

test('events of two tabs at once leave one draft and one record', async (t) => {
  t.mock.timers.enable({ apis: ['Date'] });
  setEpoch(t, 0);
  const store = memoryStore();
  const tabs = [connectTab(t, store), connectTab(t, store), connectTab(t, store)];
  await Promise.all(tabs.flatMap((tab) => [tab.draftUsual(), tab.report(1)]));
  assert.deepEqual(await bodies(store), [[0, 1]]);
  assert.deepEqual((await store.lines())[0]!.events, [0]);
});

test('a page that dies while it records or seals an event leaves the default; the next page sends the event',
  async (t) => {
    t.mock.timers.enable({ apis: ['Date'] });
    setEpoch(t, 0);
    const never = new Promise<never>(() => {});
    for (const dies of ['in the record', 'before sealing']) {
      const store = memoryStore();
      let died = () => {};
      const dead = new Promise<void>((resolve) => (died = resolve));
      const die = () => (died(), never);
      const page = connectTab(t, dies === 'in the record' ? { ...store, release: die } : store,
        (value) => (value === 1 && dies === 'before sealing' ? die() : undefined));
      page.report(1).catch(() => {}); // closed
      await dead;
      page.close();
      assert.deepEqual(await bodies(store), [[0, 0]], dies);
      assert.deepEqual((await store.lines())[0]!.events, [0], dies);
      await connectTab(t, store).report(1);
      assert.deepEqual(await bodies(store), [[0, 1]], dies);
      const mark = await store.update('event of a task', 0, () => undefined);
      assert.equal(mark, undefined, 'the mark is deleted');
    }
  });

test('a default whose epoch already has its report tells the receipt', async (t) => {
  t.mock.timers.enable({ apis: ['Date'] });
  setEpoch(t, 5);
  const [store, told]: [Store, (Receipt | undefined)[]] = [memoryStore(), []];
  await connectTab(t, store).draftUsual();
  const connectAgain = async () => {
    await connectTab(t, store, undefined, (left) => void left.then((receipt) => told.push(receipt))).draftUsual();
    await new Promise(setImmediate);
  };
  await connectAgain();
  assert.equal(told.length, 0, 'a draft that waits');
  await store.update('a task', 5, ({ task, epoch }) => ({ task, epoch, state: 'delivered' }));
  await connectAgain();
  assert.deepEqual(told.map((receipt) => [receipt?.epoch, receipt?.repeated, receipt?.next?.getTime()]),
    [[5, true, 6 * day * 1000]]);
});

test('forget() while an event is sealed drops the epoch', async (t) => {
  t.mock.timers.enable({ apis: ['Date'] });
  setEpoch(t, 0);
  const store = memoryStore();
  let forgotten: Promise<unknown> | undefined;
  const doona = connectTab(t, store, (value) => value === 1 && (forgotten = doona.forget()));
  await assert.rejects(doona.report(1), { code: 'withdrawn' });
  await forgotten;
  await doona.draftUsual();
  assert.deepEqual(await bodies(store), []);
  assert.equal((await doona.report(1)).repeated, true);
});

test('a page that stays open seals the default of each epoch in which it is visible, until it is closed', async (t) => {
  t.mock.timers.enable({ apis: ['Date', 'setTimeout'] });
  setEpoch(t, 0);
  const page = Object.assign(new EventTarget(), { visibilityState: 'visible' });
  const show = (state: string) => {
    page.visibilityState = state;
    page.dispatchEvent(new Event('visibilitychange'));
  };
  const stubs: Record<string, unknown> = { document: page, addEventListener() {}, removeEventListener() {} };
  for (const [name, value] of Object.entries(stubs)) {
    Object.defineProperty(globalThis, name, { value, configurable: true });
    t.after(() => Reflect.deleteProperty(globalThis, name));
  }
  t.mock.method(globalThis, 'fetch', async () => new Response(null, { status: 201 }));
  const [store, made]: [Store, number[]] = [memoryStore(), []];
  const claim: Store['claim'] = (...args) => (made.push(args[1]), store.claim(...args));
  const doona = connectTab(t, { ...store, claim });
  void doona.draftUsual();
  const nextDay = async () => {
    for (let hour = 0; hour < 24; hour++) {
      await new Promise(setImmediate);
      t.mock.timers.tick(day * 1000 / 24);
    }
  };
  for (let i = 0; i < 3; i++) await nextDay();
  assert.deepEqual(made, [0, 1, 2, 3]);
  await doona.forget(); // The next epoch has its own default.
  await nextDay();
  assert.deepEqual(made, [0, 1, 2, 3, 4]);
  show('hidden');
  await nextDay();
  await nextDay();
  assert.deepEqual(made, [0, 1, 2, 3, 4]);
  show('visible');
  await nextDay();
  assert.deepEqual(made, [0, 1, 2, 3, 4, 6, 7]);
  doona.close();
  await nextDay();
  assert.deepEqual(made, [0, 1, 2, 3, 4, 6, 7]);
});

test('a store that does not show its drafts ends a report', async (t) => {
  t.mock.timers.enable({ apis: ['Date'] });
  setEpoch(t, 0);
  const doona = connectTab(t, { ...memoryStore(), sealed: async (): Promise<Report[]> => [] });
  await assert.rejects(doona.report(1), { code: 'storage-unavailable', field: 'store' });
});
