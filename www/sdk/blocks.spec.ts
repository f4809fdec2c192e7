/**
 * Tests when a client asks for the keys of a block of epochs: once, at a visit, and never because of a report.
 * @module
 */

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { type TestContext, test } from 'node:test';

import { connect } from './connect.js';
import type { Doona } from './doona.js';
import type { ConnectOptions } from './options.js';
import { type FakeRelay, fakeRelay } from './testing.js';

const built = '../build/www/';
const module = await WebAssembly.compile(
  new Uint8Array(readFileSync(built + readdirSync(built).find((file) => /^doona-[0-9a-f]+\.wasm$/.test(file))!)));
const hour = 3_600_000;

/** A fake relay whose task has three blocks of eight hours, and what arrives there. */
interface Site {
  readonly relay: FakeRelay;
  /** Connects, with the store of the visits before. */
  readonly visit: () => Promise<Doona>;
  /** Returns the requests since the last call: the ends of their addresses. */
  readonly asked: () => string[];
  /** Sets the clock to an epoch. */
  readonly to: (epoch: number) => void;
  /** The sizes of the documents that were served. */
  readonly sizes: number[];
}

/** Changes an answer of the relay. It may ask for another address. */
type Change = (response: Response, url: string, ask: typeof fetch) => Response | Promise<Response>;

async function open(t: TestContext, change: Change = (response) => response): Promise<Site> {
  const relay = await fakeRelay();
  t.after(() => relay.close());
  const start = Date.now();
  const path = relay.options.task;
  const { fetch } = globalThis;
  const asked: string[] = [];
  const sizes: number[] = [];
  t.mock.method(globalThis, 'fetch', async (url: string | URL, init?: RequestInit) => {
    asked.push(String(url).replace(path, '').replace(path.replace('/tasks/', '/blocks/'), '/blocks'));
    const response = await change(await fetch(url, init), String(url), fetch);
    if (init?.method !== 'POST') sizes.push((await response.clone().arrayBuffer()).byteLength);
    return response;
  });
  const clock = t.mock.method(Date, 'now', () => start);
  const options: ConnectOptions = { ...relay.options, compiled: { browser: module } };
  return {
    relay, sizes,
    visit: async () => {
      const doona = await connect(options);
      t.after(() => doona.close());
      return doona;
    },
    asked: () => asked.splice(0),
    to: (epoch) => clock.mock.mockImplementation(() => start + epoch * hour),
  };
}

const report = (epoch: number) => `/epochs/${epoch}/reports`;

test('a visit asks for keys once in a block, before any report', async (t) => {
  const { relay, visit, asked, to, sizes } = await open(t);
  for (const [epoch, want] of [[0, ''], [1], [7], [8, '/blocks/1'], [8], [15], [23, '/blocks/2'], [23]] as const) {
    to(epoch);
    const doona = await visit();
    assert.deepEqual(asked(), want === undefined ? [] : [want], `epoch ${epoch}`);
    const { repeated } = await doona.report(epoch);
    assert.deepEqual(asked(), repeated ? [] : [report(epoch)]);
  }
  assert.deepEqual(relay.values, [0, 1, 7, 8, 15, 23]);
  assert.ok(Math.max(...sizes) < 2200, `documents of ${sizes} bytes`);
});

test('a first visit gets the current block with the task', async (t) => {
  const { visit, asked, to } = await open(t);
  to(17);
  await (await visit()).report(1);
  assert.deepEqual(asked(), ['', report(17)]);
});

test('a later visit needs no keys of a task that is over', async (t) => {
  const { visit, asked, to } = await open(t);
  await visit();
  assert.deepEqual(asked(), ['']);
  to(24);
  const doona = await visit();
  await assert.rejects(doona.report(1), { code: 'task-ended' });
  assert.deepEqual(asked(), []);
});

test('without a page, a connection asks for the keys of a later block once, whatever it reports', async (t) => {
  const { relay, visit, asked, to } = await open(t);
  const doona = await visit();
  await doona.report(1);
  asked();
  to(9);
  await Promise.all([doona.report(2), doona.report(3), doona.report(4)]);
  assert.deepEqual(asked(), ['/blocks/1', report(9)]);
  to(10);
  await doona.report(5);
  assert.deepEqual(asked(), [report(10)]);
  assert.deepEqual(relay.values, [1, 2, 5]);
});

test('a device whose clock differs from the relay\'s asks for the block of its own epoch', async (t) => {
  const { visit, asked, to } = await open(t, (response, url, ask) =>
    url.includes('/blocks/') || url.endsWith('reports') ? response : ask(`${url.replace('/tasks/', '/blocks/')}/0`));
  to(8);
  const doona = await visit();
  assert.deepEqual(asked(), ['', '/blocks/1']);
  await doona.report(1);
  assert.deepEqual(asked(), [report(8)]);
});

for (const [what, damage] of Object.entries({
  'keys of another block': async (_, url, ask) => ask(url.replace(/1$/, '2')),
  'damaged keys': async (response) => {
    const bytes = new Uint8Array(await response.arrayBuffer());
    bytes[bytes.length - 1]! ^= 1;
    return new Response(bytes);
  },
} satisfies Record<string, Change>)) {
  test(`${what} are refused and not kept, and the next attempt asks again`, async (t) => {
    let isDamaged = true;
    const { relay, visit, asked, to } = await open(t, (response, url, ask) =>
      isDamaged && url.includes('/blocks/') ? damage(response, url, ask) : response);
    const doona = await visit();
    to(8);
    await assert.rejects(visit(), { code: 'task-refused' });
    await assert.rejects(doona.report(1), { code: 'task-refused' });
    isDamaged = false;
    asked();
    await doona.report(2);
    await (await visit()).report(3);
    assert.deepEqual(asked(), ['/blocks/1', report(8)]);
    assert.deepEqual(relay.values, [2]);
  });
}
