// Tests init: consent, opting out, Global Privacy Control, forgetting and closing, with several tabs, reloads and the
// back-forward cache.
import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { after, afterEach, beforeEach, test } from 'node:test';

import { launch, network, open, startTestServer } from './harness.mjs';

/** @typedef {typeof import('../sdk/index.js')} SDK */
/** @typedef {import('playwright-core').Page} Page */

/** @type {Awaited<ReturnType<typeof startTestServer>>} */
let server;
/** @type {import('playwright-core').Browser} */
let browser;
/** @type {import('playwright-core').BrowserContext} */
let context;
/** @type {Page} */
let page;
/** @type {string[]} */
let complaints;
/** The requests of the context's pages, except for their HTML and doona.js. @type {string[]} */
let asked;

after(async () => {
  await browser?.close();
  await server?.stop();
});
beforeEach(async () => {
  server ??= await startTestServer();
  browser ??= await launch();
  context = await browser.newContext();
  asked = [];
  context.on('request', (request) => {
    if (!/(blank|index)\.html|\/doona\.js$/.test(request.url())) asked.push(request.url());
  });
  ({ page, complaints } = await open(context, `${server.site}/blank.html`));
  await server.take();
});
afterEach(() => context.close());

/**
 * Defines in a page the SDK's functions, `receipts`, `errors`, and `start(more)`, which calls `init` and returns the
 * client.
 * @param {object} [options] @param {{on?: Page, name?: string, offer?: object}} [more]
 */
async function prepare(options = {}, { on = page, name = 'truthful', offer = server.tasks[name] } = {}) {
  await on.evaluate(async (given) => {
    const file = '/doona.js';
    /** @type {SDK} */
    const { init, connect, memoryStore, DoonaError } = await import(file);
    /** @type {any} */
    const all = Object.assign(globalThis, { receipts: /** @type {any[]} */ ([]), errors: /** @type {any[]} */ ([]),
      connect, memoryStore, DoonaError });
    all.start = (/** @type {object} */ more) => init({ ...given, onReceipt: (receipt) => all.receipts.push(receipt),
      onError: (/** @type {any} */ error) => all.errors.push(error.code ?? String(error)), ...more });
  }, /** @type {any} */ ({ ...offer, maxEpsilon: 10, maxDelta: 1, maxTotalEpsilon: 10, spread: 0, when: 'now',
    ...options }));
}

/**
 * Calls `init` in a page, as the globals `client`, `receipts` and `errors`.
 * @param {object} [options] @param {{on?: Page, name?: string, offer?: object}} [more]
 */
async function init(options = {}, more = {}) {
  await prepare(options, more);
  await (more.on ?? page).evaluate('void (globalThis.client = start())');
}

/** Waits until the client has a state, and returns the reason. @param {string} state @param {Page} [on] */
async function reaches(state, on = page) {
  const isReached = (/** @type {string} */ want) => /** @type {any} */ (globalThis).client.status.state === want;
  await on.waitForFunction(isReached, state).catch(async () =>
    assert.fail(`${state}: ${JSON.stringify(await on.evaluate('[client.status, errors]'))}`));
  return String(await on.evaluate('client.status.reason'));
}

/** Waits for receipts: once a report of the epoch is known, `status` does not change while the next value is looked at. */
const received = (count = 1) =>
  page.waitForFunction((count) => /** @type {any} */ (globalThis).receipts.length === count, count);

/** Whether the origin has a database. @returns {Promise<boolean>} */
const hasStored = () => page.evaluate('indexedDB.databases().then((all) => all.length > 0)');

/** Waits for what the page might do, and returns the messages that arrived. @param {number} [milliseconds] */
async function messages(milliseconds = 0) {
  await new Promise((resolve) => setTimeout(resolve, milliseconds));
  return (await server.take()).map((sent) => sent.messages);
}

/** Reports a value that the relay does not get, so that it stays sealed. */
async function seal() {
  await context.route(`${server.relay}/**/reports`, (route) => route.abort());
  await init();
  await page.evaluate('client.report(7)');
  assert.match(await reaches('not-delivered'), /The sealed report leaves at the next visit/);
  await context.unroute(`${server.relay}/**/reports`);
}

/** Serves a task of the relay at the site's own origin, too. Returns its address there. */
async function host(name = 'truthful') {
  const { task = '' } = server.tasks[name] ?? {};
  const body = Buffer.from(await (await fetch(task)).arrayBuffer());
  const own = task.replace(server.relay, server.site);
  await context.route(own, (route) => route.fulfill({ body }));
  return own;
}

