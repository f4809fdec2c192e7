// Runs the cases of cases.mjs in an engine, for chromium.test.mjs, node.test.mjs and the tests of other engines.
import assert from 'node:assert/strict';
import { appendFile } from 'node:fs/promises';
import { after, describe, test } from 'node:test';

import { cases } from './cases.mjs';
import { long, network, open, startTestServer } from './harness.mjs';

/** @typedef {typeof import('../sdk/index.js')} SDK */
/** @typedef {Awaited<ReturnType<typeof startTestServer>>} Server */

/**
 * Defines a test for every case. The first test starts the engine and its server, whose epochs of an hour are
 * too short for several engines. If DOONA_ENGINES names a file, it appends a line with the engine's version and the
 * number of passed cases.
 * @param {string} engine
 * @param {(server: Server) => Promise<{version: string, stop?: () => unknown,
 *   run: (name: string) => Promise<string | null | undefined>}>} start `run` resolves to the error of a case, or to
 *   null or undefined
 * @param {readonly string[]} names of the cases; default all
 */
export function suite(engine, start, names = Object.keys(cases)) {
  describe(engine, () => {
    /** @type {Server | undefined} */
    let server;
    /** @type {Awaited<ReturnType<typeof start>> | undefined} */
    let started;
    let passed = 0;
    after(async () => {
      try {
        await started?.stop?.();
      } finally {
        await server?.stop();
      }
      const { DOONA_ENGINES } = process.env;
      const line = { engine, version: started?.version, cases: names.length, passed };
      if (DOONA_ENGINES) await appendFile(DOONA_ENGINES, JSON.stringify(line) + '\n');
    });
    for (const name of names) {
      test(name, async () => {
        assert.ok(cases[name], 'no such case');
        server ??= await startTestServer();
        started ??= await start(server);
        await server.fail();
        await server.take();
        const error = await started.run(name);
        if (error) assert.fail(error);
        passed++;
      });
    }
  });
}

/**
 * Runs a case in a page; the tests send this function to the page as text. Resolves to the case's error, or to null.
 * @param {string} name
 * @param {Server['tasks']} tasks
 */
export async function inPage(name, tasks) {
  const load = (/** @type {string} */ file) => import(file);
  const [sdk, { cases }] = await Promise.all([load('/doona.js'), load('/test/cases.mjs')]);
  await new Promise((resolve) => (indexedDB.deleteDatabase('doona').onsuccess = resolve));
  try {
    await cases[name]({ sdk, site: location.origin, tasks, options: {} });
    return null;
  } catch (error) {
    return String(error) + /** @type {Error} */ (error).stack;
  }
}

/**
 * Returns a function that starts a browser for `suite`. All cases run in one page; in the long form, each case has its
 * own page. A case fails if the page writes to the console or has more than one worker.
 * @param {() => Promise<import('playwright-core').Browser>} launch
 */
export function inBrowser(launch) {
  return async (/** @type {Server} */ { site, tasks }) => {
    const browser = await launch();
    const context = await browser.newContext();
    /** @type {Awaited<ReturnType<typeof open>> | undefined} */
    let opened;
    return {
      version: browser.version(),
      stop: () => browser.close(),
      run: async (/** @type {string} */ name) => {
        const { page, complaints } = (opened ??= await open(context, `${site}/blank.html`));
        const error = await page.evaluate(`(${inPage})(${JSON.stringify(name)}, ${JSON.stringify(tasks)})`);
        const workers = page.workers().length;
        const said = complaints.splice(0).filter((text) => !network.test(text));
        if (long || error !== null || said.length > 0) {
          await page.close();
          opened = undefined;
        }
        assert.ok(workers <= 1, `${workers} workers`);
        assert.deepEqual(said, []);
        return /** @type {string | null} */ (error);
      },
    };
  };
}
