/**
 * Tests when a page asks for a stream's next task, or for the keys of a task's next block of epochs: the time must not
 * tell of a value or a report.
 * @module
 */

import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';

import type { ConnectionParts } from './doona.js';
import { DoonaError } from './errors.js';
import { ledgerOf } from './ledger.js';
import { memoryStore } from './store-memory.js';
import { StreamDoona } from './stream-doona.js';

const [hour, day] = [3600, 86_400];
const spread = 60_000;

/**
 * Two tasks of three days each, with at most one event in two days. With `blocks`: a task of 20 days without events,
 * which no other follows; its blocks begin on days 0, 8 and 16. A sealed report is one byte, its value.
 */
function tasks(blocks: boolean): ConnectionParts[] {
  const count = blocks ? 20 : 3;
  const store = memoryStore();
  const price = { first: { epsilon: 1, delta: 1e-7 }, reports: 3, all: { epsilon: 5, delta: 1e-6 }, events: true };
  const draft = async (_: number, input: Float64Array, tags = crypto.getRandomValues(new Uint8Array(32))) =>
    ({ body: Uint8Array.from(input), tags });
  return [0, count].map((first) => ({ id: `task ${first}`, store, ledger: ledgerOf(store), spread, sample: 1, draft,
    limit: { epsilon: 99, delta: .5, days: 9, option: 'budget' }, keys: async () => {}, check: async () => {},
    continues: !blocks,
    line: { id: 'a stream', price, length: day }, hold: <T>(work: () => Promise<T>) => work(), stop: () => {},
    guarantee: { localEpsilon: null }, task: { query: 'count', input: { bins: 0, lo: '0', hi: '1' },
      noise: { kind: 'cells' }, relays: [{ url: 'https://relay.test' }],
      epochs: { start: first * day, length: day, count,
        ...(!blocks && { events: { most: 1, window: 2, usual: 0 } }) } },
  }) as unknown as ConnectionParts);
}

/** A page that is open with a connection to the stream, and what it does. */
interface Page {
  readonly doona: StreamDoona;
  /** The times at which it followed the stream, in seconds. */
  readonly followed: readonly number[];
  /** Lets time pass until then, in seconds. */
  readonly to: (seconds: number) => Promise<void>;
  /** Hides or shows the page. */
  readonly show: (isVisible: boolean) => Promise<void>;
}

/** Runs all promises that wait for no time. */
async function runPromises(): Promise<void> {
  for (let i = 0; i < 20; i++) await new Promise(setImmediate);
}

/**
 * Opens a page at noon of the first day. All random moments are at a quarter. `fails` throws instead of following.
 */
async function openPage(t: TestContext, fails: () => void = () => {}, blocks = false): Promise<Page> {
  t.mock.timers.enable({ apis: ['Date', 'setTimeout'], now: day * 500 });
  t.mock.method(crypto, 'getRandomValues', <T extends ArrayBufferView>(into: T) => {
    if (into instanceof Uint32Array) into.fill(2 ** 30);
    return into;
  });
  const listeners = new Set<() => void>();
  const page = { visibilityState: 'visible', addEventListener: (_: string, call: () => void) => listeners.add(call),
    removeEventListener: (_: string, call: () => void) => listeners.delete(call) };
  const none = () => {};
  Object.assign(globalThis, { document: page, addEventListener: none, removeEventListener: none });
  t.after(() => Reflect.deleteProperty(globalThis, 'document'));
  const [first, second] = tasks(blocks) as [ConnectionParts, ConnectionParts];
  const followed: number[] = [];
  const follow = async () => {
    followed.push(Date.now() / 1000);
    fails();
    return blocks || Date.now() < 3 * day * 1000 ? first : second;
  };
  const doona = new StreamDoona(first, follow, async () => []);
  t.after(() => doona.close());
  const to = async (seconds: number) => {
    for (let now = Date.now() / 1000; now < seconds;) {
      const step = now % day < hour ? 15 : hour; // Promises see the time at which a step ends.
      const next = Math.min(seconds, step * Math.floor(now / step + 1));
      t.mock.timers.tick(1000 * (next - now));
      now = next;
      await runPromises();
    }
  };
  const show = async (isVisible: boolean) => {
    page.visibilityState = isVisible ? 'visible' : 'hidden';
    for (const call of listeners) call();
    await runPromises();
  };
  void doona.draftUsual();
  await to(day / 2);
  return { doona, followed, to, show };
}

const moment = spread / 4000;

