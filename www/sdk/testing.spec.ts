/**
 * Tests doona/testing: reported values arrive exactly, and the fake relay gives the answers that a test sets.
 * @module
 */

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';

import { connect } from './connect.js';
import type { ConnectOptions } from './options.js';
import { DoonaError } from './errors.js';
import { type FakeRelay, type Question, fakeRelay } from './testing.js';

const built = '../build/www/';
const module = await WebAssembly.compile(
  new Uint8Array(readFileSync(built + readdirSync(built).find((file) => /^doona-[0-9a-f]+\.wasm$/.test(file))!)));

async function withRelay(question: Question, run: (relay: FakeRelay, options: ConnectOptions) => Promise<void>) {
  const relay = await fakeRelay(question);
  try {
    await run(relay, { ...relay.options, compiled: { browser: module } });
  } finally {
    relay.close();
  }
}

test('values of every query arrive exactly, and once', async () => {
  const cases: readonly (readonly [Question, readonly number[]])[] = [
    [{}, [42, 0, 100]],
    [{ query: 'sum', range: [-1000, 1000] }, [-1000, -7, 1000]],
    [{ query: 'mean', range: [0, 1_000_000_000] }, [0, 500_000_000, 1_000_000_000]],
    [{ query: 'count' }, [0, 1]],
    [{ query: 'histogram', bins: 2 }, [0, 1]],
    [{ query: 'histogram', bins: 300 }, [0, 299]],
  ];
  for (const [question, values] of cases) {
    for (const value of values) {
      await withRelay(question, async (relay, options) => {
        const doona = await connect(options);
        await Promise.all([doona.report(value), doona.report(value)]);
        assert.deepEqual(relay.values, [value], JSON.stringify(question));
      });
    }
  }
});

test('several relays at a time; closing the last one restores fetch', async () => {
  const before = globalThis.fetch;
  const [one, two] = [await fakeRelay(), await fakeRelay()];
  assert.notEqual(globalThis.fetch, before);
  for (const relay of [two, one]) {
    const doona = await connect({ ...relay.options, compiled: { browser: module } });
    const arrived = relay.arrived(1);
    void doona.report(7);
    assert.deepEqual(await arrived, [7]);
  }
  await assert.rejects(fetch('data:nothing'), TypeError); // The fake relay passes it on to the original fetch.
  one.close();
  assert.notEqual(globalThis.fetch, before);
  two.close();
  assert.equal(globalThis.fetch, before);
});

test('a relay gives the answers that the test sets, and then accepts the retries', async () => {
  await withRelay({}, async (relay, options) => {
    relay.answer('epoch-closed');
    const doona = await connect(options);
    await assert.rejects(doona.report(1), (error) => error instanceof DoonaError && error.code === 'epoch-closed');
    assert.deepEqual(relay.values, []);
  });
  await withRelay({}, async (relay, options) => {
    relay.answer('unreachable', 'overloaded');
    const doona = await connect(options);
    await doona.report(2);
    assert.deepEqual(relay.values, [2]);
  });
});

test('a retry counts once, and a report that cannot be opened is refused', async () => {
  await withRelay({}, async (relay, options) => {
    const answered = globalThis.fetch;
    const sent: [string, Uint8Array][] = [];
    globalThis.fetch = (input, init) => {
      if (init?.method === 'POST') sent.push([String(input), init.body as Uint8Array]);
      return answered(input, init);
    };
    await (await connect(options)).report(5);
    globalThis.fetch = answered;
    const [[url, body]] = sent as [[string, Uint8Array]];
    const again = await fetch(url, { method: 'POST', body: body.slice() });
    assert.equal(again.status, 201);
    body[body.length - 1]! ^= 1;
    const damaged = await fetch(url, { method: 'POST', body: body.slice() });
    assert.equal(damaged.status, 400);
    assert.deepEqual(relay.values, [5]);
  });
});

test('invalid questions are refused', async () => {
  for (const question of [{ query: 'median' }, { query: 'histogram', bins: 1 }, { range: [3, 3] }, { range: [0, .5] }]) {
    await assert.rejects(fakeRelay(question as unknown as Question), RangeError);
  }
  const relay = await fakeRelay();
  relay.close();
  await assert.rejects(connect({ ...relay.options, compiled: { browser: module }, store: relay.options.store }),
    (error) => error instanceof DoonaError && error.code === 'task-unreachable');
});
