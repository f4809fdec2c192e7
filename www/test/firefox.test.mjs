// A smoke test in Firefox: some cases of cases.mjs under the site's strict policy. Playwright drives no
// Firefox ESR, so this one is driven by puppeteer over WebDriver BiDi. The whole list of cases runs in
// Chromium, Node 22 and workerd (runtimes.test.mjs).
import assert from 'node:assert/strict';
import { after, beforeEach, describe, test } from 'node:test';

import { launch } from 'puppeteer-core';

import { cases } from './cases.mjs';
import { network, patience, startTestServer } from './harness.mjs';

const smoke = [
  'webcrypto: what is sealed for "truthful" opens in Go',
  "webcrypto: another owner's task is refused",
  'webcrypto: a report with a token is taken, and the site\'s quota ends at two',
  'a post-quantum task is sealed by doona-full.wasm',
  'values outside the domain are refused and use up nothing',
  'several tasks share one ledger, which stops at maxTotalEpsilon',
  'an undelivered report waits and is sent at the next visit, without being asked',
];

describe('Firefox', () => {
  /** @type {Awaited<ReturnType<typeof startTestServer>>} */
  let server;
  /** @type {import('puppeteer-core').Browser} */
  let browser;
  beforeEach(async () => {
    server ??= await startTestServer();
    browser ??= await launch({
      browser: 'firefox', executablePath: process.env.FIREFOX ?? '/usr/bin/firefox-esr', timeout: patience,
        protocolTimeout: patience,
    });
  });
  after(async () => {
    await browser?.close();
    await server?.stop();
  });

  for (const name of smoke) {
    test(name, async () => {
      assert.ok(cases[name], 'no such case');
      await server.fail();
      await server.take();
      const page = await browser.newPage();
      /** @type {string[]} */
      const complaints = [];
      page.on('console', (message) => complaints.push(message.text()));
      page.on('pageerror', (error) => complaints.push(String(error)));
      await page.evaluateOnNewDocument(() => {
        addEventListener('securitypolicyviolation', (event) => {
          console.error(`violated ${event.violatedDirective}: ${event.blockedURI}`);
        });
      });
      await page.goto(`${server.site}/blank.html`);
      const error = await page.evaluate(
        async (name, tasks) => {
          const load = (/** @type {string} */ file) => import(file);
          const [sdk, { cases }] = await Promise.all([load('/doona.js'), load('/test/cases.mjs')]);
          await new Promise((resolve) => (indexedDB.deleteDatabase('doona').onsuccess = resolve));
          try {
            await cases[name]({ sdk, site: location.origin, tasks, options: {} });
            return null;
          } catch (error) {
            return String(error) + /** @type {Error} */ (error).stack;
          }
        },
        name, server.tasks,
      );
      await page.close();
      if (error) assert.fail(error);
      assert.deepEqual(complaints.filter((text) => !network.test(text)), []);
    });
  }
});