test('values reported before the connection stands are sent, and debug says each step but no value', async () => {
  await page.evaluate(async () => void (await import(String('/doona.js'))));
  await page.evaluate(() => { // Tests and frameworks replace fetch after the SDK has loaded.
    const { fetch } = globalThis;
    Object.assign(globalThis, { fetches: 0 });
    globalThis.fetch = (...args) => (/** @type {any} */ (globalThis).fetches++, fetch(...args));
  });
  await prepare({ debug: true });
  assert.deepEqual(await page.evaluate('globalThis.client = start(); [client.report(253), client.status.state]'),
    [undefined, 'connecting']);
  await reaches('reported');
  assert.deepEqual(await messages(), [[['00fd']]]);
  assert.equal(await page.evaluate('receipts[0].repeated'), false);
  await page.evaluate('client.report(252)');
  await received(2);
  assert.equal(await page.evaluate('receipts[1].repeated'), true);
  await page.evaluate('client.report(987)');
  assert.match(await reaches('invalid-value'), /does not take this value/);
  assert.deepEqual(await page.evaluate('[errors, Object.isFrozen(client.status)]'), [['invalid-value'], true]);
  assert.ok(await page.evaluate('fetches') >= 3);
  const said = complaints.filter((text) => !network.test(text));
  assert.ok(said.length >= 4 && said.every((text) => text.startsWith('doona: ')), String(said));
  assert.doesNotMatch(complaints.join(), /25[23]|987/);
});

test('before consent nothing is contacted and nothing is stored; optIn sends what waited', async () => {
  await init({ consent: 'pending' });
  await page.evaluate('client.report(7)');
  assert.deepEqual(await messages(500), []);
  assert.equal(await reaches('waiting-for-consent'), 'The page has not called optIn() yet.');
  assert.deepEqual(asked, []);
  assert.equal(await hasStored(), false);
  await page.evaluate('client.optIn()');
  await reaches('reported');
  assert.deepEqual(await messages(), [[['0007']]]);
  assert.deepEqual(complaints.filter((text) => !network.test(text)), []); // Chromium asks for an icon.
});

test('a first visit asks for the task once, before the store is open', async () => {
  await page.evaluate(() => {
    const events = /** @type {string[]} */ ([]);
    const { fetch } = globalThis;
    const { open } = IDBFactory.prototype;
    globalThis.fetch = (address, init) => {
      if (String(address).includes('/v1/tasks/') && init?.method !== 'POST') events.push('task');
      return fetch(address, init);
    };
    IDBFactory.prototype.open = function (name, version) {
      const opening = Reflect.apply(open, this, version === undefined ? [name] : [name, version]);
      opening.addEventListener('success', () => version && events.push('store'));
      return opening;
    };
    Object.assign(globalThis, { events });
  });
  await init();
  await page.evaluate('client.report(7)');
  await reaches('reported');
  const events = /** @type {string[]} */ (await page.evaluate('events'));
  assert.deepEqual([events[0], events.filter((what) => what === 'task').length], ['task', 1], String(events));
  const connects = (/** @type {string} */ task) => page.evaluate(async (offer) => {
    /** @type {any} */
    const { connect, events } = globalThis;
    events.length = 0;
    (await connect({ ...offer, when: 'now', maxEpsilon: 10, maxDelta: 1, maxTotalEpsilon: 100 })).close();
    return events;
  }, server.tasks[task]);
  assert.equal((await connects('histogram'))[0], 'task', 'a first visit to another task');
  assert.deepEqual((await connects('histogram')).filter((/** @type {string} */ what) => what === 'task'), []);
});

test("the README's links for a first visit are used", async () => {
  const files = await readdir(new URL('../../build/www', import.meta.url));
  const hinted = [/^doona-worker-.*\.js$/, /^doona-small-.*\.wasm$/].map((wanted) =>
    files.find((name) => wanted.test(name)));
  await page.evaluate((hinted) => {
    for (const file of hinted) {
      const link = Object.assign(document.createElement('link'),
        { rel: 'preload', as: 'fetch', crossOrigin: 'anonymous', href: `/${file}` });
      document.head.append(link);
    }
  }, hinted);
  await init();
  await page.evaluate('client.report(7)');
  await reaches('reported');
  const times = (/** @type {string} */ part) => asked.filter((url) => url.includes(part)).length;
  assert.equal(times('doona-small-'), 1);
  assert.equal(times('doona-worker-'), 2, 'the link, and the worker itself, from the cache');
});

