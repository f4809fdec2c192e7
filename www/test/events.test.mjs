// Tests tasks with rare events in Chromium: no window may have more events than the task allows, or more reports,
// whatever visitors, tabs and clocks do. What left is decrypted by the test server.
import assert from 'node:assert/strict';
import { after, beforeEach, test } from 'node:test';

import { launch, long, network, open, startTestServer } from './harness.mjs';

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
    Object.assign(globalThis, { visits, setTime: visits.stopClock(), site: new visits.Site(sdk, offer, event, usual) });
    const doona = await sdk.connect({ .../** @type {any} */ (globalThis).site.options, store: sdk.memoryStore() });
    doona.close();
    Object.assign(globalThis, { start: 1000 * doona.task.epochs.start });
  }, /** @type {const} */ ([/** @type {any} */ (server.tasks[name]), event, usual]));
  return { page, complaints, close: () => context.close() };
}

for (const task of tasks) {
  // 26 patterns in short runs, with the one that has an event every day, and two that need the window's last day.
  const step = long ? 1 : 31;
  const extra = [728, 2 + 6 + 162 + 486, 2 + 54];
  const patterns = Array.from({ length: Math.floor(729 / step) }, (_, i) => i * step);
  for (const one of extra) if (!patterns.includes(one)) patterns.push(one);

  test(`"${task.name}": ${patterns.length} patterns of visits and events in 6 days leave what Go decides`, async () => {
    const { page, complaints, close } = await openSite(task);
    const began = performance.now();
    /** @type {Awaited<ReturnType<typeof import('./event-visits.mjs').livePatterns>>} */
    const lived = [];
    for (let i = 0; i < patterns.length; i += 81) {
      lived.push(...(await page.evaluate((some) => {
        const { visits, site, setTime, start } = /** @type {any} */ (globalThis);
        return visits.livePatterns(site, setTime, some, start);
      }, patterns.slice(i, i + 81))));
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
  const [count, rounds] = long ? [90, 60] : [18, 12];
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
    assert.ok(sums.events > 10 && sums.reports > sums.events && (sums.refused > 0) === (task.cap !== undefined));
    assert.ok([0, 1, 2, 3].every((at) => !long || Number(deaths[at]) > 0), `deaths: ${deaths}`);
    assert.deepEqual(complaints.filter((text) => !network.test(text)), []);
    const seconds = ((performance.now() - began) / 1000).toFixed(1);
    console.log(`${task.name}, seed ${seed}, ${seconds} s: ${JSON.stringify(sums)}, deaths by writes: ${deaths}`);
    await close();
  });
}
