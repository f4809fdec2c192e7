// Tests sets of tables in Chromium: what a visit sends, and when; that nothing depends on values; tabs, crashes, and
// the back-forward cache. The fake relay opens what arrives. One test reports to two real relays.
import assert from 'node:assert/strict';
import { after, afterEach, beforeEach, test } from 'node:test';

import { hide, launch, open, patience, startTestServer } from './harness.mjs';

/** @typedef {typeof import('../sdk/set-index.js')} SDK */
/** @typedef {import('playwright-core').Page} Page */

/** @type {Awaited<ReturnType<typeof startTestServer>>} */
let server;
/** @type {import('playwright-core').Browser} */
let browser;
/** @type {import('playwright-core').BrowserContext} */
let context;
/** @type {Page} */
let page;
/** The requests of the context's pages to the relay. @type {string[]} */
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

async function newVisitor(on = browser) {
  context = await on.newContext();
  asked = [];
  context.on('request', (request) => {
    if (!request.url().startsWith(server.site)) asked.push(request.url());
  });
  ({ page } = await open(context, `${server.site}/blank.html`));
  await server.take();
}

const budget = { epsilon: 100, delta: .01, days: 365 };
const defaults = { entry: 0, vitals: 0, countries: 0 };

/**
 * Connects a page to a set, as the global `set`; `codes` are errors.
 * @param {object} [options] @param {Page} [on] @param {string} [name]
 */
async function connect(options = {}, on = page, name = 'set') {
  const { own, owner } = /** @type {any} */ (server.sets[name]);
  return on.evaluate(async (given) => {
    const file = '/doona-set.js';
    /** @type {SDK} */
    const { connectSet } = await import(file);
    const all = /** @type {any} */ (globalThis);
    try {
      const tokens = (/** @type {BodyInit} */ body, /** @type {{uri: string}} */ { uri }) =>
        fetch(`/test/token?uri=${encodeURIComponent(uri)}`, { method: 'POST', body });
      all.set = await connectSet({ ...given, ...(given.tokens && { tokens }) });
      return all.set.status.state;
    } catch (error) {
      return /** @type {any} */ (error).code ?? String(error);
    }
  }, /** @type {any} */ ({ url: own, owner, defaults, budget, when: 'now', spread: 0, ...options }));
}

/** Reports values, and returns what became of them. @param {Record<string, number>} values @param {Page} [on] */
const report = (values, on = page) => on.evaluate((values) => /** @type {any} */ (globalThis).set.report(values)
  .then((/** @type {any} */ receipt) => receipt.tables, (/** @type {any} */ error) => error.code), values);

