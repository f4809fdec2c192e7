// Tests tasks with rare events in Chromium: no window may have more events than the task allows, or more reports,
// whatever visitors, tabs and clocks do. What left is decrypted by the test server.
import assert from 'node:assert/strict';
import { after, beforeEach, test } from 'node:test';

import { closeTab, hide, launch, long, network, open, patience, startTestServer } from './harness.mjs';

/** @typedef {import('playwright-core').Page} Page */

/** @type {Awaited<ReturnType<typeof startTestServer>>} */
let server;
/** @type {import('playwright-core').Browser} */
let browser;

after(async () => {
  await browser?.close();
  await server?.stop();
});
beforeEach(async () => {
  server ??= await startTestServer();
  browser ??= await launch();
});

/** A limit: at most `most` in any `window` epochs. @typedef {{most: number, window: number}} Limit */

/** The tasks with events, their limits and the values of an event and the default. */
const tasks = /** @type {const} */ ([
  { name: 'events', events: { most: 1, window: 3 }, cap: undefined, event: 1, usual: 0 },
  { name: 'labelled events', events: { most: 2, window: 4 }, cap: undefined, event: 6, usual: 3 },
  { name: 'capped events', events: { most: 2, window: 4 }, cap: { most: 3, window: 5 }, event: 0, usual: 3 },
]);

/** M(N) of docs/proofs/events.md. @param {Limit} limit @param {number} n */
const mostIn = ({ most, window }, n) => Math.floor(n / window) * most + Math.min(most, n % window);

/** Opens a page whose clock stands still, as the globals `site` and `setTime`. @param {typeof tasks[number]} task */
async function openSite({ name, event, usual }) {
  const context = await browser.newContext();
  const { page, complaints } = await open(context, `${server.site}/blank.html`);
  await page.evaluate(async ([offer, event, usual]) => {
    const load = (/** @type {string} */ file) => import(file);
    const [sdk, visits] = await Promise.all([load('/doona.js'), load('/test/event-visits.mjs')]);
    visits.watchRequests();
    Object.assign(globalThis, { visits, setTime: visits.stopClock(), site: new visits.Site(sdk, offer, event, usual) });
    const doona = await sdk.connect({ .../** @type {any} */ (globalThis).site.options, store: sdk.memoryStore() });
    doona.close();
    Object.assign(globalThis, { start: 1000 * doona.task.epochs.start });
  }, /** @type {const} */ ([/** @type {any} */ (server.tasks[name]), event, usual]));
  return { page, complaints, close: () => context.close() };
}

