// Tests that no call of the SDK waits forever, whatever hangs, and which error says so; awaits.test.mjs makes every
// await hang. The tests shorten all timers of five seconds or more, on a fast machine to a tenth. A visit that then
// ends otherwise than expected is repeated with the timers as they are: the machine may have become slow meanwhile.
import assert from 'node:assert/strict';
import { after, beforeEach, describe, test } from 'node:test';

import { launch, open, startTestServer } from './harness.mjs';

/** @type {Awaited<ReturnType<typeof startTestServer>>} */
let server;
/** @type {import('playwright-core').Browser} */
let browser;

beforeEach(async () => {
  server ??= await startTestServer();
  browser ??= await launch();
  haste ??= await measureHaste();
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

/** How many visits run at a time. */
const concurrency = 5;

/** By what the tests divide timers. @type {number | undefined} */
let haste;

/**
 * Chooses by what the tests may divide timers. The SDK's shortest limit on what works is 10 seconds, for the start of
 * its script. Divided, it must still be more than twice as long as a whole visit takes if nothing hangs.
 */
async function measureHaste() {
  const visits = await Promise.all(Array.from({ length: concurrency }, () => visit({})));
  for (const { code } of visits) assert.equal(code, 'reported');
  return Math.max(1, Math.min(10, 10_000 / 2.5 / Math.max(...visits.map(({ longest }) => longest))));
}

/** @param {string} part of an address that is never answered */
const noAnswer = (part) => `{
  const fetch = globalThis.fetch;
  globalThis.fetch = (to, init) => String(to).includes('${part}') ? new Promise(() => {}) : fetch(to, init);
}`;

/*
 * What hangs: the code that makes it hang, and the expected outcome. The code runs before connect, in `lateCases`
 * before report.
 */
/** @type {Record<string, [string, string]>} */
const cases = {
  'the task': [noAnswer('/v1/tasks/'), 'task-unreachable'],
  'a module': [noAnswer('.wasm'), 'module-failed'],
  "the worker's file": [noAnswer('doona-worker'), 'module-failed'],
  'a worker that never starts': [`globalThis.Worker = class { addEventListener() {} postMessage() {} };`, 'reported'],
  'a worker that never answers': ['Worker.prototype.postMessage = () => {};', 'module-failed'],
  'opening IndexedDB': ['IDBFactory.prototype.open = () => new EventTarget();', 'storage-unavailable'],
  'reading IndexedDB': ['IDBObjectStore.prototype.getAll = () => ({});', 'storage-unavailable'],
  'a digest': ['crypto.subtle.digest = () => new Promise(() => {});', 'module-failed'],
  "the page's load event": [`Object.defineProperty(document, 'readyState', { get: () => 'interactive' });`, 'reported'],
  'an idle period': ['globalThis.requestIdleCallback = () => 1;', 'reported'],
  'a frame': ['globalThis.requestAnimationFrame = () => 1;', 'reported'],
};
/** @type {Record<string, [string, string]>} */
const lateCases = {
  'the relay': [noAnswer('/reports'), 'not-delivered'],
  'the worker at a report': ['Worker.prototype.postMessage = () => {};', 'module-failed'],
  'writing IndexedDB': [`IDBDatabase.prototype.transaction = () => ({
    objectStore: () => ({ getAll: () => ({}), get: () => ({}), put() {} }), abort() {} });`, 'storage-unavailable'],
};

/**
 * Connects and reports in a new page. Returns the outcome, and how long the longest call took in milliseconds.
 * @param {{before?: string, between?: string}} damage
 * @param {number} divisor of the timers of five seconds or more
 */
async function visit({ before = '', between = '' }, divisor = 1) {
  const context = await browser.newContext();
  try {
    const { page } = await open(context, `${server.site}/blank.html`);
    return /** @type {{code: string, longest: number}} */ (await page.evaluate(`(async () => {
      const wait = globalThis.setTimeout;
      globalThis.setTimeout = (f, ms) => wait(f, ms >= 5000 ? ms / ${divisor} : ms);
      const { connect } = await import('/doona.js');
      const offer = ${JSON.stringify(server.tasks['truthful'])};
      let longest = 0;
      const timed = async (call) => {
        const begin = performance.now();
        try {
          return await call();
        } finally {
          longest = Math.max(longest, performance.now() - begin);
        }
      };
      try {
        ${before}
        const doona = await timed(() => connect({ ...offer, budget: { epsilon: 10, delta: 1, days: 1 }, maxDelta: 1,
          spread: 0, flush: false }));
        ${between}
        await timed(() => doona.report(1));
        return { code: 'reported', longest };
      } catch (error) {
        return { code: error.code ?? String(error), longest };
      }
    })()`));
  } finally {
    await context.close();
  }
}

/** @param {string} what @param {string} want @param {{before?: string, between?: string}} damage */
function testHang(what, want, damage) {
  test(`${what} hangs: ${want}`, async () => {
    let divisor = Number(haste);
    let { code, longest } = await visit(damage, divisor);
    if (code !== want) ({ code, longest } = await visit(damage, (divisor = 1)));
    assert.equal(code, want);
    assert.ok(longest < 35_000 / divisor + 2000, `${longest} ms`); // 2 seconds for a slow machine
  });
}

test('the database of a newer version is used as far as it is known', async () => {
  const context = await browser.newContext();
  try {
    const { page } = await open(context, `${server.site}/blank.html`);
    const repeated = await page.evaluate(`(async () => {
      await new Promise((resolve, reject) => {
        const opening = indexedDB.open('doona', 7);
        opening.onupgradeneeded = () => {
          opening.result.createObjectStore('reports', { keyPath: ['task', 'epoch'] });
          opening.result.createObjectStore('lines', { keyPath: 'id' });
          opening.result.createObjectStore('later');
        };
        opening.onsuccess = () => resolve(opening.result.close());
        opening.onerror = reject;
      });
      const { connect } = await import('/doona.js');
      const offer = ${JSON.stringify(server.tasks['truthful'])};
      const doona = await connect({ ...offer, budget: { epsilon: 10, delta: 1, days: 1 }, maxDelta: 1, spread: 0 });
      return [(await doona.report(1)).repeated, (await doona.report(1)).repeated];
    })()`);
    assert.deepEqual(repeated, [false, true]);
  } finally {
    await context.close();
  }
});

describe('what hangs', { concurrency }, () => {
  for (const [what, [before, want]] of Object.entries(cases)) testHang(what, want, { before });
  for (const [what, [between, want]] of Object.entries(lateCases)) testHang(what, want, { between });
});
