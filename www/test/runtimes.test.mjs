// The cases of cases.mjs in Chromium, Node 22 and workerd, against a relay on another origin whose
// Go code opens what arrives.
import assert from 'node:assert/strict';
import { after, beforeEach, describe, test } from 'node:test';

import { cases } from './cases.mjs';
import { launch, network, open, startTestServer, startWorkerd } from './harness.mjs';

/** @typedef {typeof import('../sdk/index.js')} SDK */

/** @type {Awaited<ReturnType<typeof startTestServer>>} */
let server;
beforeEach(async () => {
  server ??= await startTestServer();
});
after(() => server?.stop());

/**
 * Runs every case; `run` resolves to the error of one, or to nothing.
 * @param {(name: string) => Promise<string | null | undefined>} run
 */
function suite(run) {
  for (const name of Object.keys(cases)) {
    test(name, async () => {
      await server.fail();
      await server.take();
      const error = await run(name);
      if (error) assert.fail(error);
    });
  }
}

describe('Node 22', () => {
  test('it is', () => assert.match(process.version, /^v22\./));
  suite(async (name) => {
    const { site, tasks } = server;
    const built = '../../build/www/doona.js';
    /** @type {SDK} */
    const sdk = await import(built);
    const options = { store: sdk.memoryStore() };
    await cases[name]?.({ sdk, site, tasks, options });
  });
});

describe('Chromium', () => {
  /** @type {import('playwright-core').Browser} */
  let browser;
  /** @type {import('playwright-core').BrowserContext} */
  let context;
  beforeEach(async () => {
    browser ??= await launch();
    context ??= await browser.newContext();
  });
  after(() => browser?.close());

  suite(async (name) => {
    const { page, complaints } = await open(context, `${server.site}/blank.html`);
    const error = await page.evaluate(
      async ({ name, tasks }) => {
        const load = (/** @type {string} */ file) => import(file);
        const [sdk, { cases }] = await Promise.all([load('/doona.js'), load('/test/cases.mjs')]);
        await new Promise((resolve) => (indexedDB.deleteDatabase('doona').onsuccess = resolve));
        try {
          await cases[name]({ sdk, site: location.origin, tasks, options: {} });
          return null;
        } catch (error) {
          return /** @type {Error} */ (error).stack;
        }
      },
      { name, tasks: server.tasks },
    );
    const workers = page.workers().length;
    await page.close();
    assert.ok(workers <= 1, `${workers} workers`);
    assert.deepEqual(complaints.filter((text) => !network.test(text)), []);
    return error;
  });
});

describe('workerd', () => {
  /** @type {Awaited<ReturnType<typeof startWorkerd>>} */
  let workerd;
  beforeEach(async () => {
    workerd ??= await startWorkerd();
  });
  after(() => workerd?.stop());

  suite(async (name) => {
    const { site, tasks } = server;
    const response = await fetch(workerd.url, { method: 'POST', body: JSON.stringify({ name, site, tasks }) });
    return response.ok ? (await response.json()).error : `workerd answered ${response.status}: ${await response.text()}`;
  });
});
