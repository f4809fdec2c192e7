// Firefox ESR, driven by puppeteer over WebDriver BiDi: playwright drives no ESR.
import assert from 'node:assert/strict';

import { launch } from 'puppeteer-core';

import { network, patience } from '../harness.mjs';
import { inPage, listen } from '../suite.mjs';

/** @param {import('../suite.mjs').Server} server */
export async function startFirefox({ site, tasks }) {
  const browser = await launch({
    browser: 'firefox', executablePath: process.env['FIREFOX'] ?? '/usr/bin/firefox-esr', timeout: patience,
    protocolTimeout: patience,
  });
  return {
    version: await browser.version(),
    stop: () => browser.close(),
    run: async (/** @type {string} */ name) => {
      const page = await browser.newPage();
      /** @type {string[]} */
      const complaints = [];
      page.on('console', (message) => complaints.push(message.text()));
      page.on('pageerror', (error) => complaints.push(String(error)));
      await page.evaluateOnNewDocument(listen);
      await page.goto(`${site}/blank.html`);
      const error = await page.evaluate(inPage, name, tasks);
      await page.close();
      assert.deepEqual(complaints.filter((text) => !network.test(text)), []);
      return error;
    },
  };
}
