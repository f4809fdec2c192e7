/**
 * Posts reports to relays that are slow, busy or send long answers; and checks which values a report accepts.
 * @module
 */

import assert from 'node:assert/strict';
import { type IncomingMessage, type ServerResponse, createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';

import { connect } from './connect.js';
import { DoonaError } from './errors.js';
import { submit } from './submit.js';
import { textBytes, toFloat64Array } from './value.js';

type Answer = (request: IncomingMessage, response: ServerResponse) => void;

/**
 * Runs `body` with the address of a relay that answers each request with the next of `answers`. Fails if an answer is
 * left.
 */
async function relay(answers: Answer[], body: (url: string) => Promise<void>): Promise<void> {
  const server = createServer((request, response) => {
    request.resume();
    request.on('end', () => answers.shift()!(request, response));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  try {
    await body(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
    assert.equal(answers.length, 0);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

const accepted: Answer = (_, response) => response.writeHead(201).end();

test('a Retry-After with a date is honoured', async () => {
  let asked = 0;
  const busy: Answer = (_, response) => {
    asked = Date.now();
    response.writeHead(503, { 'Retry-After': new Date(asked + 2500).toUTCString() }).end();
  };
  await relay([busy, accepted], async (url) => {
    await submit(url, new Uint8Array(8));
    assert.ok(Date.now() - asked >= 1400, `${Date.now() - asked} ms`); // The date has whole seconds.
  });
  const tomorrow: Answer = (_, response) =>
    response.writeHead(503, { 'Retry-After': new Date(Date.now() + 86_400_000).toUTCString() }).end();
  await relay([tomorrow], async (url) => {
    await assert.rejects(submit(url, new Uint8Array(8)), { code: 'not-delivered' });
  });
});

test('an acknowledgement is read to its end, so that no browser lists it as failed', async () => {
  let finish: (whole: boolean) => void;
  const finished = new Promise<boolean>((resolve) => (finish = resolve));
  const slow: Answer = (_, response) => {
    response.on('close', () => finish(response.writableFinished));
    response.writeHead(201).write('a');
    setTimeout(() => response.end('b'), 100);
  };
  await relay([slow], async (url) => {
    await submit(url, new Uint8Array(8));
    assert.equal(await finished, true);
  });
});

test('a relay that hangs is given up after ten seconds, or more for a large report', async () => {
  const { setTimeout: wait } = globalThis;
  const waited: number[] = [];
  globalThis.setTimeout = ((callback: () => void, milliseconds: number) => {
    if (milliseconds < 10_000) return wait(callback, milliseconds);
    waited.push(milliseconds);
    return wait(callback, 50);
  }) as typeof setTimeout;
  try {
    for (const [size, most] of [[200, 10_100], [102_400, 20_000]] as const) {
      await relay([() => {}, accepted], async (url) => void (await submit(url, new Uint8Array(size))));
      assert.ok(waited[0]! >= 10_000 && waited[0]! <= most, `${waited[0]} ms`);
      waited.length = 0;
    }
  } finally {
    globalThis.setTimeout = wait;
  }
});

test('only 201 acknowledges: a service worker, a blocker or a portal may answer another success', async () => {
  for (const status of [200, 202, 204, 206]) {
    const other: Answer = (_, response) => response.writeHead(status, { 'Retry-After': '60' }).end();
    await relay([other], async (url) => {
      await assert.rejects(submit(url, new Uint8Array(8)), { code: 'not-delivered' });
    });
  }
});

test('an unknown option is refused by its name, with the nearest known name', async () => {
  const [near, init] = [(name: string) => `, did you mean ${name}\\?`, ' of connect, which init takes'];
  for (const [name, said] of [['maxepsilon', near('maxEpsilon')], ['maxDleta', near('maxDelta')], ['tasks', near('task')],
    ['budjet', near('budget')], ['flsuh', near('flush')], ['url', ''], ['consent', init], ['onError', init]]) {
    await assert.rejects(connect({ [name!]: 1 } as never), { code: 'invalid-option', field: name!,
      message: new RegExp(`^unknown option ${name}${said}: want task, .*maxEpsilon, .*signal$`) });
  }
});

test('a value may be a number, an array or a typed array of numbers', () => {
  assert.deepEqual(toFloat64Array(3), Float64Array.of(3));
  const original = Float64Array.of(1, 2);
  for (const vector of [[1, 2], original, Float32Array.of(1, 2), Int32Array.of(1, 2), Uint8Array.of(1, 2)]) {
    assert.deepEqual(toFloat64Array(vector), Float64Array.of(1, 2));
  }
  toFloat64Array(original).fill(0);
  assert.deepEqual(original, Float64Array.of(1, 2)); // The caller's array is unchanged.
  const wrong: unknown[] = ['3', null, undefined, [1, '2'], {}, new DataView(new ArrayBuffer(8)), BigInt64Array.of(1n),
    new Set([1])];
  for (const value of wrong) {
    assert.throws(() => toFloat64Array(value as number), (error) => error instanceof DoonaError &&
      error.code === 'invalid-value');
  }
});

test('connect without options names the option it wants', async () => {
  for (const options of [undefined, null, 'https://relay.example']) {
    await assert.rejects(connect(options as never), { name: 'DoonaError', code: 'invalid-option', field: 'options' });
  }
});

test('a text goes to the module in normal form, and a long one with at most 4 bytes more than the limit', () => {
  const text = (value: unknown, most: number) => new TextDecoder().decode(Uint8Array.from(textBytes(value, most)));
  assert.equal(text('e\u0301t\u00e9', 16), '\u00e9t\u00e9');
  assert.equal(text('', 16), '');
  for (const [long, cut] of [['a'.repeat(1e6), 'a'.repeat(20)], ['\u20ac'.repeat(1e5), '\u20ac'.repeat(6)],
    [`${'a'.repeat(18)}\u{1f600}`, 'a'.repeat(18)]] as const) {
    assert.equal(text(long, 16), cut);
  }
  for (const wrong of [3, undefined, ['a']]) assert.throws(() => textBytes(wrong, 16), DoonaError);
});

test('a report that is not wanted any more is not sent, and not retried', async () => {
  await relay([], async (url) => {
    assert.equal(await submit(url, new Uint8Array(8), { isWanted: async () => false }), false);
  });
  const busy: Answer = (_, response) => response.writeHead(503).end();
  await relay([busy], async (url) => {
    assert.equal(await submit(url, new Uint8Array(8), { isWanted: async (attempt) => attempt < 1 }), false);
  });
  await relay([accepted], async (url) => assert.equal(await submit(url, new Uint8Array(8)), true));
});

test('an abort ends a request, and the wait for a retry', async () => {
  const busy: Answer = (_, response) => response.writeHead(503, { 'Retry-After': '9' }).end();
  for (const answer of [() => {}, busy]) {
    await relay([answer], async (url) => {
      const stop = new AbortController();
      const begin = Date.now();
      setTimeout(() => stop.abort(new DoonaError('withdrawn', 'as the test asked')), 200);
      await assert.rejects(submit(url, new Uint8Array(8), { signal: stop.signal }), { code: 'withdrawn' });
      assert.ok(Date.now() - begin < 5000);
    });
  }
});