for (const task of tasks) {
  // Short runs have few patterns, with the one that has an event every day and two that need a window's last day.
  const step = long ? 1 : 91;
  const extra = [728, 2 + 6 + 162 + 486, 2 + 54];
  const patterns = Array.from({ length: Math.floor(729 / step) }, (_, i) => i * step);
  for (const one of extra) if (!patterns.includes(one)) patterns.push(one);

  test(`"${task.name}": ${patterns.length} patterns of visits and events in 6 days leave what Go decides`, async () => {
    const { page, complaints, close } = await openSite(task);
    const began = performance.now();
    /** @type {(some: number[], leaps: boolean) => ReturnType<typeof import('./event-visits.mjs').livePatterns>} */
    const live = (some, leaps) => page.evaluate((given) => {
      const { visits, site, setTime, start } = /** @type {any} */ (globalThis);
      return visits.livePatterns(site, setTime, start, ...given);
    }, /** @type {const} */ ([some, leaps]));
    /** @type {Awaited<ReturnType<typeof live>>} */
    const lived = [];
    for (let i = 0; i < patterns.length; i += 81) lived.push(...(await live(patterns.slice(i, i + 81), false)));
    const some = patterns.filter((_, i) => i % (long ? 9 : 1) === 0);
    for (const { pattern, visits, left, decided } of await live(some, true)) {
      assert.deepEqual(left, decided, `a leaping clock, pattern ${pattern}: ${JSON.stringify(visits)}`);
    }
    const most = Array.from({ length: 7 }, () => 0);
    const counts = { event: 0, default: 0, none: 0, turned: 0 };
    for (const { pattern, visits, codes, left, decided } of lived) {
      assert.deepEqual(left, decided, `pattern ${pattern}: ${JSON.stringify({ visits, codes })}`);
      left.forEach((what, i) => {
        counts[/** @type {'event'} */ (what)]++;
        const { event = false } = visits[i] ?? {};
        if (event && what === 'default') counts.turned++;
        if (codes[i] === 'silent') return;
        const isInvalid = what !== 'none' && !event && codes[i] === 'invalid-value';
        assert.ok(isInvalid || codes[i] === (what === 'none' ? 'cap-reached' : ''), `${what}: ${codes[i]}`);
      });
      for (let n = 1; n <= 6; n++) {
        const sent = left.filter((what, i) => what === 'event' && Number(visits[i]?.day) < n).length;
        most[n] = Math.max(Number(most[n]), sent);
      }
    }
    const claimed = most.map((_, n) => Math.min(mostIn(task.events, n), task.cap ? mostIn(task.cap, n) : n));
    assert.deepEqual(most, claimed, 'M(N)');
    assert.ok(counts.turned > 0 && (counts.none > 0) === (task.cap !== undefined));
    assert.deepEqual(complaints.filter((text) => !network.test(text)), []);
    const seconds = ((performance.now() - began) / 1000).toFixed(1);
    console.log(`${task.name}: ${patterns.length} patterns in ${seconds} s: ${JSON.stringify(counts)}`);
    await close();
  });
}

/** Whether no window has more of these epochs than a limit allows. @param {number[]} epochs @param {Limit} limit */
const keeps = (epochs, { most, window }) =>
  epochs.every((from) => epochs.filter((at) => at >= from && at < from + window).length <= most);

for (const task of tasks) {
  const [count, rounds] = long ? [80, 60] : [8, 10];
  const seed = long ? Date.now() : 46;

  test(`"${task.name}": ${count} visitors with tabs, deaths and leaping clocks keep the limits`, async () => {
    const { page, complaints, close } = await openSite(task);
    const began = performance.now();
    /** @type {Awaited<ReturnType<typeof import('./event-visits.mjs').liveAtRandom>>} */
    const lived = await page.evaluate((numbers) => {
      const { visits, site, setTime, start } = /** @type {any} */ (globalThis);
      return visits.liveAtRandom(site, setTime, start, ...numbers);
    }, [seed, count, rounds]);
    const sums = { reports: 0, events: 0, bodies: 0, posts: 0, refused: 0 };
    /** @type {number[]} */
    const deaths = [];
    for (const [i, { life, left, refused, ...one }] of lived.entries()) {
      const shown = left.map(({ epoch, letter, tag }) => [epoch, letter, tag.slice(0, 6)]);
      const which = `seed ${seed}, visitor ${i} with ${life}: ${JSON.stringify(shown)}`;
      /** By epoch. @type {Map<number, string>} */
      const tags = new Map();
      for (const { epoch, tag } of left) {
        assert.equal(tags.get(epoch) ?? tag, tag, `one tag in an epoch: ${which}`);
        tags.set(epoch, tag);
      }
      const bodies = new Set(left.map(({ body }) => body)).size;
      if (life === 'one tab') assert.deepEqual([bodies, left.length], [tags.size, tags.size], `once: ${which}`);
      // Whichever of the drafts with one tag arrived first: an epoch with an event in any of them counts.
      const events = [...new Set(left.filter(({ letter }) => letter !== task.usual).map(({ epoch }) => epoch))];
      assert.ok(keeps(events, task.events), `events: ${which}`);
      if (task.cap) assert.ok(keeps([...tags.keys()], task.cap), `cap: ${which}`);
      sums.reports += tags.size;
      sums.events += events.length;
      sums.bodies += bodies;
      sums.posts += left.length;
      sums.refused += refused;
      one.deaths.forEach((n, at) => (deaths[at] = (deaths[at] ?? 0) + (n ?? 0)));
    }
    assert.ok(sums.events > 0 && sums.reports > sums.events && (sums.refused > 0) === (task.cap !== undefined));
    assert.ok([0, 1, 2, 3].every((at) => !long || Number(deaths[at]) > 0), `deaths: ${deaths}`);
    assert.deepEqual(complaints.filter((text) => !network.test(text)), []);
    const seconds = ((performance.now() - began) / 1000).toFixed(1);
    console.log(`${task.name}, seed ${seed}, ${seconds} s: ${JSON.stringify(sums)}, deaths by writes: ${deaths}`);
    await close();
  });
}

