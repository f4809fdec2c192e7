// Tests of the SDK that need a browser: tabs, IndexedDB, visits that end, workers, and token requests. cases.mjs has
// the test cases for every runtime.
import assert from 'node:assert/strict';
import { after, afterEach, beforeEach, test } from 'node:test';

import { launch, network, open, startTestServer } from './harness.mjs';

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

after(async () => {
  await browser?.close();
  await server?.stop();
});
beforeEach(async () => {
  server ??= await startTestServer();
  browser ??= await launch();
  await newVisitor();
});
afterEach(async () => {
  await server.fail();
  await context.close();
});

/** Opens the page in a new browser context, as a new visitor. */
async function newVisitor() {
  context = await browser.newContext();
  ({ page, complaints } = await open(context, `${server.site}/blank.html`));
  await server.take();
}

function assertQuiet() {
  assert.deepEqual(complaints.filter((text) => !network.test(text)), []);
}

/**
 * Connects in a page and reports the values one after another. Returns the results; for an error, its code.
 * @param {string} name of the task
 * @param {{values?: (number | number[])[], options?: object, on?: import('playwright-core').Page, flush?: boolean}}
 * [with_] flush: whether to call flush() at the end. options.flush: whether `connect` flushes.
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
      /** @type {import('../sdk/options.js').TokenSource} */
      const tokens = (body, { uri }) => fetch(`/test/token?uri=${encodeURIComponent(uri)}`, { method: 'POST', body });
      const doona = await attempt(() =>
        connect({ ...offer, maxEpsilon: 10, maxDelta: 1, maxTotalEpsilon: 10, spread: 0, flush: false, tokens,
          ...options }),
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

/** Returns the reports in the page's IndexedDB, with byte strings as arrays. @returns {Promise<any[]>} */
function stored() {
  return page.evaluate(
    () => new Promise((resolve) => {
      const opening = indexedDB.open('doona');
      opening.onsuccess = () => {
        const all = opening.result.transaction('reports').objectStore('reports').getAll();
        all.onsuccess = () => {
          opening.result.close();
          const reports = all.result.filter(({ task }) => !task.startsWith('kept'));
          resolve(reports.map((r) => ({ ...r, ...(r.body && { body: Array.from(r.body) }) })));
        };
      };
    }),
  );
}

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

test('an epoch is reported once: again, after a reload, in ten tabs', async () => {
  const first = await run('truthful', { values: [7, 8] });
  assert.equal(first.receipts[1].repeated, true);
  await page.reload();
  assert.equal((await run('truthful', { values: [9] })).receipts[0].repeated, true);
  assert.equal((await server.take()).length, 1);

  const tabs = await Promise.all(Array.from({ length: 10 }, () => open(context, `${server.site}/blank.html`)));
  await Promise.all(tabs.map((tab, i) => run('one relay', { values: [i], on: tab.page })));
  // Several tabs may send the report before it is delivered, but all must send the same bytes.
  assert.equal(new Set((await server.take()).map((s) => s.body)).size, 1);
});

test('two tabs cannot both spend the rest of a budget; a wiped store has spent nothing', async () => {
  const options = { maxEpsilon: 1, maxTotalEpsilon: 1 };
  const { page: tab } = await open(context, `${server.site}/blank.html`);
  const got = await Promise.all([run('one relay', { values: [1], options }),
    run('three relays', { values: [2], options, on: tab })]);
  const codes = got.map(({ receipts: [receipt] }) => receipt.code ?? 'admitted');
  assert.deepEqual(codes.sort(), ['admitted', 'budget-exceeded']);
  assert.equal((await server.take()).length, 1);

  await tab.close();
  await page.reload();
  await page.evaluate(() => new Promise((resolve) => (indexedDB.deleteDatabase('doona').onsuccess = resolve)));
  const { receipts } = await run('one relay', { values: [1], options });
  assert.equal(receipts[0].repeated, false, 'a wiped store does not know the first report of the epoch');
});

test('an undelivered report stays sealed, and flush sends the same bytes', async () => {
  await context.route(`${server.relay}/**/reports`, (route) => route.abort());
  const { receipts } = await run('truthful', { values: [7] });
  assert.equal(receipts[0].code, 'not-delivered');

  const reports = await stored();
  assert.equal(reports.length, 1);
  assert.deepEqual(Object.keys(reports[0]).sort(), ['body', 'epoch', 'failed', 'retryAt', 'state', 'task']);

  await context.unroute(`${server.relay}/**/reports`);
  await page.reload();
  const later = await run('truthful', { flush: true });
  assert.deepEqual(later.flushed, { delivered: 1, dropped: 0, waiting: 0 });
  const got = await server.take();
  assert.deepEqual(got.map((s) => s.body), [Buffer.from(reports[0].body).toString('hex')]);
});

test('an answer that is not from a relay drops no report', async () => {
  const headers = { 'Access-Control-Allow-Origin': '*', 'Access-Control-Expose-Headers': 'Retry-After',
    'Retry-After': '60' };
  await context.route(`${server.relay}/**/reports`,
    (route) => route.fulfill({ status: 429, headers, body: 'slow down' }));
  const { receipts } = await run('truthful', { values: [7] });
  assert.equal(receipts[0].code, 'not-delivered');
  await context.unroute(`${server.relay}/**/reports`);
  assert.deepEqual((await run('truthful', { flush: true })).flushed, { delivered: 1, dropped: 0, waiting: 0 });
});

test('a report of a closed epoch is dropped without being sent', async () => {
  await run('ended'); // creates the store
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

test('a repeated call also waits for a random time before it sends', async () => {
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

test('a prerendered page requests nothing before it is shown', async () => {
  /** @type {string[]} */
  const asked = [];
  page.on('request', (request) => asked.push(request.url()));
  await page.evaluate(() => Object.defineProperty(document, 'prerendering', { value: true, configurable: true }));
  const visit = run('truthful', { values: [7], options: { when: 'now' } });
  await page.waitForTimeout(500);
  assert.deepEqual(asked.filter((url) => !url.endsWith('/doona.js')), []);
  await page.evaluate(() => document.dispatchEvent(new Event('prerenderingchange')));
  assert.equal((await visit).receipts[0].repeated, false);
});

test('a window of Electron reports, although its process says an old Node', async () => {
  await page.evaluate(() => Object.assign(globalThis, { process: { versions: { node: '20.18.3', electron: '33.0.0' } } }));
  assert.equal((await run('truthful', { values: [7] })).receipts[0].repeated, false);
  assert.deepEqual((await server.take()).map((sent) => sent.messages), [[['0007']]]);
});

test('a service worker through which all requests pass changes nothing', async () => {
  await page.evaluate(async () => {
    const claimed = new Promise((resolve) => navigator.serviceWorker.addEventListener('controllerchange', resolve));
    await navigator.serviceWorker.register('/service-worker.js');
    await claimed;
  });
  const { receipts } = await run('truthful', { values: [7, 8] });
  assert.deepEqual(receipts.map((/** @type {any} */ receipt) => receipt.repeated), [false, true]);
  const [got, ...more] = await server.take();
  assert.deepEqual([got?.messages, got?.error, more], [[['0007']], '', []]);
  assert.equal(got?.header['Cookie'], undefined);
  const passed = await page.evaluate(() => new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = ({ data }) => resolve(data);
    navigator.serviceWorker.controller?.postMessage(null, [port2]);
  }));
  assert.ok(passed >= 4, `${passed} requests passed: want the SDK, its module, the task and the report`);
  assertQuiet();
});

test('a changed module is refused by its hash', async () => {
  await context.route(/doona-.*\.wasm$/, async (route) => {
    const response = await route.fetch();
    const body = await response.body();
    body.writeUInt8(body.readUInt8(body.length - 1) ^ 1, body.length - 1);
    await route.fulfill({ response, body });
  });
  const { code, message } = (await run('truthful')).connect;
  assert.equal(code, 'module-failed');
  assert.match(message, /couldn't compile .*doona-(small-)?[0-9a-f]+\.wasm: its hash is not the one/);
});

for (const [name, block] of Object.entries({
  'storage is blocked': () => {
    Object.defineProperty(globalThis, 'indexedDB',
      { get() { throw new DOMException('as a browser that blocks cookies', 'SecurityError'); } });
  },
  'a private window has no storage': () => {
    indexedDB.open = () => { throw new DOMException('as a private window', 'InvalidStateError'); };
  },
  'storage cannot be opened': () => {
    const { open } = indexedDB;
    indexedDB.open = (name) => open.call(indexedDB, name, 1); // Throws VersionError if the store exists.
  },
})) {
  test(`where ${name} nothing is sent, unless the page passes a store`, async () => {
    await run('one relay'); // creates the store
    await page.evaluate(block);
    assert.equal((await run('truthful', { values: [7] })).connect.code, 'storage-unavailable');
    assert.deepEqual(await server.take(), []);
    const repeated = await page.evaluate(async (offer) => {
      const file = '/doona.js';
      /** @type {SDK} */
      const { connect, memoryStore } = await import(file);
      const doona = await connect({ ...offer, maxEpsilon: 10, maxDelta: 1, maxTotalEpsilon: 10, spread: 0,
        store: memoryStore() });
      return (await doona.report(7)).repeated;
    }, /** @type {any} */ (server.tasks['truthful']));
    assert.equal(repeated, false);
  });
}

test('the error names files that a bundler left out, and the option with their folder', async () => {
  const { code, field, message } = (await run('truthful', { options: { modules: '/nowhere/' } })).connect;
  assert.equal(`${code} ${field}`, 'module-failed modules');
  assert.match(message, /doona-[0-9a-z-]+\.(js|wasm): the server answered 404; .* option modules/);
});

/** Starts a report that is to be sent in half an hour, and waits until it is sealed. */
async function reportLater() {
  await page.evaluate(async (offer) => {
    const file = '/doona.js';
    /** @type {SDK} */
    const { connect } = await import(file);
    // Sends in the middle of the spread, or of the rest of the epoch.
    crypto.getRandomValues = (/** @type {any} */ out) => out.fill(2 ** 31);
    const doona = await connect({ ...offer, maxEpsilon: 10, maxDelta: 1, maxTotalEpsilon: 10, spread: 3_600_000 });
    doona.report(7).catch(() => {});
  }, /** @type {any} */ (server.tasks['truthful']));
  while (!(await stored()).some(({ state }) => state === 'sealed')) await page.waitForTimeout(20);
  assert.deepEqual(await server.take(), [], 'the report left before its time');
}

/** Waits for submissions of a page that was closed. Returns an empty list if none arrives within 10 seconds. */
async function arrived() {
  const deadline = Date.now() + 10_000;
  const got = [];
  while (got.length === 0 && Date.now() < deadline) {
    await new Promise((resolve) => setTimeout(resolve, 20));
    got.push(...(await server.take()));
  }
  return got;
}

/** Closes the page as a visitor does, so that its unload events run. */
async function closed() {
  const event = page.waitForEvent('close');
  await page.close({ runBeforeUnload: true });
  await event;
}

/** @type {Record<string, () => Promise<unknown>>} */
const endings = {
  'a closed tab': closed,
  'a link to another site': () => page.goto('about:blank'),
  'a reload': () => page.reload(),
  'a closed tab, in a browser that tells only pagehide': async () => { // as older Safari
    await page.evaluate("addEventListener('visibilitychange', (event) => event.stopImmediatePropagation(), true)");
    await closed();
  },
};
for (const [name, end] of Object.entries(endings)) {
  test(`${name} sends the waiting report; the next visit sends the same bytes or nothing`, async () => {
    /** @type {Awaited<ReturnType<typeof arrived>>} */
    let got = [];
    // A busy browser may drop the requests of a closing page. So it is enough if one of three visitors succeeds.
    for (let visitor = 0; visitor < 3 && got.length === 0; visitor++) {
      if (visitor > 0) {
        await context.close();
        await newVisitor();
      }
      await reportLater();
      await end();
      got = await arrived();
    }
    assert.deepEqual(got.map((s) => s.messages), [[['0007']]]);
    assert.equal(got[0]?.error, '', 'the report could not be opened, or had a content type, which causes a preflight');

    ({ page } = await open(context, `${server.site}/blank.html`));
    await run('truthful', { options: { flush: true }, flush: true });
    // If the page was closed before the answer arrived, the next visit sends the same bytes again.
    for (const again of await server.take()) assert.equal(again.body, got[0]?.body);
    assert.deepEqual((await run('truthful', { flush: true })).flushed, { delivered: 0, dropped: 0, waiting: 0 });
  });
}

test('a page from the back-forward cache continues to work', async () => {
  const alive = await launch({ ignoreDefaultArgs: ['--disable-back-forward-cache'] });
  try {
    const { page } = await open(await alive.newContext(), `${server.site}/blank.html`);
    await page.evaluate(async (offer) => {
      const file = '/doona.js';
      /** @type {SDK} */
      const { connect } = await import(file);
      const doona = await connect({ ...offer, maxEpsilon: 10, maxDelta: 1, maxTotalEpsilon: 10, spread: 0 });
      addEventListener('pageshow', ({ persisted }) => Object.assign(globalThis, { doona, persisted }));
    }, /** @type {any} */ (server.tasks['truthful']));
    await page.goto(`${server.site}/index.html`);
    await page.goBack({ waitUntil: 'commit' }); // a page from the back-forward cache loads nothing
    await page.waitForFunction('globalThis.persisted !== undefined');
    assert.equal(await page.evaluate('persisted'), true);
    assert.equal(await page.evaluate('doona.report(7).then(({ repeated }) => repeated)'), false);
    assert.deepEqual((await server.take()).map((s) => s.messages), [[['0007']]]);
  } finally {
    await alive.close();
  }
});

test('offline, closed and opened again: a report arrives once', async () => {
  await reportLater();
  await context.setOffline(true);
  await closed();
  await context.setOffline(false);
  assert.deepEqual(await server.take(), []);

  ({ page } = await open(context, `${server.site}/blank.html`));
  const { flushed, receipts } = await run('truthful', { values: [9], options: { flush: true }, flush: true });
  assert.equal(receipts[0].repeated, true);
  assert.deepEqual(flushed, { delivered: 0, dropped: 0, waiting: 0 });
  const got = await server.take();
  assert.deepEqual(got.map((s) => s.messages), [[['0007']]]);
});

test('a report to another origin needs no preflight', async () => {
  /** @type {string[]} */
  const methods = [];
  const session = await context.newCDPSession(page);
  await session.send('Network.enable');
  session.on('Network.requestWillBeSent', ({ request, type }) => methods.push(`${type} ${request.method}`));
  await run('truthful', { values: [7] });
  assert.ok(methods.includes('Fetch POST'), String(methods));
  assert.deepEqual(methods.filter((method) => /Preflight|OPTIONS/.test(method)), []);
});

test('the module lives in one worker for all tasks, and not in the page', async () => {
  await page.evaluate(() => {
    for (const name of /** @type {const} */ (['compile', 'compileStreaming', 'instantiate', 'instantiateStreaming'])) {
      WebAssembly[name] = /** @type {any} */ (() => Promise.reject(new Error('in the page')));
    }
  });
  const workers = /** @type {string[]} */ ([]);
  page.on('worker', (worker) => workers.push(worker.url()));
  for (const name of ['truthful', 'histogram', 'post-quantum']) {
    assert.equal((await run(name, { values: [1] })).receipts[0].repeated, false);
  }
  assert.equal(workers.length, 1);
  assert.match(String(workers[0]), /\/doona-worker-[0-9a-f]{12}\.js$/);
  assertQuiet();
});

/**
 * Connects to the stream. Returns the error's code, and a list of what the page's own thread hashed or decoded that was
 * larger than 100 kB.
 * @param {boolean} inPlace whether there is no worker
 */
function connectToStream(inPlace) {
  return page.evaluate(async ({ offer, inPlace }) => {
    if (inPlace) Reflect.deleteProperty(globalThis, 'Worker');
    const file = '/doona.js';
    /** @type {SDK} */
    const { connect } = await import(file);
    /** @type {string[]} */
    const decoded = [];
    const { decode } = TextDecoder.prototype;
    TextDecoder.prototype.decode = function (...args) {
      if ((args[0]?.byteLength ?? 0) > 1e5) decoded.push('a text'); // the tests of builtins decode small texts
      return Reflect.apply(decode, this, args);
    };
    const { digest } = crypto.subtle;
    crypto.subtle.digest = (...args) => {
      if (args[1].byteLength > 1e5) decoded.push('a hash'); // hashes of scripts are smaller
      return Reflect.apply(digest, crypto.subtle, args);
    };
    const code = await connect({ ...offer, budget: { epsilon: 10, delta: 1, days: 1 }, maxDelta: 1, when: 'now' })
      .then(() => 'accepted', (/** @type {any} */ error) => error.code);
    return { code, decoded };
  }, { offer: /** @type {any} */ (server.tasks['stream']), inPlace });
}

/**
 * Returns how long the longest task in a trace kept the page's thread busy, in milliseconds of CPU time.
 * @param {Buffer} trace
 */
function longestTask(trace) {
  /** @type {{name: string, ph: string, pid: number, tid: number, tdur?: number, args: any}[]} */
  const events = JSON.parse(trace.toString()).traceEvents;
  const { pid, tid } = /** @type {any} */ (events.find(({ name, args }) => name === 'ParseHTML' &&
    args.beginData?.url.includes('/blank.html')));
  return Math.max(...events.map((e) => (e.pid === pid && e.tid === tid && e.ph === 'X' && e.tdur) || 0)) / 1000;
}

test('a page is told that the engine runs in its thread, and why', async () => {
  for (const [damage, why] of /** @type {[string, RegExp | undefined][]} */ ([['', undefined],
    ['delete globalThis.Worker', /Worker is not defined/],
    ['globalThis.Worker = class { constructor() { throw new TypeError("Trusted Types"); } }', /Trusted Types/],
    [`globalThis.Worker = class extends EventTarget {
      constructor() { super(); setTimeout(() => this.dispatchEvent(new Event('error'))); }
    }`, /a policy of the page/]])) {
    await page.reload();
    const said = page.waitForEvent('console', (message) => message.text().includes(why ? 'thread' : 'Connected'));
    if (damage) await page.evaluate(damage);
    const told = await page.evaluate(async (offer) => {
      const file = '/doona.js';
      /** @type {SDK} */
      const { connect, init } = await import(file);
      const options = { ...offer, maxEpsilon: 10, maxDelta: 1, maxTotalEpsilon: 10, spread: 0, when: 'now' };
      const doona = await connect(options);
      init({ ...options, debug: true });
      return doona.inPlace;
    }, /** @type {any} */ (server.tasks['truthful']));
    assert.deepEqual([page.workers().length, told === undefined], why ? [0, false] : [1, true]);
    const { length } = [String(told), (await said).text()].filter((text) => why?.test(text));
    assert.equal(length, why ? 2 : 0, told);
  }
});

test('the worker decodes what a relay sends, and does not block the page', async (t) => {
  for (const [variant, want] of [['junk lists', 'stream-broken'], ['junk sizes', 'task-refused']]) {
    await fetch(`${server.site}/test/stream`, { method: 'POST', body: JSON.stringify(variant) });
    for (const inPlace of [false, true]) {
      await browser.startTracing(page, { categories: ['toplevel', 'devtools.timeline'] });
      await page.reload();
      const { code, decoded } = await connectToStream(inPlace);
      const longest = longestTask(await browser.stopTracing());
      assert.deepEqual([code, inPlace ? [] : decoded], [want, []], variant);
      assert.ok(!decoded.includes('a text'), 'without a worker, the page decoded a text');
      const where = inPlace ? ', in place' : '';
      t.diagnostic(`${variant}${where}: the longest task of the page's thread took ${longest} ms of it`);
    }
  }
  const script = await (await fetch(`${server.site}/doona.js`)).text();
  assert.doesNotMatch(script, /not the shortest encoding/, 'the page script contains the msgpack decoder');
});

for (const [name, damage] of Object.entries({
  'without workers': () => {
    Reflect.deleteProperty(globalThis, 'Worker');
  },
  'where no worker may start': () => {
    globalThis.Worker = /** @type {any} */ (class { constructor() { throw new DOMException('', 'SecurityError'); } });
  },
})) {
  test(`${name} the engine runs in the page`, async () => {
    await page.evaluate(damage);
    assert.equal((await run('truthful', { values: [7] })).receipts[0].repeated, false);
    assert.deepEqual((await server.take()).map((s) => s.messages), [[['0007']]]);
    assertQuiet();
  });
}

test('a module that stopped uses up no further epoch', async () => {
  const got = await page.evaluate(async (offers) => {
    Reflect.deleteProperty(globalThis, 'Worker'); // The module then draws with the page's crypto.
    const file = '/doona.js';
    /** @type {SDK} */
    const { connect, memoryStore } = await import(file);
    const store = memoryStore();
    let claims = 0;
    /** @type {typeof store.claim} */
    const claim = (...args) => (claims++, store.claim(...args));
    const limits = { maxEpsilon: 10, maxDelta: 1, maxTotalEpsilon: 10, spread: 0, flush: false };
    const [a, b] = await Promise.all(offers.map((offer) => connect({ ...offer, ...limits,
      store: { ...store, claim } })));
    const { getRandomValues } = crypto;
    crypto.getRandomValues = (/** @type {any} */ out) => {
      if (out instanceof Uint8Array && out.length !== 16) throw new Error('as the test asked'); // The tests draw 16.
      return Reflect.apply(getRandomValues, crypto, [out]);
    };
    const codeOf = (/** @type {any} */ error) => error.code;
    const codes = [await a?.report(1).catch(codeOf)]; // both WASM modules stop
    const claimed = claims;
    codes.push(await a?.report(1).catch(codeOf), await b?.report(1).catch(codeOf));
    crypto.getRandomValues = getRandomValues;
    const later = await b?.report(1); // doona-full.wasm starts now and makes the report
    return { codes, claimed, claims, repeated: later?.repeated };
  }, /** @type {any[]} */ (['histogram', 'mean'].map((name) => server.tasks[name])));
  assert.deepEqual(got, { codes: Array(3).fill('module-failed'), claimed: 1, claims: 2, repeated: false });
});

/** Logs the visitor in as a new person. Returns a list that collects the URLs that the page requests from now on. */
async function login() {
  await fetch(`${server.site}/test/login`, { method: 'POST', body: crypto.randomUUID() });
  /** @type {string[]} */
  const asked = [];
  page.on('request', (request) => asked.push(request.url()));
  return asked;
}

/** Returns how many of the URLs are token requests. @param {string[]} urls */
const tokensOf = (urls) => urls.filter((url) => url.includes('/test/token')).length;

test('a retry, also by flush, sends the same bytes with the same token', async () => {
  const asked = await login();
  /** @type {{body: string, token: string | undefined}[]} */
  const sent = [];
  await page.route('**/reports', async (route) => {
    const request = route.request();
    if (request.method() !== 'POST') return route.continue();
    sent.push({ body: request.postDataBuffer()?.toString('hex') ?? '',
      token: (await request.allHeaders())['authorization'] });
    if (sent.length > 1) return route.continue();
    const headers = { 'Access-Control-Allow-Origin': '*', 'Access-Control-Expose-Headers': 'Retry-After',
      'Retry-After': '100' };
    return route.fulfill({ status: 503, headers, contentType: 'application/problem+json',
      body: '{"type":"urn:doona:error:overloaded"}' });
  });
  const { receipts, flushed } = await run('tokens', { values: [1], flush: true });
  assert.equal(receipts[0].code, 'not-delivered');
  assert.deepEqual(flushed, { delivered: 1, dropped: 0, waiting: 0 });
  assert.equal(sent.length, 2);
  assert.deepEqual(sent[0], sent[1]);
  assert.match(sent[0]?.token ?? '', /^PrivateToken token="[A-Za-z0-9_-]{472}"$/);
  assert.equal(tokensOf(asked), 1);
});

test('a report of an earlier visit gets its token at once, and is sent at a random time', async () => {
  const asked = await login();
  await page.route('**/test/token?*', (route) => route.fulfill({ status: 400 }));
  assert.equal((await run('tokens', { values: [1] })).receipts[0].code, 'not-delivered');
  await page.unroute('**/test/token?*');
  await page.reload();
  await page.evaluate(() => {
    const { getRandomValues } = crypto;
    crypto.getRandomValues = (/** @type {any} */ out) =>
      // The time of sending is the middle of the spread.
      out instanceof Uint32Array ? out.fill(2 ** 31) : Reflect.apply(getRandomValues, crypto, [out]);
  });
  await run('tokens', { options: { flush: true, spread: 3_600_000 } });
  while (!(await stored()).some(({ token }) => token)) await page.waitForTimeout(20);
  assert.deepEqual(asked.filter((url) => url.endsWith('/reports')), []);
  assert.deepEqual((await run('tokens', { flush: true })).flushed, { delivered: 1, dropped: 0, waiting: 0 });
  assert.equal(tokensOf(asked), 2);
});

test('a second call in the epoch asks for no second token', async () => {
  const asked = await login();
  assert.deepEqual((await run('tokens', { values: [1, 1] })).receipts.map(({ repeated }) => repeated), [false, true]);
  assert.equal(tokensOf(asked), 1);
});

test("an issuer's key that the task does not name marks nobody: no token, and the report waits", async () => {
  const asked = await login();
  await page.route('**/issuer-directory', async (route) => {
    const response = await route.fetch();
    const directory = await response.json();
    directory['token-keys'][0]['token-key'] = directory['token-keys'][0]['token-key'].replace(/.{10}(.{6})$/,
      'AAAAAAAAAA$1');
    return route.fulfill({ response, json: directory });
  });
  const { receipts, flushed } = await run('tokens', { values: [1], flush: true });
  assert.equal(receipts[0].code, 'not-delivered');
  assert.match(receipts[0].message, /not the one the task names/);
  assert.deepEqual(flushed, { delivered: 0, dropped: 0, waiting: 1 });
  assert.equal(tokensOf(asked), 0);
});

test('only pages of tasks with tokens load the script for tokens', async () => {
  const asked = await login();
  const loaded = () => asked.some((url) => url.includes('doona-tokens'));
  await run('histogram', { values: [1] });
  assert.ok(asked.some((url) => /doona-.*\.wasm/.test(url)), 'the page did not load the WASM module');
  assert.equal(loaded(), false);
  await run('tokens', { values: [1] });
  assert.equal(loaded(), true);
});

test("a report after the site's data has been cleared opens the store again", async () => {
  const outcome = await page.evaluate(async (offer) => {
    const file = '/doona.js';
    /** @type {SDK} */
    const { connect } = await import(file);
    const doona = await connect({ ...offer, maxEpsilon: 10, maxDelta: 1, maxTotalEpsilon: 10, flush: false });
    await new Promise((resolve) => (indexedDB.deleteDatabase('doona').onsuccess = resolve));
    const { repeated } = await doona.report(1);
    return [repeated, (await doona.report(1)).repeated, (await doona.flush()).waiting];
  }, /** @type {any} */ (server.tasks['truthful']));
  assert.deepEqual(outcome, [false, true, 0]);
  assert.equal((await server.take()).length, 1);
});

/**
 * Opens the site's page in nested frames.
 * @param {string[]} origins of the pages around the site's page, outermost first
 * @param {string} [attributes] attributes of each iframe
 * @returns {Promise<{frame: import('playwright-core').Frame, asked: string[]}>} and the requests to the relay
 */
async function framed(origins, attributes = '') {
  /** @type {string[]} */
  const asked = [];
  context.on('request', (request) => {
    if (request.url().startsWith(server.relay)) asked.push(request.url());
  });
  const address = origins.reduceRight((of, origin) => `${origin}/frame.html?${new URLSearchParams({ of, attributes })}`,
    `${server.site}/blank.html?ours`);
  const outer = await context.newPage();
  await outer.goto(address, { waitUntil: 'load' });
  const frame = outer.frames().find((some) => some.url().endsWith('?ours'));
  assert.ok(frame, "the site's page is not in a frame");
  return { frame, asked };
}

/** Returns an address of the test server that browsers consider another site. */
const elsewhere = () => server.site.replace('127.0.0.1', 'localhost');
/** Returns the site's own origin. */
const ours = () => server.site;

for (const [what, origins, attributes] of /** @type {[string, (() => string)[], string?][]} */ ([
  ['an advertisement on another site', [elsewhere]],
  ['an advertisement without a referrer', [elsewhere], 'referrerpolicy="no-referrer"'],
  ['an advertisement with a sandbox', [elsewhere], 'sandbox="allow-scripts allow-same-origin"'],
  ["another site's frame in a page of ours", [ours, elsewhere]],
])) {
  test(`${what} frames the honest page: nothing is sent`, async () => {
    const { frame, asked } = await framed(origins.map((origin) => origin()), attributes);
    const options = { when: 'now' };
    const { connect } = await run('its own pages', { values: [7], options, on: /** @type {any} */ (frame) });
    assert.deepEqual([connect?.code, connect?.field], ['frame-refused', 'frames']);
    assert.deepEqual(asked, []);
    assert.deepEqual(await server.take(), []);
  });
}

test('a sandboxed page has an opaque origin: nothing is sent', async () => {
  const { frame, asked } = await framed([ours()], 'sandbox="allow-scripts"');
  await frame.addScriptTag({ url: `${server.site}/doona.global.js` });
  const code = await frame.evaluate((offer) => /** @type {any} */ (globalThis).doona.connect({ ...offer,
    budget: { epsilon: 10, delta: 1, days: 1 }, when: 'now' }).catch((/** @type {any} */ error) => error.code),
  /** @type {any} */ (server.tasks['truthful']));
  assert.equal(code, 'frame-refused');
  assert.deepEqual(asked, []);
});

test("a frame in pages of the same origin reports, and in another site's if the page says so", async () => {
  const own = await framed([ours(), ours()]);
  assert.equal((await run('truthful', { values: [7], on: /** @type {any} */ (own.frame) })).receipts[0].repeated, false);
  const foreign = await framed([elsewhere()]);
  const repeated = await foreign.frame.evaluate(async (offer) => {
    const file = '/doona.js';
    /** @type {SDK} */
    const { connect, memoryStore } = await import(file); // Browsers may block storage in such a frame.
    const doona = await connect({ ...offer, maxEpsilon: 10, maxDelta: 1, maxTotalEpsilon: 10, spread: 0, when: 'now',
      store: memoryStore(), frames: true });
    return (await doona.report(7)).repeated;
  }, /** @type {any} */ (server.tasks['its own pages']));
  assert.equal(repeated, false);
  assert.equal((await server.take()).length, 2);
  const wrong = await run('truthful', { options: { frames: 'yes' } });
  assert.deepEqual([wrong.connect?.code, wrong.connect?.field], ['invalid-option', 'frames']);
});

test('the last connection that closes stops the worker, and a later one starts another', async () => {
  const outcome = await page.evaluate(async (offers) => {
    const file = '/doona.js';
    /** @type {SDK} */
    const { connect } = await import(file);
    const limits = { maxEpsilon: 10, maxDelta: 1, maxTotalEpsilon: 10, spread: 0, flush: false };
    const [a, b] = await Promise.all(offers.map((offer) => connect({ ...offer, ...limits })));
    Object.assign(globalThis, { a, b, again: () => connect({ ...offers[0], ...limits }) });
    a?.close();
    return (await b?.report(258))?.repeated;
  }, /** @type {any[]} */ (['truthful', 'one relay'].map((name) => server.tasks[name])));
  assert.equal(outcome, false);
  assert.equal(page.workers().length, 1);
  const ended = page.workers()[0]?.waitForEvent('close');
  await page.evaluate('b.close()');
  await ended;
  assert.equal(page.workers().length, 0);
  assert.equal(await page.evaluate('again().then((doona) => doona.report(7)).then(({ repeated }) => repeated)'), false);
  assert.equal(page.workers().length, 1);
  assert.deepEqual((await server.take()).map((s) => s.messages), [[['0102']], [['0007']]]);
});

test('a connection that is aborted while it starts leaves no worker', async () => {
  await page.evaluate(async (offer) => {
    const file = '/doona.js';
    /** @type {SDK} */
    const { connect } = await import(file);
    const stop = new AbortController();
    const { fetch } = globalThis;
    globalThis.fetch = (...args) => {
      if (String(args[0]).includes('/v1/tasks/')) setTimeout(() => stop.abort(), 300); // until the worker runs
      return fetch(...args);
    };
    globalThis.fetch = ((last) => (...args) => last(...args).then(async (response) => {
      if (String(args[0]).includes('/v1/tasks/')) await new Promise(() => {});
      return response;
    }))(globalThis.fetch);
    await connect({ ...offer, maxEpsilon: 10, maxDelta: 1, maxTotalEpsilon: 10, when: 'now', signal: stop.signal })
      .catch(() => {});
  }, /** @type {any} */ (server.tasks['truthful']));
  const deadline = Date.now() + 10_000;
  while (page.workers().length > 0 && Date.now() < deadline) await page.waitForTimeout(20);
  assert.equal(page.workers().length, 0);
});

test('a report that another tab forgets is not sent', async () => {
  await page.evaluate(async (offer) => {
    const file = '/doona.js';
    /** @type {SDK} */
    const { connect } = await import(file);
    const wait = globalThis.setTimeout;
    // The random time of sending is when the test calls `send`.
    let least = Infinity; // The limit of the whole call is longer.
    globalThis.setTimeout = /** @type {any} */ ((/** @type {any} */ send, /** @type {number} */ ms) => {
      if (ms < 100_000) return wait(send, ms);
      if (ms < least) Object.assign(globalThis, { send });
      least = Math.min(ms, least);
      return 0;
    });
    crypto.getRandomValues = (/** @type {any} */ out) => out.fill(2 ** 31);
    const doona = await connect({ ...offer, maxEpsilon: 10, maxDelta: 1, maxTotalEpsilon: 10, spread: 3_600_000 });
    Object.assign(globalThis, { reported: doona.report(7).then(() => 'ended', ({ code }) => code) });
  }, /** @type {any} */ (server.tasks['truthful']));
  while (!(await stored()).some(({ state }) => state === 'sealed')) await page.waitForTimeout(20);
  await page.waitForTimeout(100); // until it waits for its moment
  const { page: tab } = await open(context, `${server.site}/blank.html`);
  const dropped = await tab.evaluate(async (offer) => {
    const file = '/doona.js';
    /** @type {SDK} */
    const { connect } = await import(file);
    const doona = await connect({ ...offer, maxEpsilon: 10, maxDelta: 1, maxTotalEpsilon: 10, flush: false });
    return (await doona.forget()).reports;
  }, /** @type {any} */ (server.tasks['truthful']));
  assert.equal(dropped, 1);
  await page.evaluate('send()');
  assert.equal(await page.evaluate('reported'), 'withdrawn');
  assert.deepEqual(await server.take(), []);
  assert.deepEqual((await stored()).map(({ state }) => state), ['dropped']);
});

/** Notes what the page asks of a task, by paths after the task's id. */
function noteRequests() {
  const asked = /** @type {string[]} */ ([]);
  page.on('request', (request) => {
    const [, kind, path = ''] = /\/v1\/(tasks|blocks)\/[0-9a-f]+(.*)/.exec(request.url()) ?? [];
    if (kind && request.method() !== 'OPTIONS') asked.push(kind === 'blocks' ? `/blocks${path}` : path);
  });
  return asked;
}

const sleep = (/** @type {number} */ days) => page.clock.setSystemTime(Date.now() + days * 86_400_000);

/** Lets the page look at its clock, and waits for a request. */
async function look(/** @type {string[]} */ asked) {
  await page.clock.fastForward(30_000);
  for (let i = 0; i < 100 && asked.length === 0; i++) await page.waitForTimeout(50);
}

test('a page whose epoch had its report gets the next keys at a moment of its own, values or none', async () => {
  await page.clock.install();
  const asked = noteRequests();
  const visit = () => page.evaluate(async (offer) => {
    const file = '/doona.js';
    /** @type {SDK} */
    const { init } = await import(file);
    const client = init({ ...offer, budget: { epsilon: 20, delta: 1, days: 365 }, when: 'now' });
    Object.assign(globalThis, { client });
  }, /** @type {any} */ (server.tasks.year));
  const until = async (/** @type {string} */ state) => {
    for (let i = 0; i < 200; i++) {
      if (await page.evaluate('client.status.state') === state) return;
      await page.waitForTimeout(50);
    }
    assert.fail(String(await page.evaluate('JSON.stringify(client.status)')));
  };
  await sleep(7);
  await visit();
  await page.evaluate('client.report(1)');
  await until('reported');
  assert.ok(asked.splice(0).includes('/epochs/7/reports'));
  for (const values of [3, 0]) {
    await page.reload();
    await sleep(values ? 7 : 15);
    await visit();
    if (!values) {
      await page.evaluate('client.report(1)');
      await until('reported');
      await page.reload();
      await visit();
    }
    await until('reported');
    asked.length = 0;
    await sleep(values ? 8 : 16);
    for (let i = 0; i < values; i++) await page.evaluate('client.report(1)');
    await page.waitForTimeout(1000);
    assert.deepEqual(asked, [], 'a value asks for no keys');
    await look(asked);
    assert.deepEqual(asked[0], `/blocks/${values ? 1 : 2}`);
    if (values) await until('reported');
    assert.deepEqual(asked.slice(1), values ? ['/epochs/8/reports'] : []);
  }
  assertQuiet();
});

test("an open page gets a later block's keys at a moment of its own, and a later visit has them", async () => {
  await page.clock.install();
  const asked = noteRequests();
  const visit = () => page.evaluate(async (offer) => {
    const file = '/doona.js';
    /** @type {SDK} */
    const { connect } = await import(file);
    const doona = await connect({ ...offer, budget: { epsilon: 20, delta: 1, days: 365 }, when: 'now' });
    Object.assign(globalThis, { doona });
  }, /** @type {any} */ (server.tasks.year));
  const report = () => page.evaluate('doona.report(1).then(({ epoch }) => epoch, String)');
  await visit();
  assert.equal(await report(), 0);
  assert.deepEqual(asked.splice(0), ['', '/epochs/0/reports']);

  await sleep(8);
  const waiting = report();
  await page.waitForTimeout(1000);
  assert.deepEqual(asked, [], 'a report asks for no keys');
  await look(asked);
  assert.deepEqual(asked, ['/blocks/1']);
  assert.equal(await waiting, 8);
  assert.deepEqual(asked.splice(0), ['/blocks/1', '/epochs/8/reports']);
  await sleep(16);
  await look(asked);
  assert.deepEqual(asked.splice(0), ['/blocks/2'], 'a page asks whether it reports or not');
  assert.equal(await report(), 16);
  assert.deepEqual(asked.splice(0), ['/epochs/16/reports']);

  for (const [days, want] of /** @type {[number, string[]][]} */ ([[17, []], [25, ['/blocks/3']], [26, []]])) {
    await page.reload();
    await sleep(days);
    await visit();
    assert.deepEqual(asked.splice(0), want, `day ${days}`);
  }
  assertQuiet();
});
