// The SDK in a real browser, against a relay on another origin whose Go code opens what arrives.
import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, test } from 'node:test';

import { launch, open, startTestServer } from './harness.mjs';

/** @typedef {typeof import('../sdk/index.js')} SDK */

/** @type {Awaited<ReturnType<typeof startTestServer>>} */
let server;
/** @type {import('playwright-core').Browser} */
let browser;
/** @type {import('playwright-core').BrowserContext} */
let context;
/** @type {import('playwright-core').Page} */
let page;
/** @type {string[]} */
let complaints;

before(async () => {
  server = await startTestServer();
  browser = await launch();
});
after(async () => {
  await browser?.close();
  await server?.stop();
});
beforeEach(async () => {
  context = await browser.newContext();
  ({ page, complaints } = await open(context, `${server.site}/blank.html`));
  await server.take();
});
afterEach(async () => {
  await server.fail();
  await context.close();
});

/** Messages the browser itself writes for HTTP errors; the SDK writes none. */
const network = /^Failed to load resource/;

function assertQuiet() {
  assert.deepEqual(complaints.filter((text) => !network.test(text)), []);
}

/**
 * Connects in a page and reports values one after another. An error comes back as its code.
 * @param {string} name of the task
 * @param {{values?: (number | number[])[], options?: object, on?: import('playwright-core').Page, flush?: boolean}} [with_]
 */
function run(name, { values = [], options = {}, on = page, flush = false } = {}) {
  return on.evaluate(
    async ({ offer, values, options, flush }) => {
      const file = '/doona.js';
      /** @type {SDK} */
      const { connect, DoonaError } = await import(file);
      const attempt = async (/** @type {() => Promise<any>} */ action) => {
        try {
          return await action();
        } catch (error) {
          if (!(error instanceof DoonaError)) throw error;
          return { code: error.code, field: error.field, message: error.message };
        }
      };
      const doona = await attempt(() =>
        connect({ ...offer, maxEpsilon: 10, maxDelta: 1, maxTotalEpsilon: 10, spread: 0, flush: false, ...options }),
      );
      if (!doona.task) return { connect: doona, receipts: [], guarantee: null };
      const receipts = [];
      for (const value of values) receipts.push(await attempt(() => doona.report(value)));
      const flushed = flush ? await doona.flush() : null;
      return { connect: null, receipts, guarantee: doona.guarantee, dropped: doona.dropped, flushed };
    },
    { offer: /** @type {any} */ (server.tasks[name]), values, options, flush },
  );
}

const paths = /** @type {const} */ (['webcrypto', 'wasm']);

for (const sealing of paths) {
  for (const name of ['truthful', 'one relay', 'three relays']) {
    test(`${sealing}: what a browser seals for "${name}" opens in Go`, async () => {
      const { receipts } = await run(name, { values: [258], options: { sealing } });
      const [got] = await server.take();
      assert.equal(got?.error, '');
      assert.deepEqual(got?.messages, [['0102']]);
      assert.equal(receipts[0].bytes, (got?.body.length ?? 0) / 2);
      assert.equal(receipts[0].repeated, false);
      assert.equal(got?.header['Cookie'], undefined);
      assert.equal(got?.header['Referer'], undefined);
      assertQuiet();
    });
  }

  for (const [name, code, field] of [
    ['tampered', 'task-refused'],
    ['unsigned', 'task-refused'],
    ['other keys', 'task-refused'],
    ['trailing', 'task-refused'],
    ['lie', 'claim-refused', 'claim.delta'],
  ]) {
    test(`${sealing}: the "${name}" task is refused`, async () => {
      const { connect } = await run(String(name), { options: { sealing } });
      assert.equal(connect.code, code);
      assert.equal(connect.field, field);
      assertQuiet();
    });
  }

  test(`${sealing}: a key whose shared secret is all zeros is refused`, async () => {
    const { connect, receipts } = await run('low order', { values: [1], options: { sealing } });
    assert.equal((connect ?? receipts[0]).code, 'task-refused');
    assert.deepEqual(await server.take(), []);
  });

  test(`${sealing}: another owner's task is refused`, async () => {
    const owner = server.tasks['mean']?.owner;
    const { connect } = await run('truthful', { options: { sealing, owner } });
    assert.equal(connect.code, 'task-refused');
  });
}

