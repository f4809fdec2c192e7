// Tests what page views after the first one do: nothing if the epoch has its report, retries with pauses, and drafts,
// which a later value replaces until the visitor leaves the site.
import assert from 'node:assert/strict';
import { after, afterEach, beforeEach, test } from 'node:test';

import { closeTab, launch, long, open, patience, startTestServer } from './harness.mjs';

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
/** The requests of the context's pages, except for their HTML and doona.js. @type {string[]} */
let asked;

after(async () => {
  await browser?.close();
  await server?.stop();
});
beforeEach(async () => {
  server ??= await startTestServer();
  browser ??= await launch();
  await newVisitor();
});
afterEach(() => context.close());

/** Opens a page as a visitor who has not been here. */
async function newVisitor() {
  context = await browser.newContext();
  asked = [];
  context.on('request', (request) => {
    if (!/(blank|index)\.html|\/doona\.js$|favicon/.test(request.url())) asked.push(request.url());
  });
  ({ page } = await open(context, `${server.site}/blank.html`));
  await server.take();
}

/** A task whose relays add all the noise, and one whose clients randomize. */
const noisy = 'year, noise by relays';
const randomized = 'truthful';

/**
 * Imports the SDK in a page and defines `receipts`, `errors` and `start(more)`, which calls `init`.
 * @param {string} name @param {object} [options] @param {Page} [on]
 */
async function prepare(name, options = {}, on = page) {
  await on.evaluate(async (given) => {
    const file = '/doona.js';
    /** @type {SDK} */
    const { init, connect, memoryStore } = await import(file);
    /** @type {any} */
    const all = Object.assign(globalThis, { receipts: /** @type {any[]} */ ([]), errors: /** @type {any[]} */ ([]),
      connect, memoryStore, given });
    all.start = (/** @type {object} */ more) => init({ ...given, onReceipt: (receipt) => all.receipts.push(receipt),
      onError: (/** @type {any} */ error) => all.errors.push(error.code ?? String(error)), ...more });
  }, /** @type {any} */ ({ ...server.tasks[name], maxEpsilon: 100, maxDelta: 1, maxTotalEpsilon: 100, spread: 0,
    when: 'now', ...options }));
}

/** Calls `init` as the global `client`. @param {string} name @param {object} [options] @param {Page} [on] */
async function init(name, options = {}, on = page) {
  await prepare(name, options, on);
  await on.evaluate('void (globalThis.client = start())');
}

/** Waits until the client has a state. @param {string} state @param {Page} [on] */
async function reaches(state, on = page) {
  const isReached = (/** @type {string} */ want) => /** @type {any} */ (globalThis).client.status.state === want;
  await on.waitForFunction(isReached, state).catch(async () =>
    assert.fail(`${state}: ${JSON.stringify(await on.evaluate('[client.status, errors]'))}`));
}