test('a tab whose store dies after any write leaves no event beyond the allowance', async () => {
  const [task] = tasks;
  const { page, close } = await openSite(task);
  /** @type {Awaited<ReturnType<typeof import('./event-visits.mjs').liveAndDie>>} */
  const lived = await page.evaluate(() => {
    const { visits, site, setTime, start } = /** @type {any} */ (globalThis);
    return visits.liveAndDie(site, setTime, start);
  });
  for (const { writes, closes, again, left, decided } of lived) {
    const shown = JSON.stringify(left.map(({ epoch, letter, tag }) => [epoch, letter, tag.slice(0, 6)]));
    const which = `${writes} writes, ${JSON.stringify({ closes, again })}: ${shown}`;
    const days = [0, 1, 2, 3].map((day) => left.filter(({ epoch }) => epoch === day));
    for (const day of days) assert.equal(new Set(day.map(({ tag }) => tag)).size, 1, which);
    // Whichever of two bodies with one tag arrived first: an epoch with an event in any counts.
    const sent = days.map((day) => (day.some(({ letter }) => letter === task.event) ? 'event' : 'default'));
    const events = sent.flatMap((what, day) => (what === 'event' ? [day] : []));
    assert.ok(keeps(events, task.events), which);
    // Writes: the default is claimed; the event is recorded with a mark, which is deleted; the event is sealed.
    if (again || writes >= 4) assert.deepEqual(sent, decided, which);
    else assert.deepEqual(events, [], which);
  }
  await close();
});

/** The stream with events, and the budget of a visitor who comes daily for a year. */
const stream = 'years with events';
const yearly = { epsilon: 10, delta: 1e-5, days: 365 };

/** Posts to the test server. @param {string} name @param {unknown} [body] */
async function control(name, body = null) {
  const response = await fetch(`${server.site}/test/${name}`, { method: 'POST', body: JSON.stringify(body) });
  const text = await response.text();
  assert.ok(response.ok, `${name}: ${text}`);
  return text && JSON.parse(text);
}

/** Returns the cost of what arrived, by the Go accountant. @param {string} what @returns {Promise<any>} */
const account = (what) => control('account', { ...yearly, what, engine: browser.version(), stream });

/**
 * Opens a page on a day after the stream's begin, and connects. Resolves before the connection stands.
 * @param {import('playwright-core').BrowserContext} context @param {number} day
 */
async function visitOn(context, day) {
  const page = await context.newPage();
  const { stride: _, ...offer } = /** @type {any} */ (server.tasks[stream]);
  await page.goto(`${server.site}/blank.html?day=${day}`);
  await page.evaluate(async (options) => {
    const ahead = 86_400_000 * Number(new URLSearchParams(location.search).get('day'));
    const { now } = Date;
    Date.now = () => now() + ahead;
    const file = '/doona.js';
    const { init } = await import(file);
    const errors = /** @type {string[]} */ ([]);
    const onError = (/** @type {any} */ error) => errors.push(String(error.code ?? error));
    const client = init({ ...options, onError });
    Object.assign(globalThis, { client, errors });
  }, { ...offer, budget: yearly, spread: 0, when: 'now' });
  return page;
}