test('a list that changes after report() is sent unchanged, and at most 16 values wait', async () => {
  await init({ consent: 'pending' }, { name: 'vector' });
  await page.evaluate(`{
    const list = Array(20).fill(0.5);
    client.report(list);
    list.length = 3;
    for (let i = 0; i < 99; i++) client.report(list);
    client.optIn();
  }`);
  await page.waitForFunction(() => {
    const { receipts, errors } = /** @type {any} */ (globalThis);
    return receipts.length + errors.length >= 16;
  });
  assert.deepEqual(await page.evaluate('[receipts.length, errors]'), [1, Array(15).fill('invalid-value')]);
  assert.equal((await messages()).length, 1);
});

test('a blocked relay: the page goes on, status says why, and the value leaves when the browser is online again',
  async () => {
    await context.route(`${server.relay}/**`, (route) => route.abort());
    await init();
    await page.evaluate('client.report(7)');
    assert.match(await reaches('task-unreachable'), /^The relay does not answer: .* blocks it\.$/);
    assert.deepEqual(await page.evaluate('errors'), ['task-unreachable']);
    await context.unroute(`${server.relay}/**`);
    await page.evaluate('client.report(8)');
    assert.deepEqual(await messages(300), [], 'another attempt came at once');
    await page.evaluate("dispatchEvent(new Event('online'))");
    await reaches('reported');
    assert.deepEqual(await messages(), [[['0007']]]);
    assert.deepEqual(complaints.filter((text) => !network.test(text)), []);
  });

test('after a failed attempt the page connects again by itself, and no value hastens that', async () => {
  await page.clock.install();
  const blocked = `${server.relay}/v1/tasks/**`;
  await context.route(blocked, (route) => route.abort());
  await init();
  await reaches('task-unreachable');
  for (let before = -1; before !== asked.length; await page.waitForTimeout(500)) before = asked.length; // The worker's.
  asked = [];
  const hour = 3_600_000;
  await page.evaluate((ahead) => { const now = Date.now; Date.now = () => now() + ahead; }, hour);
  await page.evaluate('client.report(7)');
  await page.waitForTimeout(300);
  assert.deepEqual(asked, [], 'the value made the page ask the relay');
  await context.unroute(blocked);
  await page.clock.fastForward(31_000);
  await reaches('reported');
});

test('Global Privacy Control: nothing is fetched or stored, and no value waits, until optIn', async () => {
  await page.evaluate(() => Object.defineProperty(navigator, 'globalPrivacyControl', { value: true }));
  await init();
  await page.evaluate('client.report(7)');
  assert.deepEqual(await messages(500), []);
  assert.match(await reaches('gpc'), /Global Privacy Control/);
  assert.deepEqual(asked, []);
  assert.equal(await hasStored(), false);
  await page.evaluate('client.optIn()');
  await reaches('ready');
  await page.evaluate('client.report(8)');
  await reaches('reported');
  assert.deepEqual(await messages(), [[['0008']]]);
  const strict = await page.evaluate(async (offer) => {
    const all = /** @type {any} */ (globalThis);
    const doona = await all.connect({ ...offer, maxEpsilon: 10, maxDelta: 1, maxTotalEpsilon: 10, spread: 0 });
    return (await doona.report(258)).repeated;
  }, /** @type {any} */ (server.tasks['one relay']));
  assert.equal(strict, false, 'connect does not ask for the signal');
});

test('an opt-out lasts over reloads, drops what waits and is sealed, and ends with optIn', async () => {
  await seal();
  await page.reload();
  await init({ consent: 'pending' });
  await page.evaluate('client.report(8)');
  await page.evaluate('client.optOut()');
  assert.match(await reaches('opted-out'), /opted out/);
  await page.evaluate('client.report(9)');
  for (const consent of ['granted', 'pending']) {
    await page.reload();
    asked.length = 0;
    await init({ consent });
    await page.evaluate('client.report(9)');
    await reaches('opted-out');
    assert.deepEqual(await messages(300), []);
    assert.deepEqual(asked, []);
  }
  await page.evaluate('client.optIn()');
  await reaches('reported');
  await page.evaluate('client.report(9)');
  await received();
  assert.deepEqual(await page.evaluate('receipts.map(({ repeated, bytes }) => [repeated, bytes])'), [[true, 0]],
    'the ledger keeps the epoch of the dropped report');
  assert.deepEqual(await messages(300), []);
  await page.reload();
  await init();
  await reaches('reported');
});

test('a browser that the draw leaves out has a status of its own, at later visits too', async () => {
  for (const sample of [0, 1]) { // The draw of the first visit stands.
    await init({ sample });
    await page.evaluate('client.report(7)');
    assert.match(await reaches('not-sampled'), /left this browser out of this epoch/);
    await received();
    assert.deepEqual(await page.evaluate('[errors, receipts.map(({ sampled }) => sampled)]'), [[], [false]]);
    await page.reload();
  }
  assert.deepEqual(await messages(300), []);
});