for (const sealing of paths) {
  test(`${sealing}: a report of many messages fills its slots`, async () => {
    const { receipts } = await run('shares', { values: [0.5], options: { sealing } });
    const [got] = await server.take();
    assert.equal(got?.error, '');
    assert.ok(Number(got?.messages[0]?.length) > 2, 'several shares');
    assert.ok(got?.messages[0]?.every((message) => message !== ''), 'none of them a cover');
    assert.equal(receipts[0].bytes, Number(got?.body.length) / 2);
  });

  test(`${sealing}: a vector is reported, and one of another length refused`, async () => {
    const { receipts } = await run('vector', { values: [[1, 2], Array(20).fill(0.5)], options: { sealing } });
    assert.equal(receipts[0].code, 'invalid-value');
    assert.equal(receipts[1].repeated, false);
    assert.equal((await server.take())[0]?.error, '');
  });
}

test('both paths derive the same guarantee', async () => {
  const [a, b] = await Promise.all(paths.map((sealing) => run('histogram', { options: { sealing } })));
  assert.deepEqual(a?.guarantee, b?.guarantee);
  assert.equal(a?.guarantee?.epsilon, 1);
  assert.ok(a?.guarantee?.localEpsilon && a.guarantee.localEpsilon > 1);
});

test('a post-quantum task is sealed by doona-full.wasm', async () => {
  await run('post-quantum', { values: [7] });
  const [got] = await server.take();
  assert.equal(got?.error, '');
  assert.deepEqual(got?.messages, [['0007']]);
  const { connect } = await run('post-quantum', { options: { sealing: 'webcrypto' } });
  assert.equal(connect.field, 'sealing');
});

test('a browser without X25519 falls back to doona-full.wasm', async () => {
  await page.evaluate(() => {
    const generate = crypto.subtle.generateKey.bind(crypto.subtle);
    crypto.subtle.generateKey = (/** @type {any} */ algorithm, /** @type {any[]} */ ...rest) =>
      algorithm === 'X25519'
        ? Promise.reject(new DOMException('as the test asked', 'NotSupportedError'))
        : /** @type {any} */ (generate)(algorithm, ...rest);
  });
  const fetched = page.waitForRequest(/doona-full-.*\.wasm$/);
  await run('truthful', { values: [7] });
  await fetched;
  assert.deepEqual((await server.take())[0]?.messages, [['0007']]);
  assertQuiet();
});

// Pearson's statistic of 600 reports against the exact probabilities: with 3 degrees of freedom it
// exceeds 33.4 once in 3 million runs.
test('reports are randomized with the probabilities of the task', async () => {
  const n = 600;
  await page.evaluate(
    async ({ offer, n }) => {
      const file = '/doona.js';
      /** @type {SDK} */
      const { connect, memoryStore } = await import(file);
      for (let done = 0; done < n; done += 20) {
        const clients = Array.from({ length: 20 }, async () => {
          const doona = await connect({ ...offer, maxEpsilon: 1, maxTotalEpsilon: 1, spread: 0, store: memoryStore() });
          await doona.report(2);
        });
        await Promise.all(clients);
      }
    },
    { offer: /** @type {any} */ (server.tasks['histogram']), n },
  );
  const got = await server.take();
  assert.equal(got.length, n);
  const counts = [0, 0, 0, 0];
  for (const { messages } of got) {
    const y = parseInt(messages[0]?.[0] ?? '', 16);
    counts[y] = (counts[y] ?? 0) + 1;
  }
  const { gamma, k } = await gammaOf('histogram');
  const statistic = counts.reduce((sum, count, y) => {
    const want = n * (gamma / k + (y === 2 ? 1 - gamma : 0));
    return sum + (count - want) ** 2 / want;
  }, 0);
  assert.ok(statistic < 33.4, `counts ${counts} at gamma ${gamma}`);
});