/** Waits until a page's client has nothing to do. @param {Page} page */
async function isIdle(page) {
  for (const end = Date.now() + patience; ; await page.waitForTimeout(5)) {
    const [state, errors] = /** @type {[string, string[]]} */ (await page.evaluate('[client.status.state, errors]'));
    assert.deepEqual(errors, []);
    if (!['connecting', 'sending', 'ready'].includes(state)) return;
    if (Date.now() > end) assert.fail(`still ${state}: ${page.url()}`);
  }
}

/** Waits until a page's client says that the epoch has its report. @param {Page} page */
async function isReported(page) {
  for (const end = Date.now() + patience; ; await page.waitForTimeout(5)) {
    const state = await page.evaluate('client.status.state');
    if (state === 'reported') return;
    if (Date.now() > end) assert.fail(`still ${state}: ${page.url()}`);
  }
}

/** Leaves a page: to another site, by closing it, or into the background. @param {Page} page @param {number} how */
async function leave(page, how) {
  if (how === 0) await page.goto('about:blank');
  else if (how === 1) await closeTab(page);
  else await page.evaluate(hide);
}

test(`${long ? 400 : 10} days of a stream with events cost at most its claim, whenever tabs close`, async () => {
  const visits = await import('./event-visits.mjs');
  const seed = long ? Date.now() : 46;
  const random = visits.seeded(seed);
  const below = (/** @type {number} */ n) => Math.floor(n * random());
  const limit = { most: 2, window: 30 };
  const usual = 3;
  await control('renew', { stream, chain: 3 });
  await account('before');
  await control('letters');
  const context = await browser.newContext();
  const began = performance.now();
  const counts = { visits: 0, regular: 0, events: 0 };
  /** Days that a visitor surely left with a report. @type {Set<number>} */
  const sure = new Set();
  for (let next = 0; next < 400; next += long ? 1 : 1 + below(80)) {
    const leaps = random() < 0.1;
    const day = leaps ? Math.min(399, Math.max(0, next + below(80) - 40)) : next;
    const isEvent = random() < 0.5;
    const fate = random();
    counts.visits++;
    counts.events += Number(isEvent);
    const pages = [await visitOn(context, day)];
    if (fate < 0.15) pages.push(await visitOn(context, day));
    if (isEvent) await pages[below(pages.length)]?.evaluate(`client.report(${(usual + 1 + below(7)) % 8})`);
    if (fate > 0.85) await pages[0]?.waitForTimeout(below(200)); // It may still connect or seal.
    else {
      for (const page of pages) await isIdle(page);
      sure.add(day);
      counts.regular++;
    }
    for (const page of pages) {
      if (fate > 0.95) await page.close(); // It does not tell the page.
      else await leave(page, below(3));
    }
    if (pages.some((page) => !page.isClosed())) await new Promise((resolve) => setTimeout(resolve, 50));
    for (const page of pages) if (!page.isClosed()) await page.close();
  }
  await new Promise((resolve) => setTimeout(resolve, 300));
  /** @type {{day: number, letter: number, tag: string}[]} */
  const left = await control('letters');
  /** By day. @type {Map<number, string>} */
  const tags = new Map();
  for (const { day, tag } of left) {
    assert.equal(tags.get(day) ?? tag, tag, `seed ${seed}: one tag on day ${day}`);
    tags.set(day, tag);
  }
  const events = [...new Set(left.filter(({ letter }) => letter !== usual).map(({ day }) => day))];
  assert.ok(keeps(events, limit), `seed ${seed}: events on the days ${events}`);
  const { epsilon, delta, most, allowed, reports } = await account('events at random');
  const said = `seed ${seed}, ${((performance.now() - began) / 1000).toFixed(0)} s: ${JSON.stringify({ ...counts,
    days: tags.size, reports, arrivedEvents: events.length, most, allowed, epsilon, delta })}`;
  console.log(said);
  assert.ok(epsilon <= 10 && delta <= 1e-5 && most <= allowed && most <= mostIn(limit, 365), said);
  const arrived = [...sure].filter((day) => tags.has(day)).length;
  assert.ok(arrived >= 0.9 * sure.size && events.length >= (long ? 15 : 2), `${arrived} of ${sure.size}, ${said}`);
  await context.close();
});