test('an opt-out before any store exists stores only itself', async () => {
  await init({ consent: 'pending' });
  await page.evaluate('client.optOut()');
  const stored = await page.evaluate(() => new Promise((resolve) => {
    const opening = indexedDB.open('doona');
    opening.onsuccess = () => {
      const all = opening.result.transaction('reports').objectStore('reports').getAll();
      all.onsuccess = () => resolve(all.result);
    };
  }));
  assert.deepEqual(stored, [{ task: 'opted out', epoch: 0, state: 'sealed' }]);
  assert.deepEqual(asked, []);
});

test('optOut and optIn in any order: the last call counts', async () => {
  await init({ consent: 'pending' });
  await page.evaluate('client.optOut(); client.optIn(); client.optOut(); client.optIn(); client.report(7);');
  await reaches('reported');
  assert.deepEqual(await messages(), [[['0007']]]);
  await page.evaluate('client.optIn(); client.optOut()');
  await page.reload();
  await init();
  await reaches('opted-out');
});

test('a report that was sealed before a reload: explain() before consent sends nothing to the relay', async () => {
  const task = await host();
  await seal();
  await page.reload();
  await server.requests();
  asked.length = 0;
  await init({ consent: 'pending', task });
  const text = await page.evaluate('client.explain().then(({ text }) => text)');
  assert.match(String(text), /differential privacy with epsilon/);
  assert.deepEqual(await messages(500), []);
  // The relays themselves ask each other for the time and for new batches.
  const others = (await server.requests()).filter(({ path }) => !/\/time$|\/updates\//.test(path));
  assert.deepEqual(others, []);
  assert.deepEqual(asked.filter((url) => url.startsWith(server.relay)), []);
  await page.evaluate('client.optIn()');
  await reaches('ready');
  assert.deepEqual(await messages(1000), [[['0007']]], 'consent sends the sealed report');
});

test('explain() before consent stores nothing, and a task at the relay cannot be explained', async () => {
  await init({ consent: 'pending' });
  assert.equal(await page.evaluate('client.explain()'), undefined);
  assert.deepEqual(asked, []);
  await page.evaluate('client.close()');
  await init({ consent: 'pending', task: await host() });
  const { decided, text } = await page.evaluate(`client.explain().then((all) =>
    ({ text: all.text, decided: all.unverified.map(({ name }) => name) }))`);
  assert.ok(!decided.includes('page'), 'the worker will decide about the budget');
  assert.equal(await hasStored(), false);
  await page.evaluate('client.optIn()');
  await reaches('ready');
  assert.equal(await page.evaluate('client.explain().then(({ text }) => text)'), text);
  const ended = page.workers()[0]?.waitForEvent('close');
  await page.evaluate('client.close()');
  await ended;
  assert.equal(page.workers().length, 0);
  assert.equal(await page.evaluate('client.explain()'), undefined);
});

test('forget drops a value that waits and a sealed report, and says that the ledger stays', async () => {
  await seal();
  await page.reload();
  await init({ consent: 'pending' });
  await page.evaluate('client.report(8)');
  const { reports, text } = await page.evaluate('client.forget()');
  assert.equal(reports, 1);
  assert.match(text, /^Dropped 1 value that waited, and 1 sealed report that was not delivered\. The ledger stays: /);
  await page.evaluate('client.optIn()');
  await reaches('reported');
  assert.deepEqual(await messages(500), []);
  await page.evaluate('client.report(9)');
  await received();
  assert.equal(await page.evaluate('receipts[0].repeated'), true);
  assert.deepEqual(await messages(), []);
});

test('forget on a page that reports: the report that waits for its moment is not sent', async () => {
  await reportLater(page);
  assert.equal((await page.evaluate('client.forget()')).reports, 1);
  await page.waitForFunction(() => /** @type {any} */ (globalThis).client.status.state !== 'sending');
  assert.deepEqual(await page.evaluate('errors'), []);
  await page.close({ runBeforeUnload: true });
  assert.deepEqual(await messages(1000), []);
});

/** Reports with a random moment in the middle of `spread`, and waits until the report is sealed. @param {Page} on */
async function reportLater(on, spread = 3_600_000) {
  await on.evaluate(() => {
    crypto.getRandomValues = (/** @type {any} */ out) => out.fill(2 ** 31);
  });
  await init({ spread }, { on });
  await on.evaluate('client.report(7)');
  await reaches('sending', on);
  const id = String(server.tasks['truthful']?.task.split('/').at(-1));
  const sealed = (/** @type {string} */ task) => new Promise((resolve) => {
    const opening = indexedDB.open('doona');
    opening.onsuccess = () => {
      const all = opening.result.transaction('reports').objectStore('reports').getAll();
      all.onsuccess = () => {
        opening.result.close();
        resolve(all.result.some((report) => report.task === task && report.state === 'sealed'));
      };
    };
  });
  while (!(await on.evaluate(sealed, id))) await on.waitForTimeout(20);
}

test('two tabs: one opts out, and the report that waits in the other is not sent when it closes', async () => {
  await reportLater(page);
  const { page: tab } = await open(context, `${server.site}/blank.html`);
  await init({ consent: 'pending' }, { on: tab });
  await tab.evaluate('client.optOut()');
  await reaches('opted-out');
  assert.equal(page.workers().length, 0);
  await page.close({ runBeforeUnload: true });
  assert.deepEqual(await messages(1000), []);
  const { page: third } = await open(context, `${server.site}/blank.html`);
  await init({}, { on: third });
  await reaches('opted-out', third);
  await tab.evaluate('client.optIn()');
  await reaches('reported', third); // The dropped report was this epoch's.
});

test('without a channel between tabs, the store tells of the opt-out before a report leaves', async () => {
  await page.evaluate('delete globalThis.BroadcastChannel');
  await init();
  await reaches('ready');
  const { page: tab } = await open(context, `${server.site}/blank.html`);
  await init({ consent: 'pending' }, { on: tab });
  await tab.evaluate('client.optOut()');
  assert.equal(await page.evaluate('client.status.state'), 'ready');
  await page.evaluate('client.report(7)');
  await reaches('opted-out');
  assert.deepEqual(await messages(500), []);
});

test('close during a request ends it and all else, and may be called twice', async () => {
  const held = page.waitForRequest(/\/v1\/tasks\//);
  await context.route(/\/v1\/tasks\//, () => {});
  await init();
  await page.evaluate('client.report(7)');
  const request = await held;
  const failed = page.waitForEvent('requestfailed', (one) => one === request);
  await page.evaluate('client.close(); client.close()');
  await failed;
  await reaches('closed');
  await context.unroute(/\/v1\/tasks\//);
  const requests = asked.length;
  await page.evaluate(`client.report(8); client.optIn(); client.optOut();
    dispatchEvent(new Event('online')); dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }));`);
  const deadline = Date.now() + 10_000;
  while (page.workers().length > 0 && Date.now() < deadline) await page.waitForTimeout(20);
  assert.equal(page.workers().length, 0);
  assert.deepEqual(await messages(300), []);
  assert.equal(asked.length, requests);
  assert.deepEqual(await page.evaluate('errors'), []);
  await page.reload();
  await init();
  await reaches('opted-out'); // optOut() works after close().
});

test('the back-forward cache: a closed client stays closed, and an open one notices an opt-out', async () => {
  const alive = await launch({ ignoreDefaultArgs: ['--disable-back-forward-cache'] });
  try {
    const tabs = await alive.newContext();
    for (const closes of [true, false]) {
      const { page: tab } = await open(tabs, `${server.site}/blank.html`);
      await init({}, { on: tab });
      await reaches('ready', tab);
      await tab.evaluate(`addEventListener('pageshow', ({ persisted }) => { globalThis.persisted = persisted; })`);
      if (closes) await tab.evaluate('client.close()');
      await tab.goto(`${server.site}/index.html`);
      if (!closes) {
        const { page: other } = await open(tabs, `${server.site}/blank.html`);
        await init({ consent: 'pending' }, { on: other });
        await other.evaluate('client.optOut()');
      }
      await tab.goBack({ waitUntil: 'commit' });
      await tab.waitForFunction(() => /** @type {any} */ (globalThis).persisted !== undefined);
      assert.equal(await tab.evaluate('persisted'), true, closes ? 'closed' : 'open');
      await tab.evaluate('client.report(7)');
      await reaches(closes ? 'closed' : 'opted-out', tab);
      assert.deepEqual(await messages(300), []);
    }
  } finally {
    await alive.close();
  }
});

for (const [state, options, more] of /** @type {[string, object, object][]} */ ([
  ['task-ended', {}, { name: 'ended' }], ['epoch-not-open', {}, { name: 'future' }],
  ['task-refused', {}, { name: 'unsigned' }], ['claim-refused', {}, { name: 'lie' }],
  ['epsilon-too-large', { maxEpsilon: 1 }, {}], ['module-failed', { modules: '/nowhere/' }, {}],
])) {
  test(`status and onError tell of ${state}, and nothing is thrown`, async () => {
    await init(options, more);
    await page.evaluate('client.report(1)');
    assert.ok((await reaches(state)).length > 10);
    assert.deepEqual(await page.evaluate('errors'), [state]);
    assert.deepEqual(await messages(), []);
    assert.deepEqual(complaints.filter((text) => !network.test(text)), []);
  });
}

test('status tells of a budget that is used up', async () => {
  await init({ maxEpsilon: 1, maxTotalEpsilon: 1 }, { name: 'one relay' });
  await page.evaluate('client.report(258)');
  await reaches('reported');
  await page.evaluate('client.close()');
  await init({ maxEpsilon: 1, maxTotalEpsilon: 1 }, { name: 'three relays' });
  await page.evaluate('client.report(1)');
  assert.match(await reaches('budget-exceeded'), /used up/);
});

test('where storage is blocked nothing is asked of a relay, and status says so', async () => {
  await page.evaluate(() => Object.defineProperty(globalThis, 'indexedDB',
    { get() { throw new DOMException('as a browser that blocks cookies', 'SecurityError'); } }));
  await init();
  await page.evaluate('client.report(7)');
  assert.match(await reaches('storage-unavailable'), /stores nothing/);
  await page.evaluate('client.optOut()');
  await reaches('opted-out');
  assert.deepEqual(asked, []);
});

test('a broken builtin is an error of status, not of init', async () => {
  const state = await page.evaluate(async (offer) => {
    const file = '/doona.js';
    /** @type {SDK} */
    const { init } = await import(file);
    const { at } = Array.prototype;
    Array.prototype.at = () => 0;
    /** @type {any[]} */
    const errors = [];
    const client = init({ ...offer, maxEpsilon: 10, maxDelta: 1, maxTotalEpsilon: 10,
      onError: (/** @type {any} */ error) => errors.push(error.code) });
    Array.prototype.at = at;
    client.report(7);
    await new Promise((resolve) => setTimeout(resolve, 300));
    return [client.status.state, ...errors];
  }, /** @type {any} */ (server.tasks['truthful']));
  assert.deepEqual(state, ['builtin-broken', 'builtin-broken']);
  assert.deepEqual(asked, []);
});

test('a faulty option is thrown by its name', async () => {
  const refused = await page.evaluate(async (offer) => {
    const file = '/doona.js';
    /** @type {SDK} */
    const { init } = await import(file);
    const good = { ...offer, maxEpsilon: 10, maxDelta: 1, maxTotalEpsilon: 10 };
    return [{ consent: 'yes' }, { onError: 1 }, { onReceipt: 'f' }, { debug: 1 }, { consnet: 'pending' }, { owner: 'x' }]
      .map((wrong) => {
        try {
          return init(/** @type {any} */ ({ ...good, ...wrong })).status;
        } catch (/** @type {any} */ error) {
          return [error.code, error.field, error.message.includes('did you mean consent?')];
        }
      });
  }, /** @type {any} */ (server.tasks['truthful']));
  assert.deepEqual(refused, ['consent', 'onError', 'onReceipt', 'debug', 'consnet', 'owner'].map((name) =>
    ['invalid-option', name, name === 'consnet']));
  assert.deepEqual(asked, []);
});

test('a callback that throws is the page\'s own error, and stops nothing', async () => {
  await init({}, {});
  await page.evaluate('client.close()');
  await page.evaluate(async (offer) => {
    const file = '/doona.js';
    /** @type {SDK} */
    const { init } = await import(file);
    Object.assign(globalThis, { client: init({ ...offer, maxEpsilon: 10, maxDelta: 1, maxTotalEpsilon: 10, spread: 0,
      when: 'now', onReceipt: () => { throw new Error('of the page'); } }) });
  }, /** @type {any} */ (server.tasks['truthful']));
  await page.evaluate('client.report(7)');
  await reaches('reported');
  await page.evaluate('client.report(8)');
  const thrown = () => complaints.filter((text) => !network.test(text));
  for (const end = Date.now() + 10_000; thrown().length < 2 && Date.now() < end;) await page.waitForTimeout(20);
  assert.deepEqual(await messages(), [[['0007']]]);
  assert.deepEqual(thrown(), Array(2).fill('Error: of the page'));
});

test('explain() speaks the language of the page', async () => {
  await init({ consent: 'pending', task: await host() });
  await page.evaluate("document.documentElement.lang = 'de-CH'");
  const notice = await page.evaluate('client.explain()');
  assert.equal(notice.language, 'de');
  assert.match(notice.text, /^Ihre Antwort auf „/);
  assert.equal((await page.evaluate("client.explain({ language: 'fr' })")).language, 'fr');
});

test('an optIn() that is slow does not erase a newer opt-out of another tab', async () => {
  await prepare({ consent: 'pending' });
  const stored = await page.evaluate(async () => {
    const { memoryStore, start } = /** @type {any} */ (globalThis);
    const store = memoryStore();
    await store.put({ task: 'opted out', epoch: 0, state: 'sealed' });
    const other = start({ store });
    let writes = 0;
    const put = async (/** @type {any} */ report) => {
      if (report.state === 'dropped' && writes++ === 0) {
        await other.optOut();
        await new Promise((resolve) => setTimeout(resolve, 300)); // The message arrives.
      }
      return store.put(report);
    };
    await start({ store: { ...store, put } }).optIn();
    return [writes, (await store.sealed('opted out')).length];
  });
  assert.deepEqual(stored, [1, 1]);
});

test('a browser that refuses channels between tabs still reports', async () => {
  await page.evaluate(() => Object.assign(globalThis, { BroadcastChannel: class {
    constructor() { throw new DOMException('as Firefox, where cookies are blocked', 'SecurityError'); }
  } }));
  await init();
  await page.evaluate('client.report(7); client.forget(); client.report(7)');
  await reaches('reported');
  assert.deepEqual(await messages(), [[['0007']]]);
});

test('a report stays sealed while the opt-out cannot be read, and leaves once it can', async () => {
  await prepare();
  await page.evaluate(() => {
    /** @type {any} */
    const all = globalThis;
    const store = all.memoryStore();
    all.client = all.start({ store: { ...store,
      update: async (/** @type {any[]} */ ...args) => {
        const report = await store.update(...args);
        if (report?.state === 'sealed') all.broken ??= true;
        return report;
      },
      sealed: async (/** @type {string} */ task) => {
        if (all.broken && task === 'opted out') throw new all.DoonaError('storage-unavailable', 'for a moment');
        return store.sealed(task);
      } } });
    all.client.report(7);
  });
  await reaches('storage-unavailable');
  assert.deepEqual(await messages(300), []);
  await page.evaluate('broken = false; client.report(8)');
  await reaches('reported');
  assert.deepEqual(await messages(), [[['0007']]]);
});

test('a second value of an epoch does not bring forward the moment of the report', async () => {
  await reportLater(page);
  await page.evaluate(() => {
    crypto.getRandomValues = (/** @type {any} */ out) => out.fill(0);
  });
  await page.evaluate('client.report(8)');
  assert.deepEqual(await messages(1000), []);
  assert.equal(await page.evaluate('client.status.state'), 'sending');
});

test('another tab forgets the report, without a channel: there is no receipt', async () => {
  await page.evaluate('delete globalThis.BroadcastChannel');
  await reportLater(page, 20_000);
  const { page: tab } = await open(context, `${server.site}/blank.html`);
  await init({ consent: 'pending' }, { on: tab });
  assert.equal((await tab.evaluate('client.forget()')).reports, 1);
  await reaches('ready');
  assert.deepEqual(await page.evaluate('[receipts, errors]'), [[], []]);
  assert.deepEqual(await messages(), []);
});

test('another tab forgets the report: it is not sent when the page closes', async () => {
  await reportLater(page);
  const { page: tab } = await open(context, `${server.site}/blank.html`);
  await tab.evaluate("new BroadcastChannel('doona consent').postMessage('anything else')");
  await init({ consent: 'pending' }, { on: tab });
  assert.equal(await page.evaluate('client.status.state'), 'sending');
  await tab.evaluate('client.forget()');
  await reaches('ready');
  await page.close({ runBeforeUnload: true });
  assert.deepEqual(await messages(1000), []);
});

test('a report that a tab sealed during an opt-out is dropped by the next optIn', async () => {
  await seal();
  const put = (/** @type {any[]} */ rows) => new Promise((resolve) => {
    const opening = indexedDB.open('doona');
    opening.onsuccess = () => {
      const tx = opening.result.transaction('reports', 'readwrite');
      const reports = tx.objectStore('reports');
      for (const row of rows) reports.put({ ...row, body: new Uint8Array(row.body) });
      const all = reports.getAll();
      tx.oncomplete = () => {
        opening.result.close();
        resolve(all.result.filter(({ state, body }) => state === 'sealed' && body).map((row) => ({ ...row,
          body: [...row.body] })));
      };
    };
  });
  const id = String(server.tasks['truthful']?.task.split('/').at(-1));
  const rows = /** @type {any[]} */ (await page.evaluate(put, [])).filter(({ task }) => task === id);
  assert.equal(rows.length, 1);
  await page.evaluate('client.optOut()');
  await page.evaluate(put, rows);
  await page.evaluate('client.optIn()');
  await reaches('reported');
  assert.deepEqual(await messages(1000), []);
});

test('close while a module loads stops the worker at once, and nothing is stored later', async () => {
  const wasm = /doona-(small-)?[0-9a-f]+\.wasm$/;
  /** @type {() => void} */
  let release = () => {};
  await context.route(wasm, async (route) => {
    await new Promise((resolve) => (release = () => resolve(undefined)));
    await route.continue();
  });
  await prepare();
  const held = page.waitForRequest(wasm);
  await page.evaluate(() => {
    /** @type {any} */
    const all = globalThis;
    const store = all.memoryStore();
    all.puts = [];
    all.client = all.start({ store: { ...store, put: (/** @type {any} */ report) => {
      all.puts.push(report.task);
      return store.put(report);
    } } });
  });
  await held;
  await page.waitForTimeout(500); // The task is there; only the module is missing.
  await page.evaluate('client.close()');
  const deadline = Date.now() + 5000;
  while (page.workers().length > 0 && Date.now() < deadline) await page.waitForTimeout(20);
  assert.equal(page.workers().length, 0);
  release();
  await page.waitForTimeout(500);
  assert.deepEqual(await page.evaluate('puts'), []);
});

test('another tab opts out while this one connects, without a channel', async () => {
  await page.evaluate('delete globalThis.BroadcastChannel');
  const asks = page.waitForRequest(/\/v1\/tasks\//);
  /** @type {() => void} */
  let release = () => {};
  await context.route(/\/v1\/tasks\//, async (route) => {
    await new Promise((resolve) => (release = () => resolve(undefined)));
    await route.continue();
  });
  await init();
  await asks;
  const { page: tab } = await open(context, `${server.site}/blank.html`);
  await init({ consent: 'pending' }, { on: tab });
  await tab.evaluate('client.optOut()');
  release();
  await reaches('opted-out');
});

test('explain() before consent asks no other server for the files of the SDK', async () => {
  await init({ consent: 'pending', task: await host(), modules: `${server.relay}/files/` });
  assert.equal(await page.evaluate('client.explain()'), undefined);
  assert.deepEqual(asked, []);
});

test('report() throws for no value, and errors without a code say nothing of theirs', async () => {
  await prepare({ consent: 'pending' });
  const reason = await page.evaluate(() => {
    /** @type {any} */
    const all = globalThis;
    all.client = all.start();
    const detached = new Float64Array(1);
    structuredClone(detached.buffer, { transfer: [detached.buffer] });
    const { proxy, revoke } = Proxy.revocable([], {});
    revoke();
    for (const value of [new DataView(new ArrayBuffer(8)), detached, proxy, Array(65537).fill(0)]) {
      all.client.report(value);
    }
  });
  assert.equal(reason, undefined);
  assert.deepEqual(await page.evaluate('errors'), Array(4).fill('invalid-value'));
  await page.evaluate(`globalThis.client = start({ consent: 'granted', store: { ...memoryStore(),
    sealed: () => Promise.reject(new Error('a secret')) } })`);
  assert.doesNotMatch(await reaches('failed'), /secret/);
});

test('close after a failed connection stops the worker', async () => {
  await init({}, { name: 'unsigned' });
  await reaches('task-refused');
  assert.equal(page.workers().length, 1);
  await page.evaluate('client.close()');
  const deadline = Date.now() + 5000;
  while (page.workers().length > 0 && Date.now() < deadline) await page.waitForTimeout(20);
  assert.equal(page.workers().length, 0);
});

test('close between the claim of an epoch and its seal: the report is sealed for the next visit', async () => {
  await prepare();
  const states = await page.evaluate(async () => {
    /** @type {any} */
    const all = globalThis;
    const store = all.memoryStore();
    /** @type {string[]} */
    const states = [];
    const client = all.start({ store: { ...store,
      claim: async (/** @type {any[]} */ ...args) => {
        const old = await store.claim(...args);
        client.close();
        return old;
      },
      update: async (/** @type {any[]} */ ...args) => {
        const report = await store.update(...args);
        if (report?.body) states.push(report.state);
        return report;
      } } });
    client.report(7);
    const end = performance.now() + 10_000;
    while (states.length === 0 && performance.now() < end) await new Promise((resolve) => setTimeout(resolve, 20));
    return states;
  });
  assert.deepEqual(states, ['sealed']);
  const deadline = Date.now() + 5000;
  while (page.workers().length > 0 && Date.now() < deadline) await page.waitForTimeout(20);
  assert.equal(page.workers().length, 0);
});

test('optIn() before a stored opt-out is read: values from before are dropped', async () => {
  await init({ consent: 'pending' });
  await page.evaluate('client.optOut()');
  await page.reload();
  await prepare({ consent: 'pending' });
  await page.evaluate('globalThis.client = start(); client.report(7); void client.optIn(); client.report(8)');
  await reaches('reported');
  assert.deepEqual(await messages(), [[['0008']]]);
});