/** @param {string} name */
function gammaOf(name) {
  return page.evaluate(async (offer) => {
    const file = '/doona.js';
    /** @type {SDK} */
    const { connect } = await import(file);
    const { task } = await connect({ ...offer, maxEpsilon: 10, maxDelta: 1, maxTotalEpsilon: 10 });
    const [num, den] = (task.params.get('gamma') ?? '').split('/').map(Number);
    return { gamma: (num ?? NaN) / (den ?? NaN), k: task.input.bins };
  }, /** @type {any} */ (server.tasks[name]));
}

test('values outside the domain are refused and use up nothing', async () => {
  const { receipts } = await run('truthful', { values: [300, NaN, 1.5, 5] });
  assert.deepEqual(receipts.map((r) => r.code ?? 'sent'), ['invalid-value', 'invalid-value', 'invalid-value', 'sent']);
  assert.equal(receipts[0].field, 'value');
  assert.deepEqual((await server.take()).map((s) => s.messages), [[['0005']]]);
});

test('a mean is clipped and reported', async () => {
  const { receipts } = await run('mean', { values: [1e9] });
  assert.equal(receipts[0].repeated, false);
  assert.equal((await server.take())[0]?.error, '');
});

test('an epsilon above maxEpsilon is refused', async () => {
  const { connect } = await run('truthful', { options: { maxEpsilon: 2.9 } });
  assert.equal(connect.code, 'epsilon-too-large');
});

test('a claim that is worthless for its delta is refused unless the page asks for it', async () => {
  const { connect } = await run('truthful', { options: { maxDelta: 0.001 } });
  assert.equal(connect.code, 'delta-too-large');
});

test('the ledger of the site stops at maxTotalEpsilon', async () => {
  const options = { maxEpsilon: 1, maxTotalEpsilon: 2 };
  for (const name of ['one relay', 'three relays']) assert.equal((await run(name, { values: [1], options })).receipts[0].repeated, false);
  const { receipts } = await run('histogram', { values: [1], options });
  assert.equal(receipts[0].code, 'budget-exceeded');
  assert.equal((await server.take()).length, 2);
});

test('bad options are named', async () => {
  for (const options of [{ owner: 'ed25519:x' }, { task: '/v1/tasks/12' }, { maxEpsilon: 0 }, { maxDelta: 0 }, { maxTotalEpsilon: 1 }, { spread: -1 }]) {
    const { connect } = await run('truthful', { options });
    assert.equal(connect.code, 'invalid-option');
    assert.ok(Object.keys(options).includes(connect.field));
  }
});

test('tasks that are not running accept nothing', async () => {
  assert.equal((await run('future', { values: [1] })).receipts[0].code, 'epoch-not-open');
  assert.equal((await run('ended', { values: [1] })).receipts[0].code, 'task-ended');
  assert.deepEqual(await server.take(), []);
});

test('an epoch is reported once: again, after a reload, in ten tabs', async () => {
  const first = await run('truthful', { values: [7, 8] });
  assert.equal(first.receipts[1].repeated, true);
  await page.reload();
  assert.equal((await run('truthful', { values: [9] })).receipts[0].repeated, true);
  assert.equal((await server.take()).length, 1);

  const tabs = await Promise.all(Array.from({ length: 10 }, () => open(context, `${server.site}/blank.html`)));
  await Promise.all(tabs.map((tab, i) => run('one relay', { values: [i], on: tab.page })));
  // A tab may repeat what another has sealed and not yet delivered: the same bytes, stored once.
  assert.equal(new Set((await server.take()).map((s) => s.body)).size, 1);
});

test('a retry sends the same bytes', async () => {
  await server.fail('overloaded', 'internal');
  const { receipts } = await run('truthful', { values: [7] });
  assert.equal(receipts[0].repeated, false);
  const got = await server.take();
  assert.equal(got.length, 3);
  assert.equal(new Set(got.map((s) => s.body)).size, 1);
});