test('a page whose clock went back to a day with a delivered report says so', async () => {
  await control('renew', { stream, chain: 3 });
  await control('letters');
  const context = await browser.newContext();
  for (const day of [5, 9]) {
    const page = await visitOn(context, day);
    await isIdle(page);
    await page.evaluate(hide);
    await isReported(page);
    await page.close();
  }
  const page = await visitOn(context, 5);
  await isReported(page);
  const left = /** @type {{day: number}[]} */ (await control('letters'));
  assert.deepEqual(left.map(({ day }) => day), [5, 9]);
  await context.close();
});

test('an invalid value in an epoch without a draft leaves the default', async () => {
  const context = await browser.newContext();
  const { page } = await open(context, `${server.site}/blank.html`);
  await control('letters');
  await page.evaluate(async (options) => {
    const file = '/doona.js';
    const { connect } = await import(file);
    const { now } = Date;
    let ahead = 0;
    Date.now = () => now() + ahead;
    const doona = await connect(options);
    ahead = 86_400_000; // The default of this day is sealed at some moment of its first hour.
    Object.assign(globalThis, { doona });
  }, { .../** @type {any} */ (server.tasks['events']), maxEpsilon: 100, maxDelta: 1, maxTotalEpsilon: 100,
    spread: 3_600_000, when: 'now', flush: false });
  assert.equal(await page.evaluate('doona.report(2).catch(({ code }) => code)'), 'invalid-value');
  await page.evaluate(hide);
  await new Promise((resolve) => setTimeout(resolve, 300));
  const left = /** @type {{epoch: number, letter: number}[]} */ (await control('letters'));
  assert.deepEqual(left.filter(({ epoch }) => epoch === 1).map(({ letter }) => letter), [0]);
  await context.close();
});

test('a page that is opened after the day has its report seals the default of the next day', async () => {
  const [task] = tasks;
  const { page, close } = await openSite(task);
  const states = await page.evaluate(async () => {
    const { visits, site, setTime, start } = /** @type {any} */ (globalThis);
    const visitor = new visits.Visitor(site);
    const noon = (/** @type {number} */ day) => setTime(start + (day + 0.5) * visits.dayLength);
    noon(0);
    const tab = await visitor.open();
    await tab.decided(0);
    await visits.leave();
    tab.doona.close();
    const client = site.sdk.init({ ...site.options, store: visitor.store });
    await visits.until(() => client.status.state !== 'connecting', () => 'the store');
    const states = [client.status.state];
    noon(1);
    await visits.until(() => client.status.state === 'draft', () => `a draft: ${JSON.stringify(client.status)}`);
    await visits.leave();
    client.close();
    return [...states, ...(await visits.letters()).map((/** @type {any} */ one) => [one.epoch, one.letter])];
  });
  assert.deepEqual(states, ['reported', [0, task.usual], [1, task.usual]]);
  await close();
});

test('a page takes over the draft that another tab seals while it connects', async () => {
  const [task] = tasks;
  const { page, close } = await openSite(task);
  const left = await page.evaluate(async () => {
    const { visits, site, setTime, start } = /** @type {any} */ (globalThis);
    const visitor = new visits.Visitor(site);
    setTime(start + 0.5 * visits.dayLength);
    const tab = await visitor.open();
    await tab.decided(0);
    let looks = 0; // Init looks once, and the connection twice before the tab has sealed.
    const store = { ...visitor.store, sealed: async (/** @type {string} */ id) =>
      id === site.id && [2, 3].includes(++looks) ? [] : visitor.store.sealed(id) };
    const client = site.sdk.init({ ...site.options, store, spread: 3_600_000 });
    await visits.until(() => client.status.state === 'draft', () => `a draft: ${JSON.stringify(client.status)}`);
    tab.doona.close();
    await visits.leave();
    client.close();
    return (await visits.letters()).map((/** @type {any} */ one) => [one.epoch, one.letter]);
  });
  assert.deepEqual(left, [[0, task.usual]]);
  await close();
});