/** Waits until the submission has a state. @param {string} state @param {Page} [on] */
async function reaches(state, on = page) {
  const end = Date.now() + patience / 4;
  for (;;) {
    const now = /** @type {string} */ (await on.evaluate('set.status.state'));
    if (now === state) return;
    if (Date.now() > end) assert.fail(`${now}, want ${state}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
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

/** Lets the clock of a page differ by a number of milliseconds. @param {number} by @param {Page} [on] */
const turnClock = (by, on = page) => on.evaluate((by) => {
  const { now } = Date;
  Date.now = () => now() + by;
}, by);

/** Returns the day's record and the set's line. @param {Page} [on] @param {string} [name] @returns {Promise<any>} */
function stored(on = page, name = 'set') {
  return on.evaluate((id) => new Promise((resolve) => {
    const opening = indexedDB.open('doona');
    opening.onsuccess = () => {
      const tx = opening.result.transaction(['reports', 'lines']);
      const [record, line] = [tx.objectStore('reports').get([id, 0]), tx.objectStore('lines').get(id)];
      tx.oncomplete = () => {
        opening.result.close();
        resolve({ record: record.result, line: line.result });
      };
    };
  }), String(server.sets[name]?.id));
}

/** The tables that are due on the first visit: all with values whose first epoch has begun. @returns {string[][]} */
function all(/** @type {Record<string, string>} */ values = {}) {
  return ['visitors', 'entry', 'goals', 'vitals', 'countries'].map((name) =>
    [name === 'visitors' ? '' : values[name] ?? { goals: '03' }[name] ?? '00']);
}

test('a visit counts without any value: one submission leaves with the visitor, and nothing before', async () => {
  assert.equal(await connect(), 'draft');
  assert.deepEqual(await arrived(), []);
  assert.deepEqual(asked, [], 'no request to the relay');
  const { record, line } = await stored();
  assert.ok(record.tags.length === 16 * 11 && record.body.length > 0 && record.leaveAt > Date.now());
  assert.equal(line.set.tables[1].runs.length, 1);
  await page.evaluate(hide);
  await reaches('reported');
  const [sent, ...others] = await arrived();
  assert.equal(sent?.error, '');
  assert.deepEqual([sent?.messages, others], [all(), []]);
  assert.deepEqual(asked.map((/** @type {string} */ url) => url.replace(/.*\/v1/, '/v1')),
    [`/v1/sets/${server.sets.set?.id}/epochs/${record.day}/reports`]);
  const { record: left } = await stored();
  assert.deepEqual([left.state, left.tags, left.values, left.body], ['delivered', undefined, undefined, undefined]);
});

test('later values replace the defaults, and every submission has one size', async () => {
  /** @type {Set<number>} */
  const sizes = new Set();
  for (const values of [{}, { entry: 7 }, { entry: 19, goals: 0, vitals: 5, countries: 29 }]) {
    await newVisitor();
    await connect();
    for (const [table, value] of Object.entries(values)) {
      assert.deepEqual(await report({ [table]: value }), { [table]: 'kept' });
    }
    await page.evaluate(hide);
    await reaches('reported');
    const [sent] = await arrived(0);
    assert.deepEqual(sent?.messages, all(Object.fromEntries(Object.entries(values).map(([name, x]) =>
      [name, x.toString(16).padStart(2, '0')]))));
    sizes.add(sent.body.length);
  }
  assert.equal(sizes.size, 1);
});

test('a value that is unknown, invalid, or for a bare table is refused, and the default stays', async () => {
  await connect();
  for (const values of [{ nothing: 1 }, { visitors: 1 }, { entry: 20 }, { entry: .5 }, { entry: NaN },
    { entry: 3, vitals: 6 }]) {
    assert.equal(await report(/** @type {any} */ (values)), 'invalid-value');
  }
  await page.evaluate(hide);
  await reaches('reported');
  assert.deepEqual((await arrived(0)).map(({ messages }) => messages), [all()]);
});

test('the second visit of a day sends nothing, and the next day only what is due', async () => {
  await connect();
  await page.evaluate(hide);
  await reaches('reported');
  await server.take();
  await page.reload();
  assert.equal(await connect(), 'reported');
  assert.deepEqual(await report({ entry: 4 }), { entry: 'late' });
  await page.evaluate(hide);
  assert.deepEqual(await arrived(), []);
  await page.reload();
  await turnClock(86_400_000);
  assert.equal(await connect(), 'draft');
  const outcomes = await report({ entry: 4, goals: 1, countries: 3 });
  assert.equal(outcomes.goals, 'kept');
  assert.equal(outcomes.entry, 'not-due', 'the pace is one in 122 days');
  await page.evaluate(hide);
  await reaches('reported');
  const [sent] = await arrived(0);
  assert.deepEqual([sent?.error, sent?.messages[1], sent?.messages[2]], ['', [''], ['01']]);
});

test('events: beyond the allowance the default is sent, not a cover', async () => {
  await connect();
  await report({ goals: 1 });
  await page.evaluate(hide);
  await reaches('reported');
  await page.reload();
  await turnClock(86_400_000);
  await connect();
  assert.deepEqual(await report({ goals: 0 }), { goals: 'allowance' });
  await page.evaluate(hide);
  await reaches('reported');
  assert.deepEqual((await arrived(0)).map(({ messages }) => messages[2]), [['01'], ['03']]);
});

test('a page that finds a draft seals it anew under the same tags, and keeps the values of earlier pages', async () => {
  await connect();
  await report({ entry: 7 });
  const { record: before } = await stored();
  await goOn();
  assert.deepEqual(await arrived(), [], 'the visit goes on');
  await connect();
  const { record } = await stored();
  assert.deepEqual(Object.values(record.tags), Object.values(before.tags));
  assert.notDeepEqual(Object.values(record.body), Object.values(before.body));
  await report({ vitals: 2 });
  await page.evaluate(hide);
  await reaches('reported');
  assert.deepEqual((await arrived(0)).map(({ messages }) => messages), [all({ entry: '07', vitals: '02' })]);
});

test('two tabs share the tags, and neither sends the other one\'s bytes', async () => {
  const { page: tab } = await open(context, `${server.site}/blank.html`);
  await connect();
  await connect({}, tab);
  await report({ entry: 1 });
  await report({ vitals: 2 }, tab);
  await page.evaluate(hide);
  await tab.evaluate(hide);
  const sent = await arrived(1000);
  assert.deepEqual(sent.map(({ messages }) => messages).sort(), [all({ entry: '01' }), all({ entry: '01', vitals: '02' })].sort());
  assert.equal(new Set(sent.map(({ body }) => body)).size, 2);
  assert.deepEqual(sent[0]?.tags, sent[1]?.tags);
});

test('two worlds that differ in all values, with a crash and two tabs, look the same to the first relay', async () => {
  /** What arrives in a world. @param {(n: number) => Record<string, number>} values */
  const live = async (values) => {
    await newVisitor();
    /** @type {unknown[]} */
    const seen = [];
    const look = async () => seen.push((await arrived()).map(({ path, epoch, body, error }) =>
      [path, epoch, body.length, error]));
    for (let day = 0; day < 3; day++) {
      const { page: tab } = await open(context, `${server.site}/blank.html`);
      await turnClock(day * 86_400_000);
      await turnClock(day * 86_400_000, tab);
      await connect();
      await report(values(day));
      const client = await context.newCDPSession(page);
      if (day === 1) { // The page crashes, and the next one takes its draft over.
        const crashed = page.waitForEvent('crash');
        void client.send('Page.crash').catch(() => {});
        await crashed;
        ({ page } = await open(context, `${server.site}/blank.html`));
        await turnClock(day * 86_400_000);
        await connect();
      }
      await look();
      await connect({}, tab);
      await report(values(day + 1), tab);
      await page.evaluate(hide);
      await reaches('reported'); // On a busy machine it may take long.
      await look();
      await tab.evaluate(hide);
      await look();
      await tab.close();
      await page.close();
      ({ page } = await open(context, `${server.site}/blank.html`));
    }
    seen.push(asked.map((url) => url.replace(/.*\/v1/, '')));
    return seen;
  };
  const quiet = await live(() => ({}));
  const busy = await live((n) => ({ entry: n + 1, goals: n % 3, vitals: n % 6, countries: 29 - n }));
  assert.deepEqual(busy, quiet);
  assert.ok(JSON.stringify(quiet).includes('reports'));
});

test('a page that is back from the back-forward cache seals anew, and one whose submission has left sends no other', async () => {
  const alive = await launch({ ignoreDefaultArgs: ['--disable-back-forward-cache'] });
  try {
    await newVisitor(alive);
    await connect();
    await report({ entry: 5 });
    await page.evaluate(`addEventListener('pageshow', ({ persisted }) => { globalThis.persisted = persisted; });
      void (location.href = '/blank.html?later')`);
    await page.waitForURL(`${server.site}/blank.html?later`);
    assert.deepEqual(await arrived(), []);
    await connect();
    await report({ vitals: 3 });
    await page.goBack({ waitUntil: 'commit' });
    const end = Date.now() + patience / 2;
    while (!(await page.evaluate('globalThis.persisted'))) assert.ok(Date.now() < end);
    await report({ countries: 9 });
    await page.goto('about:blank');
    const sent = await arrived(1000);
    assert.deepEqual(sent.map(({ messages }) => messages), [all({ entry: '05', vitals: '03', countries: '09' })]);
    const { page: later } = await open(context, `${server.site}/blank.html`);
    const state = await connect({}, later);
    assert.notEqual(state, 'draft');
    assert.deepEqual(await report({ entry: 6 }, later), { entry: 'late' });
    await later.evaluate(hide);
    const again = await arrived(1000);
    assert.ok(again.every(({ body }) => body === sent[0]?.body), 'only the same bytes');
  } finally {
    await alive.close();
  }
});

test('pages that are closed at random moments: all submissions of a day have one tag, and no other bytes follow', async () => {
  const rounds = 40;
  let [closedEarly, resent] = [0, 0];
  for (let round = 0; round < rounds; round++) {
    await newVisitor();
    const { own, owner } = /** @type {any} */ (server.sets.set);
    await page.evaluate((given) => {
      const file = '/doona-set.js';
      void import(file).then(async ({ connectSet }) => {
        const set = await connectSet(given);
        for (let i = 1; i < 20; i++) await set.report({ entry: i, goals: i % 5 });
      });
    }, /** @type {any} */ ({ url: own, owner, defaults, budget, when: 'now' }));
    await page.waitForTimeout(350 * Math.random());
    await page.close({ runBeforeUnload: true });
    const first = await arrived(400);
    ({ page } = await open(context, `${server.site}/blank.html`));
    await connect();
    await report({ entry: 19, vitals: 4 });
    await page.evaluate(hide);
    const later = await arrived(400);
    const all = [...first, ...later];
    assert.ok(all.every(({ error }) => error === ''));
    assert.ok(first.length <= 1 && later.length <= 1, `${first.length}, ${later.length}`);
    assert.ok(all.length >= 1, 'a day with a visit has a submission');
    assert.equal(new Set(all.map(({ tags }) => String(tags))).size, 1);
    if (first.length === 0) closedEarly++;
    for (const { body } of first.length > 0 ? later : []) {
      assert.equal(body, first[0]?.body);
      resent++;
    }
    await context.close();
  }
  console.log(`${closedEarly} of ${rounds} pages sealed nothing before they were closed, ${resent} were sent again`);
  await newVisitor();
});

test('what was not delivered is sent again at a later leaving, the same bytes', async () => {
  await server.fail('hostile-name'); // It says Retry-After: 60, so there is no second attempt.
  await connect();
  await page.evaluate(hide);
  const [first] = await arrived(1000);
  assert.equal(await page.evaluate('set.status.state'), 'waiting');
  await page.reload();
  assert.equal(await connect(), 'waiting');
  assert.deepEqual(await arrived(), []);
  await page.evaluate(hide);
  await reaches('reported');
  const [second] = await arrived(0);
  assert.equal(second?.body, first?.body);
});

test('at the drawn moment a visible page sends', async () => {
  await connect();
  const { record } = await stored();
  await goOn();
  await turnClock(record.leaveAt - Date.now() - 1500);
  await connect();
  assert.deepEqual(await arrived(0), []);
  await reaches('reported');
  assert.equal((await arrived(0)).length, 1);
});

test('a page that stays open claims the next day', async () => {
  const midnight = (Math.floor(Date.now() / 86_400_000) + 1) * 86_400_000;
  await turnClock(midnight - Date.now() - 2500);
  await connect();
  const before = (await stored()).record;
  for (const end = Date.now() + patience / 2; (await stored()).record.day === before.day;) {
    assert.ok(Date.now() < end, 'the next day is not claimed');
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  assert.deepEqual(await report({ goals: 1 }), { goals: 'kept' });
  await page.evaluate(hide);
  await reaches('reported');
  const sent = await arrived(0);
  assert.deepEqual(sent.map(({ epoch }) => epoch - before.day), [0, 1]);
  assert.deepEqual(sent.at(-1)?.messages[2], ['01']);
});

test('a visit goes on at an origin of through, and ends at another one', async () => {
  for (const [origin, most] of /** @type {const} */ ([['https://pay.example', 0], ['https://else.example', 1]])) {
    await newVisitor();
    await context.route(`${origin}/**`, (route) => route.fulfill({ contentType: 'text/html', body: '<title>other</title>' }));
    await connect();
    await page.evaluate((to) => void (location.href = to), `${origin}/x`);
    await page.waitForURL(`${origin}/x`);
    assert.equal((await arrived(1000)).length, most, origin);
    if (most > 0) continue;
    await page.goto(`${server.site}/blank.html`);
    assert.equal(await connect(), 'draft');
    await page.evaluate(hide);
    await reaches('reported');
    assert.equal((await arrived(0)).length, 1);
  }
});

test('documents and keys are asked for once, and keys again when a new block begins', async () => {
  /** @type {string[]} */
  const documents = [];
  context.on('request', (request) => {
    const [, path] = /\/v1\/(?:sets|blocks)\/[0-9a-f]{64}(.*)/.exec(request.url()) ?? [];
    if (path !== undefined && request.method() === 'GET') documents.push(path);
  });
  const { start } = /** @type {any} */ (server.sets.set);
  const day = Math.floor((Date.now() / 1000 - start) / 86_400);
  await connect();
  assert.deepEqual([documents.length, documents[0], documents[1]], [4, '', `/0/${Math.floor(day / 8)}`]);
  await report({ entry: 3, vitals: 1 });
  for (const days of [0, 8 - day % 8]) {
    documents.length = 0;
    await page.reload();
    await turnClock(days * 86_400_000);
    assert.notEqual(await connect(), 'task-unreachable');
    await report({ entry: 2 });
    assert.deepEqual(documents.filter((path) => path.startsWith('/0/')),
      days === 0 ? [] : [`/0/${Math.floor(day / 8) + 1}`]);
    assert.ok(!documents.includes(''), 'the set is kept');
  }
});

test('in the back-forward cache, a worker holds no transaction; it goes on when its page is back', async () => {
  const turn = (/** @type {string} */ type) => page.evaluate((type) =>
    void dispatchEvent(new PageTransitionEvent(type, { persisted: true })), type);
  await connect();
  const before = (await stored()).record.version;
  await page.evaluate(() => {
    const { postMessage } = Worker.prototype;
    Worker.prototype.postMessage = function (/** @type {any[]} */ ...given) {
      if (given[0].method === 'change') { // The page is left before the worker has changed anything.
        Worker.prototype.postMessage = postMessage;
        dispatchEvent(new PageTransitionEvent('pagehide', { persisted: true }));
      }
      Reflect.apply(postMessage, this, given);
    };
    const { set } = /** @type {any} */ (globalThis);
    void set.report('entry', 5).catch(() => {});
  });
  const sent = await arrived(1000); // The page was left: its submission leaves.
  assert.equal(sent.length, 1);
  assert.equal((await stored()).record.version, before, 'the worker has changed the record');
  await turn('pageshow');
  for (const end = Date.now() + patience / 4; (await stored()).record.tags;) {
    assert.ok(Date.now() < end, 'the worker does not go on');
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  await page.evaluate(hide);
  const again = await arrived(1000);
  assert.ok(again.every(({ body }) => body === sent[0]?.body), 'other bytes follow');
  assert.equal(await page.evaluate('set.status.state'), 'reported');
});

test('an opt-out, Global Privacy Control, another owner, budget and default are refused by name', async () => {
  const offers = /** @type {any} */ (server.sets);
  assert.equal(await connect({ owner: offers.other.owner }), 'set-refused');
  assert.equal(await connect({ budget: { ...budget, days: 366 } }), 'invalid-option');
  assert.equal(await connect({ budget: { ...budget, epsilon: 59 } }), 'epsilon-too-large');
  assert.equal(await connect({ defaults: { entry: 0 } }), 'invalid-option');
  assert.equal(await connect({ defaults: { ...defaults, goals: 3 } }), 'invalid-option');
  assert.equal(await connect({ defaults: { ...defaults, nothing: 3 } }), 'invalid-option');
  assert.equal(await connect({ url: offers.set.own.replace(/.$/, 'x') }), 'invalid-option');
  assert.equal(await connect({ url: `${server.site}/v1/sets/${offers.set.id}` }), 'task-unreachable');
  await page.evaluate(() => Object.defineProperty(navigator, 'globalPrivacyControl', { value: true }));
  assert.equal(await connect(), 'opted-out');
  assert.equal(await connect({ consent: 'granted' }), 'draft');
  await page.evaluate(async () => {
    const file = '/doona-set.js';
    await (await import(file)).optOut();
  });
  await page.evaluate(hide);
  assert.deepEqual(await arrived(), []);
  await page.reload();
  assert.equal(await connect(), 'opted-out');
  assert.equal((await stored()).record.state, 'dropped');
});

test('without a worker the page itself does it all, and a set on trial shows no epsilon', async () => {
  await page.evaluate(() => Object.assign(globalThis, { Worker: undefined }));
  assert.equal(await connect({}, page, 'trial'), 'draft');
  assert.equal(page.workers().length, 0);
  const { text, total } = await page.evaluate('set.explain()');
  assert.equal(total, null);
  assert.doesNotMatch(text, /epsilon/);
  await page.evaluate(hide);
  await reaches('reported');
  assert.deepEqual((await arrived(0)).map(({ messages, error }) => [messages, error]), [[all(), '']]);
});

test('real relays take the submission of a set', async () => {
  const { url } = /** @type {any} */ (server.sets.real);
  await server.requests();
  assert.equal(await connect({ url }, page, 'real'), 'draft');
  await report({ entry: 3 });
  await page.evaluate(hide);
  await reaches('reported');
  const posts = (await server.requests()).filter(({ method }) => method === 'POST');
  assert.equal(posts.length, 1);
  assert.match(String(posts[0]?.path), /^\/v1\/sets\/[0-9a-f]{64}\/epochs\/\d+\/reports$/);
});

test('a set with tokens asks for one a day, right after the claim, and sends it with the submission', async () => {
  const { url } = /** @type {any} */ (server.sets.tokens);
  const logIn = () => fetch(`${server.site}/test/login`, { method: 'POST', body: crypto.randomUUID() });
  const visit = () => connect({ url, tokens: true }, page, 'tokens');
  /** The requests to the issuer and the first relay. @param {RegExp} path */
  const taken = async (path) => (await server.requests()).filter((request) => path.test(request.path));
  const hasToken = async () => {
    while (!(await stored(page, 'tokens')).record.token) await new Promise((resolve) => setTimeout(resolve, 20));
  };
  await logIn();
  await server.requests();
  assert.equal(await visit(), 'draft');
  await hasToken();
  assert.deepEqual((await taken(/issuer-directory|token-request|reports/)).map(({ method }) => method), ['GET', 'POST']);
  await goOn(); // The next page has the same token.
  assert.equal(await visit(), 'draft');
  assert.deepEqual(await report({ entry: 3 }), { entry: 'kept' });
  await page.evaluate(hide);
  await reaches('reported');
  const asked = (await taken(/issuer-directory|token-request|reports/)).filter(({ method }) => method !== 'OPTIONS');
  assert.equal(asked.length, 1);
  assert.match(String(asked[0]?.header.Authorization), /^PrivateToken token="[\w-]{400,}"$/);
  const { record } = await stored(page, 'tokens');
  assert.equal(record.state, 'delivered');
  assert.ok(!('token' in record));

  await context.close(); // Another browser of the same person, and a third one, for which the issuer has no token.
  await newVisitor();
  await visit();
  await hasToken();
  await context.close();
  await newVisitor();
  await server.requests();
  assert.equal(await visit(), 'draft');
  await page.evaluate(hide);
  await reaches('limit-reached');
  await new Promise((resolve) => setTimeout(resolve, 1500)); // Until it waits for the next leaving.
  await page.evaluate(() => {
    Object.defineProperty(document, 'visibilityState', { value: 'visible', configurable: true });
    document.dispatchEvent(new Event('visibilitychange', { bubbles: true }));
  });
  await new Promise((resolve) => setTimeout(resolve, 300));
  await page.evaluate(hide);
  await new Promise((resolve) => setTimeout(resolve, 500));
  const refused = await taken(/token-request|reports/);
  assert.deepEqual(refused.map(({ path }) => path.endsWith('token-request')), [true], 'it asks once, and sends nothing');
});