test('an undelivered report waits sealed and is flushed as it is', async () => {
  await context.route(`${server.relay}/**/reports`, (route) => route.abort());
  const { receipts } = await run('truthful', { values: [7] });
  assert.equal(receipts[0].code, 'not-delivered');

  const stored = await page.evaluate(
    () => new Promise((resolve) => {
      const opening = indexedDB.open('doona');
      opening.onsuccess = () => {
        const all = opening.result.transaction('reports').objectStore('reports').getAll();
        all.onsuccess = () => resolve(all.result.map((r) => ({ ...r, body: Array.from(r.body) })));
      };
    }),
  );
  assert.equal(stored.length, 1);
  assert.deepEqual(Object.keys(stored[0]).sort(), ['body', 'epoch', 'state', 'task']);

  await context.unroute(`${server.relay}/**/reports`);
  await page.reload();
  const later = await run('truthful', { flush: true });
  assert.deepEqual(later.flushed, { delivered: 1, dropped: 0, waiting: 0 });
  const got = await server.take();
  assert.deepEqual(got.map((s) => s.body), [Buffer.from(stored[0].body).toString('hex')]);
});

test('bytes that the relay has from another network are delivered', async () => {
  await server.fail('replayed');
  const { receipts, dropped } = await run('truthful', { values: [7, 7] });
  assert.deepEqual(receipts.map((r) => r.repeated), [false, true]);
  assert.equal(dropped, 0);
  assert.equal((await server.take()).length, 1);
});

test('an answer that is not of a relay drops nothing', async () => {
  const headers = { 'Access-Control-Allow-Origin': '*', 'Access-Control-Expose-Headers': 'Retry-After', 'Retry-After': '60' };
  await context.route(`${server.relay}/**/reports`, (route) => route.fulfill({ status: 429, headers, body: 'slow down' }));
  const { receipts } = await run('truthful', { values: [7] });
  assert.equal(receipts[0].code, 'not-delivered');
  await context.unroute(`${server.relay}/**/reports`);
  assert.deepEqual((await run('truthful', { flush: true })).flushed, { delivered: 1, dropped: 0, waiting: 0 });
});

test('what no relay can take any more is dropped unsent', async () => {
  await run('ended'); // makes the store
  const id = new URL(server.tasks['ended']?.task ?? '').pathname.split('/').at(-1);
  await page.evaluate(
    (task) => new Promise((resolve) => {
      const opening = indexedDB.open('doona');
      opening.onsuccess = () => {
        const tx = opening.result.transaction('reports', 'readwrite');
        tx.objectStore('reports').put({ task, epoch: 0, state: 'sealed', body: new Uint8Array(9) });
        tx.oncomplete = () => resolve(opening.result.close());
      };
    }),
    id,
  );
  const { flushed, dropped } = await run('ended', { flush: true });
  assert.deepEqual(flushed, { delivered: 0, dropped: 1, waiting: 0 });
  assert.equal(dropped, 1);
  assert.deepEqual(await server.take(), []);
});

test('a repeated call waits for its moment, too', async () => {
  await context.route(`${server.relay}/**/reports`, (route) => route.abort());
  assert.equal((await run('truthful', { values: [7] })).receipts[0].code, 'not-delivered');
  await context.unroute(`${server.relay}/**/reports`);
  await page.evaluate(() => {
    crypto.getRandomValues = (/** @type {any} */ out) => out.fill(2 ** 31); // half of the spread
  });
  const begin = Date.now();
  const { receipts } = await run('truthful', { values: [7], options: { spread: 1000 } });
  assert.equal(receipts[0].repeated, true);
  assert.ok(Date.now() - begin >= 490);
  assert.equal((await server.take()).length, 1);
});

for (const [answer, code] of [['epoch-closed', 'epoch-closed'], ['malformed', 'report-refused'], ['limit', 'limit-reached']]) {
  test(`a relay's "${answer}" drops the report`, async () => {
    await server.fail(String(answer));
    const { receipts, dropped, flushed } = await run('truthful', { values: [7, 7], flush: true });
    assert.equal(receipts[0].code, code);
    assert.equal(receipts[1].repeated, true);
    assert.equal(dropped, 1);
    assert.deepEqual(flushed, { delivered: 0, dropped: 0, waiting: 0 });
    assert.equal((await server.take()).length, 1);
  });
}

test('a changed module is refused by its hash', async () => {
  await context.route(/doona-.*\.wasm$/, async (route) => {
    const response = await route.fetch();
    const body = await response.body();
    body.writeUInt8(body.readUInt8(body.length - 1) ^ 1, body.length - 1);
    await route.fulfill({ response, body });
  });
  assert.equal((await run('truthful')).connect.code, 'module-failed');
});