for (const reports of [false, true]) {
  test(`with events, a page ${reports ? 'with reports' : 'without reports'} follows the stream at random moments`,
    async (t) => {
      const { doona, followed, to } = await openPage(t);
      const epochs: number[] = [];
      const last = () => doona.report(1).then(({ epoch }) => epochs.push(epoch));
      for (let at = 0; at < 5; at++) {
        for (const time of [at * day + 1, at * day + moment + 10]) { // Before and after the moment of the epoch.
          await to(time);
          if (reports) void last();
          await runPromises();
          if (reports && time === 3 * day + 1) assert.equal(epochs.length, 6, 'the task is over: its next report waits');
        }
      }
      assert.deepEqual(followed, [1, 2, 3, 4].map((at) => at * day + moment));
      if (reports) assert.deepEqual(epochs, [0, 0, 1, 1, 2, 2, 0, 0, 1, 1]);
    });

  test(`a page ${reports ? 'with reports' : 'without reports'} tries again at times of its own`, async (t) => {
    let fails = 3;
    const { doona, followed, to } = await openPage(t, () => {
      if (fails-- > 0) throw new DoonaError('task-unreachable', 'the relay is down');
    });
    const codes = new Set<string>();
    for (let at = day + 1; at < day + 300; at += 20) {
      await to(at);
      if (reports) void doona.report(1).then(() => codes.add(''), (error) => codes.add(error.code));
    }
    await runPromises();
    assert.deepEqual(followed, [0, 30, 90, 210].map((after) => day + moment + after));
    assert.deepEqual([...codes], reports ? [''] : [], 'the task goes on');
  });
}

test('after a stop reports fail, and a hidden page follows the stream once it is shown', async (t) => {
  const { doona, followed, to, show } = await openPage(t, () => {
    throw new DoonaError('stream-stopped', 'the stream was stopped');
  });
  await show(false);
  await to(day + hour);
  await doona.report(1);
  assert.deepEqual(followed, []);
  await show(true);
  assert.deepEqual(followed, [day + hour]);
  await assert.rejects(doona.report(1), { code: 'stream-stopped' });
});

test('a report waits for the keys of a new block, which the page asks for at a moment of its own', async (t) => {
  for (const time of [8 * day + 1, 8 * day + moment - 1]) {
    await t.test(`a report ${time - 8 * day} seconds after the block begins`, async (t) => {
      const { doona, followed, to } = await openPage(t, () => {}, true);
      const epochs: number[] = [];
      const report = () => doona.report(1, { final: false }).then(({ epoch }) => epochs.push(epoch));
      await to(7 * day + hour);
      await report();
      assert.deepEqual(epochs, [7], 'the keys of this epoch are here');
      const before = followed.length;
      await to(time);
      void report();
      await runPromises();
      assert.deepEqual([epochs, followed.length], [[7], before], 'a report makes no request');
      await to(8 * day + moment);
      assert.deepEqual([epochs, followed.at(-1)], [[7, 8], 8 * day + moment]);
      await to(15 * day + 1);
      await report();
      assert.deepEqual(epochs, [7, 8, 15]);
      await to(19 * day + 1);
      await report();
      assert.deepEqual(epochs, [7, 8, 15, 19]);
    });
  }
});

test('reports do not change when a page asks for keys, and it asks for none once it is closed', async (t) => {
  for (const reports of [false, true]) {
    await t.test(reports ? 'with reports' : 'without reports', async (t) => {
      const { doona, followed, to } = await openPage(t, () => {}, true);
      for (let at = 7; at < 18; at++) {
        for (const time of [at * day + 1, at * day + moment + 10]) {
          await to(time);
          if (reports) void doona.report(1, { final: false }).catch(() => {});
          await runPromises();
        }
      }
      assert.deepEqual(followed.filter((at) => at > 7 * day),
        Array.from({ length: 11 }, (_, i) => (7 + i) * day + moment));
      const asked = followed.length;
      doona.close();
      await to(19 * day);
      assert.equal(followed.length, asked);
    });
  }
});

test('a report fails if the keys cannot be fetched, and a hidden page asks once it is shown', async (t) => {
  let isDown = true;
  const { doona, followed, to, show } = await openPage(t, () => {
    if (isDown && Date.now() >= 8000 * day) throw new DoonaError('task-unreachable', 'the relay is down');
  }, true);
  await to(8 * day - 1);
  await show(false);
  await to(8 * day + 300);
  assert.notEqual(Math.floor(followed.at(-1)! / day), 8, 'a hidden page asks for nothing');
  await show(true);
  assert.equal(followed.at(-1), 8 * day + 300);
  const early = doona.report(1, { final: false });
  early.catch(() => {});
  await to(8 * day + 330);
  await assert.rejects(early, { code: 'task-unreachable' });
  isDown = false;
  const report = doona.report(1, { final: false });
  await to(8 * day + 400);
  assert.equal((await report).epoch, 8);
});