/** Waits until an expression is true in a page, whose policy forbids waitForFunction to evaluate it. */
async function until(/** @type {string} */ expression, on = page) {
  const end = Date.now() + patience;
  while (!(await on.evaluate(expression))) {
    if (Date.now() > end) assert.fail(`${expression}: ${JSON.stringify(await on.evaluate('[client.status, errors]'))}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Reports values as drafts, one after the other. @param {number[]} values @param {Page} [on] */
async function draft(values, on = page) {
  for (const value of values) {
    const state = await on.evaluate(`client.report(${value}, { final: false }); client.status.state`);
    assert.notEqual(state, 'draft', 'a value waits');
    await until('!["sending", "connecting"].includes(client.status.state)', on);
    await reaches('draft', on);
  }
}

/** Hides a page. Headless Chromium never hides one, so the page dispatches the event itself. @param {Page} [on] */
async function hide(on = page) {
  await on.evaluate(() => {
    Object.defineProperty(document, 'visibilityState', { value: 'hidden', configurable: true });
    document.dispatchEvent(new Event('visibilitychange', { bubbles: true }));
  });
}

/** Goes on to another page of the site, as a visitor does who follows a link. */
async function goOn() {
  const loaded = page.waitForEvent('load');
  await page.evaluate((name) => (location.href = `/blank.html?${name}`), String(Math.random()));
  await loaded;
}

/** Returns what has arrived after a while. @param {number} [milliseconds] */
async function arrived(milliseconds = 300) {
  await new Promise((resolve) => setTimeout(resolve, milliseconds));
  return server.take();
}

/** Returns the messages that have arrived after a while. @param {number} [milliseconds] */
const messages = async (milliseconds = 300) => (await arrived(milliseconds)).map((sent) => sent.messages);

/** Returns the rows of the database that concern a task, and the lines of the ledger. @param {string} name */
async function stored(name, on = page) {
  const { task, stream } = /** @type {any} */ (server.tasks[name]);
  const id = (task ?? stream).split('/').at(-1);
  return on.evaluate((id) => new Promise((/** @type {(found: {reports: any[], lines: any[]}) => void} */ resolve) => {
    const opening = indexedDB.open('doona');
    opening.onsuccess = () => {
      const tx = opening.result.transaction(['reports', 'lines']);
      const [reports, lines] = [tx.objectStore('reports').getAll(), tx.objectStore('lines').getAll()];
      tx.oncomplete = () => {
        opening.result.close();
        resolve({ reports: reports.result.filter(({ task }) => task === id), lines: lines.result });
      };
    };
  }), id);
}

/** Waits until a task has another draft than `old`, and returns it. @param {string} name @param {string} [old] */
async function waitForDraft(name, old) {
  await until('client.status.state !== "connecting"'); // Before, there may be no database.
  for (const end = Date.now() + patience; Date.now() < end;) {
    const { reports: [report] } = await stored(name);
    const body = report?.body && Buffer.from(Object.values(report.body)).toString('hex');
    if (body && body !== old) return body;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return assert.fail('no draft is sealed');
}

/** Returns what the verifier would count of the reports with rare events that have arrived since the last call. */
async function letters() {
  const got = await fetch(`${server.site}/test/letters`, { method: 'POST' });
  return /** @type {{letter: number, body: string}[]} */ (await got.json());
}

/** Lets a page's clock differ by a number of milliseconds. @param {number} by @param {Page} [on] */
const turnClock = (by, on = page) => on.evaluate((by) => {
  const { now } = Date;
  Date.now = () => now() + by;
}, by);

/** Returns the milliseconds of CPU time of a page's main thread. @param {import('playwright-core').CDPSession} cdp */
async function busy(cdp) {
  const { metrics } = await cdp.send('Performance.getMetrics');
  return 1000 * Number(metrics.find(({ name }) => name === 'TaskDuration')?.value);
}

test('a second page view of an epoch makes no request and starts no worker', async () => {
  await init(randomized);
  await page.evaluate('client.report(7)');
  await reaches('reported');
  await messages(0);
  /** @type {number[]} */
  const costs = [];
  for (let view = 0; view < 5; view++) {
    await page.reload();
    const cdp = await context.newCDPSession(page);
    await cdp.send('Performance.enable', { timeDomain: 'threadTicks' });
    await prepare(randomized);
    asked = [];
    const before = await busy(cdp);
    await page.evaluate(() => new Promise((resolve) => {
      /** @type {any} */
      const all = globalThis;
      const onReceipt = (/** @type {any} */ receipt) => resolve(all.receipts.push(receipt));
      all.client = all.start({ onReceipt });
      all.client.report(8);
    }));
    costs.push(await busy(cdp) - before);
    assert.equal(await page.evaluate('client.status.state'), 'reported');
    const [receipt] = await page.evaluate('receipts');
    assert.deepEqual([receipt.epoch, receipt.repeated, receipt.bytes], [0, true, 0]);
    assert.ok(await page.evaluate('receipts[0].next > new Date()'));
  }
  await page.waitForTimeout(500);
  assert.deepEqual(asked, []);
  assert.equal(page.workers().length, 0);
  console.log(`CPU of the page for a second view, in ms: ${costs.map((cost) => cost.toFixed(1)).join(', ')}`);
  await page.evaluate('client.explain()');
  assert.ok(asked.length > 0, 'explain() needs the task');
});

test('a second page view makes no request for a stream either, until the next epoch begins', async () => {
  await fetch(`${server.site}/test/stream`, { method: 'POST', body: '"good"' });
  await init('stream');
  await page.evaluate('client.report(1)');
  await reaches('reported');
  await page.reload();
  asked = [];
  await init('stream');
  await reaches('reported');
  await page.waitForTimeout(300);
  assert.deepEqual([asked, page.workers().length], [[], 0]);
  const { lines: [{ latest, length }] } = await stored('stream');
  await page.reload();
  await turnClock(1000 * (latest.start + length) - Date.now() + 1000);
  await init('stream');
  await until('client.status.state !== "connecting"');
  assert.notEqual(await page.evaluate('client.status.state'), 'reported');
  assert.ok(asked.length > 0);
});

test('a report of a relay that is down is tried once a view, then not at all, and leaves once online', async () => {
  await server.fail('hostile-name'); // It says Retry-After: 60, so there is no second attempt.
  await init(randomized);
  await page.evaluate('client.report(7)');
  await reaches('not-delivered');
  assert.equal((await messages()).length, 1);
  await server.fail('overloaded', 'overloaded', 'overloaded', 'overloaded');
  await page.reload();
  await init(randomized);
  assert.equal((await messages(2000)).length, 1);
  await page.reload();
  asked = [];
  await init(randomized);
  await page.evaluate('client.report(8)');
  await reaches('not-delivered');
  assert.deepEqual(await messages(1000), []);
  assert.deepEqual([asked, page.workers().length], [[], 0]);
  const { reports: [report] } = await stored(randomized);
  assert.equal(report.failed, 2);
  const wait = report.retryAt - Date.now();
  assert.ok(wait > 0 && wait <= 60_000, `${wait} ms`);
  await server.fail();
  await page.evaluate("dispatchEvent(new Event('online'))");
  await reaches('ready');
  assert.deepEqual(await messages(1000), [[['0007']]]);
  assert.deepEqual((await stored(randomized)).reports.map(({ state }) => state), ['delivered']);
});

test('connect: a report that was not delivered leaves once the browser is online again', async () => {
  await prepare(randomized);
  await server.fail('hostile-name');
  const code = await page.evaluate(async () => {
    const { connect, given } = /** @type {any} */ (globalThis);
    const doona = await connect(given);
    return doona.report(7).then(() => '', (/** @type {any} */ error) => error.code);
  });
  assert.equal(code, 'not-delivered');
  assert.equal((await messages()).length, 1);
  await page.evaluate("dispatchEvent(new Event('online'))");
  assert.deepEqual(await messages(1000), [[['0007']]]);
});

test('a provisional value is refused by name where clients randomize, and nothing is used up', async () => {
  await init(randomized);
  await page.evaluate('client.report(7, { final: false })');
  await reaches('invalid-option');
  assert.match(await page.evaluate('client.status.reason'), /invalid final false: .*clients of this task randomize/);
  await page.evaluate('client.report(8)');
  await reaches('reported');
  assert.deepEqual(await messages(), [[['0008']]]);
});

test('drafts: only the last value leaves, once, when the page is hidden', async () => {
  await init(noisy);
  await draft([1, 2, 3]);
  assert.deepEqual(await messages(), []);
  const { reports: [{ tags, body, leaveAt }], lines: [line] } = await stored(noisy);
  assert.ok(tags && body && leaveAt > Date.now() && line.runs.length === 1);
  await hide();
  await reaches('reported');
  assert.deepEqual(await messages(), [[['03']]]);
  assert.deepEqual(await page.evaluate('receipts.map(({ epoch, repeated }) => [epoch, repeated])'), [[0, false]]);
  const { reports: [left] } = await stored(noisy);
  assert.deepEqual(left, { task: left.task, epoch: 0, state: 'delivered' }, 'its tags are deleted');
  await page.evaluate('client.report(4, { final: false })');
  await until('receipts.length === 2');
  assert.equal(await page.evaluate('receipts[1].repeated'), true);
  assert.deepEqual(await messages(), []);
});

test('with rare events, a visitor without one and a visitor with one leave a report each, of one size', async () => {
  const sizes = /** @type {number[]} */ ([]);
  for (const value of [0, 1]) {
    await newVisitor();
    await init('events');
    let body = await waitForDraft('events');
    if (value) {
      await page.evaluate('client.report(1)');
      body = await waitForDraft('events', body);
    }
    assert.deepEqual(await letters(), []);
    await hide();
    await new Promise((resolve) => setTimeout(resolve, 300));
    const [left, ...others] = await letters();
    assert.deepEqual([left?.letter, left?.body, others], [value, body, []]);
    sizes.push(body.length);
  }
  assert.equal(sizes[0], sizes[1]);
});

test('drafts of two tabs have the same tags in every layer, and different bytes', async () => {
  const { page: tab } = await open(context, `${server.site}/blank.html`);
  await init(noisy);
  await draft([1]);
  await init(noisy, {}, tab);
  await reaches('draft', tab);
  await draft([2], tab);
  await hide();
  await hide(tab);
  const all = await arrived(1000);
  assert.deepEqual(all.map(({ messages }) => messages).sort(), [[['01']], [['02']]], 'in whichever order');
  const [first, second] = all;
  assert.deepEqual(first?.tags, second?.tags);
  assert.equal(new Set(first?.tags).size, 3, 'a tag for each hop');
  assert.notEqual(first?.body, second?.body);
});

test('a draft that left with its page is not replaced by a later page of the epoch, which may send it again', async () => {
  const alive = await launch({ ignoreDefaultArgs: ['--disable-back-forward-cache'] });
  try {
    const visitor = await alive.newContext();
    const { page: tab } = await open(visitor, `${server.site}/blank.html`);
    await init(noisy, {}, tab);
    await draft([1], tab);
    await tab.goto('about:blank'); // In the back-forward cache, it does not tell the store.
    const [first, ...others] = await arrived(1000);
    assert.deepEqual([first?.messages, others], [[['01']], []]);
    const { page: later } = await open(visitor, `${server.site}/blank.html`);
    await init(noisy, {}, later);
    await later.evaluate('client.report(2, { final: false })');
    await until("!['connecting', 'sending'].includes(client.status.state)", later);
    await later.goto('about:blank');
    for (const { body } of await arrived(1000)) assert.equal(body, first?.body);
  } finally {
    await alive.close();
  }
});

test('a draft that the relay knows already counts as delivered', async () => {
  await init(noisy);
  await draft([1]);
  await server.fail('replayed');
  await hide();
  await reaches('reported');
  assert.equal((await stored(noisy)).reports[0].state, 'delivered');
});

test('final: true ends replacement and sends nothing earlier', async () => {
  await init(noisy);
  await draft([1]);
  await page.evaluate('client.report(2); client.report(3, { final: false })'); // Sealed in the order of the calls.
  await until('receipts.length === 1');
  await page.evaluate('client.report(4)');
  await until('receipts.length === 2');
  assert.deepEqual(await page.evaluate('receipts.map(({ repeated, draft }) => [repeated, draft])'),
    [[true, true], [true, true]]);
  assert.deepEqual(await messages(), []);
  await hide();
  await reaches('reported');
  assert.deepEqual(await messages(), [[['02']]]);
});

for (const tells of [true, false]) {
  test(`a draft waits while the visitor goes on within the site${tells ? '' : ', without the Navigation API'}`, async () => {
    if (!tells) await context.addInitScript('delete globalThis.navigation');
    await page.reload();
    assert.equal(await page.evaluate("'navigation' in globalThis"), tells);
    await init(noisy);
    await draft([1]);
    await goOn();
    assert.deepEqual(await messages(), []);
    await init(noisy);
    await reaches('draft');
    await draft([5]);
    await goOn();
    await init(noisy);
    await reaches('draft');
    await page.waitForTimeout(200);
    assert.deepEqual(await messages(), []);
    await page.goto('about:blank'); // The visitor leaves the site.
    assert.deepEqual(await messages(1000), [[['05']]]);
  });
}

for (const [whose, later] of /** @type {const} */ ([['its draft', undefined], ['the draft of a later page', 2]])) {
  test(`back from the back-forward cache, a page sends ${whose} when the visitor leaves the site`, async () => {
    const alive = await launch({ ignoreDefaultArgs: ['--disable-back-forward-cache'] });
    try {
      const { page: tab } = await open(await alive.newContext(), `${server.site}/blank.html`);
      await init(noisy, {}, tab);
      await draft([1], tab);
      await tab.evaluate(`addEventListener('pageshow', ({ persisted }) => { globalThis.persisted = persisted; });
        void (location.href = '/blank.html?later')`);
      await tab.waitForURL(`${server.site}/blank.html?later`);
      if (later) {
        await init(noisy, {}, tab);
        await draft([later], tab);
      }
      assert.deepEqual(await messages(), []);
      await tab.goBack({ waitUntil: 'commit' });
      await until('globalThis.persisted === true', tab);
      if (later) await tab.waitForTimeout(300); // It asks the store.
      await tab.goto('about:blank'); // Within seconds of the way to the later page, of which the page must know no more.
      assert.deepEqual(await messages(1000), [[[`0${later ?? 1}`]]]);
    } finally {
      await alive.close();
    }
  });
}

test('in the back-forward cache, a page holds no transaction; it goes on when it is back', async () => {
  const turn = (/** @type {string} */ type) => page.evaluate((type) =>
    void dispatchEvent(new PageTransitionEvent(type, { persisted: true })), type);
  await init(randomized);
  await reaches('ready');
  await turn('pagehide');
  await page.evaluate(() => {
    const { get } = IDBObjectStore.prototype;
    IDBObjectStore.prototype.get = function (key) { // The page is left in its first transaction.
      IDBObjectStore.prototype.get = get;
      this.transaction.addEventListener('abort', () => Object.assign(globalThis, { isAborted: true }));
      const request = get.call(this, key);
      dispatchEvent(new PageTransitionEvent('pagehide', { persisted: true }));
      return request;
    };
    /** @type {any} */ (globalThis).client.report(7);
  });
  assert.deepEqual(await messages(500), []);
  assert.deepEqual((await stored(randomized)).lines, [], 'the worker has claimed the epoch');
  await turn('pageshow');
  await until('globalThis.isAborted');
  assert.deepEqual(await messages(500), []);
  assert.deepEqual((await stored(randomized)).reports.map(({ state }) => state), ['claimed']);
  await turn('pageshow');
  await reaches('reported');
  assert.deepEqual(await messages(), [[['0007']]]);
});

test('in the back-forward cache, a worker holds no transaction; it goes on when its page is back', async () => {
  for (let tries = 1; ; tries++) {
    await init(randomized);
    await reaches('ready');
    await page.evaluate(() => {
      const { postMessage } = Worker.prototype;
      Worker.prototype.postMessage = function (/** @type {any[]} */ ...given) {
        Reflect.apply(postMessage, this, given);
        if (given[0].method !== 'claim') return; // The page is left before the worker has claimed.
        Worker.prototype.postMessage = postMessage;
        dispatchEvent(new PageTransitionEvent('pagehide', { persisted: true }));
      };
      /** @type {any} */ (globalThis).client.report(7);
    });
    assert.deepEqual(await messages(500), []);
    const { lines, reports } = await stored(randomized);
    if (lines.length + reports.length === 0) break;
    assert.ok(tries < 5, 'the worker has claimed the epoch'); // It may if the page's thread had to wait there.
    await context.close();
    await newVisitor();
  }
  await page.evaluate(() => void dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true })));
  await reaches('reported');
  assert.deepEqual(await messages(), [[['0007']]]);
});

test('a draft that another tab has withdrawn does not leave with its page, also without a channel between tabs', async () => {
  await page.evaluate('delete globalThis.BroadcastChannel');
  await init(noisy);
  await draft([1]);
  const tab = await context.newPage();
  await tab.goto(page.url());
  await init(noisy, { consent: 'pending' }, tab);
  assert.equal((await tab.evaluate('client.forget()')).reports, 1);
  await page.goto('about:blank'); // The visitor leaves the site.
  assert.deepEqual(await messages(1000), []);
});

test('a draft of a page that is not left leaves at a moment of the last 30 minutes', async () => {
  await init(noisy);
  await draft([1]);
  const { reports: [{ leaveAt }], lines: [{ latest, length }] } = await stored(noisy);
  const end = 1000 * (latest.start + length);
  assert.ok(leaveAt >= end - 1_800_000 && leaveAt < end, `${end - leaveAt} ms before the end`);
  await goOn();
  await turnClock(leaveAt - Date.now() - 3000);
  await init(noisy);
  await reaches('draft');
  assert.deepEqual(await messages(), []);
  assert.deepEqual(await messages(4000), [[['01']]]);
});

test('a draft whose epoch is over is dropped, and its charge stays', async () => {
  await init(noisy);
  await draft([1]);
  const { lines } = await stored(noisy);
  await goOn();
  await turnClock(1000 * (lines[0].latest.start + lines[0].length) - Date.now() + 1000);
  await init(noisy);
  await reaches('ready');
  await page.waitForTimeout(500);
  const now = await stored(noisy);
  assert.deepEqual(now.reports.map(({ state, body }) => [state, body]), [['dropped', undefined]]);
  assert.deepEqual(now.lines, lines);
  await hide();
  assert.deepEqual(await messages(), []);
});

test('a wrong provisional value neither claims an epoch nor releases one with a draft', async () => {
  await init(noisy);
  await page.evaluate('client.report(99, { final: false })');
  await reaches('invalid-value');
  assert.deepEqual((await stored(noisy)).lines, []);
  await draft([1]);
  await page.evaluate('client.report(99, { final: false })');
  await reaches('invalid-value');
  assert.equal((await stored(noisy)).lines[0].runs[0].count, 1);
  await hide();
  assert.deepEqual(await messages(), [[['01']]]);
});

test('forget() and optOut() drop a draft, and its epoch is not reported again', async () => {
  for (const stop of ['forget', 'optOut']) {
    await newVisitor();
    await init(noisy);
    await draft([1]);
    await page.evaluate(`client.${stop}()`);
    await hide();
    assert.deepEqual(await messages(), [], stop);
    const { reports, lines } = await stored(noisy);
    assert.deepEqual([reports[0].state, reports[0].tags, lines[0].runs[0].count], ['dropped', undefined, 1], stop);
    await context.close();
  }
  await newVisitor();
});

test('forget() in another tab, without a channel: a report that this tab is sealing is withdrawn', async () => {
  await page.evaluate('delete globalThis.BroadcastChannel');
  await prepare(randomized);
  const outcome = await page.evaluate(async () => {
    const { memoryStore, start, errors, receipts } = /** @type {any} */ (globalThis);
    const store = memoryStore();
    const other = start({ store, consent: 'pending' });
    let forgets;
    const client = start({ store: { ...store, claim: async (/** @type {any[]} */ ...args) => {
      const old = await store.claim(...args);
      forgets ??= await other.forget();
      return old;
    } } });
    client.report(7);
    while (!forgets || client.status.state === 'sending') await new Promise((resolve) => setTimeout(resolve, 20));
    return [client.status.state, errors, receipts];
  });
  assert.deepEqual(outcome, ['ready', [], []]);
  assert.deepEqual(await messages(), []);
});

test('a database of an older version is not upgraded before consent', async () => {
  await page.evaluate(() => new Promise((resolve) => {
    const opening = indexedDB.open('doona', 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore('reports', { keyPath: ['task', 'epoch'] });
    opening.onsuccess = () => resolve(opening.result.close());
  }));
  const version = () => page.evaluate('indexedDB.databases().then(([{ version }]) => version)');
  await init(randomized, { consent: 'pending' });
  await page.evaluate('client.forget().then(() => client.report(7))');
  await page.waitForTimeout(300);
  assert.equal(await version(), 1);
  await page.evaluate('client.optIn()');
  await reaches('reported');
  assert.equal(await version(), 2);
});

test('close() aborts the download of a module', async () => {
  await context.route(/doona-(small-)?[0-9a-f]+\.wasm$/, () => {}); // It never answers.
  const begun = page.waitForRequest(/\.wasm$/);
  const failed = page.waitForEvent('requestfailed', (request) => request.url().endsWith('.wasm'));
  await init(randomized);
  await begun;
  await page.evaluate('client.close()');
  await failed;
});

/** How long a first visit takes here until its draft is sealed, in milliseconds. */
async function timeToSeal() {
  await newVisitor();
  await prepare(noisy);
  const begun = performance.now();
  await page.evaluate('globalThis.client = start(), client.report(1, { final: false })');
  await reaches('draft');
  await context.close();
  return performance.now() - begun;
}

/**
 * How a closing went: whether the epoch was charged, and how many different reports had arrived by when. It comes at a
 * random moment of the first milliseconds, at most `latest`.
 * @param {number} latest
 */
async function closing(latest) {
  await newVisitor();
  await prepare(noisy);
  await page.evaluate(() => {
    /** @type {any} */
    const all = globalThis;
    all.client = all.start();
    all.client.report(1, { final: false });
    document.addEventListener('visibilitychange', () => {
      if (document.visibilityState === 'hidden') all.client.report(2, { final: false });
    });
  });
  await page.waitForTimeout(Math.random() * latest);
  if (Math.random() < 0.5) await closeTab(page);
  else await page.goto('about:blank');
  const atOnce = await arrived();
  ({ page } = await open(context, `${server.site}/blank.html`)); // The next visit, which reports nothing itself.
  await init(noisy);
  await until('!["connecting", "sending"].includes(client.status.state)');
  await page.waitForTimeout(100); // It takes over a draft.
  await hide();
  const later = await arrived();
  const { lines, reports } = await stored(noisy);
  await context.close();
  const all = [...atOnce, ...later];
  assert.ok(all.every(({ messages: sent }) => /^0[12]$/.test(String(sent))));
  return { charged: lines.length, atOnce: atOnce.length, states: reports.map(({ state }) => state),
    reports: new Set(all.map(({ tags }) => String(tags))).size };
}

const closings = long ? 200 : 0;

test(`${closings} page closings at random moments: every charged report arrives, none twice`, { skip: !long },
  async () => {
    let [charged, atOnce] = [0, 0];
    const latest = 2 * (await timeToSeal());
    for (let i = 0; i < closings; i++) {
      const outcome = await closing(latest);
      assert.equal(outcome.reports, outcome.charged, JSON.stringify(outcome));
      assert.deepEqual(outcome.states, outcome.charged ? ['delivered'] : []);
      charged += outcome.charged;
      atOnce += Number(outcome.atOnce > 0);
    }
    console.log(`${closings} closings: ${charged} charged and delivered, ${atOnce} of them at the closing`);
    assert.ok(charged > closings / 4 && atOnce > 0);
    await newVisitor();
  });
