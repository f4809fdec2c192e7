// The cases of cases.mjs in Chromium, Node 22 and workerd, against a relay on another origin whose
// Go code opens what arrives. All other engines are in engines/.
import assert from 'node:assert/strict';

import { cases } from './cases.mjs';
import { launch, network, open, startWorkerd } from './harness.mjs';
import { inPage, suite } from './suite.mjs';

suite('Node 22', async ({ site, tasks }) => {
  assert.match(process.version, /^v22\./);
  const built = '../../build/www/doona.js';
  /** @type {import('./suite.mjs').SDK} */
  const sdk = await import(built);
  return {
    version: process.version,
    run: async (name) => void (await cases[name]?.({ sdk, site, tasks, options: { store: sdk.memoryStore() } })),
  };
});

suite('Chromium', async ({ site, tasks }) => {
  const browser = await launch();
  const context = await browser.newContext();
  return {
    version: browser.version(),
    stop: () => browser.close(),
    run: async (name) => {
      const { page, complaints } = await open(context, `${site}/blank.html`);
      const error = await page.evaluate(`(${inPage})(${JSON.stringify(name)}, ${JSON.stringify(tasks)})`);
      const workers = page.workers().length;
      await page.close();
      assert.ok(workers <= 1, `${workers} workers`);
      assert.deepEqual(complaints.filter((text) => !network.test(text)), []);
      return /** @type {string | null} */ (error);
    },
  };
});

suite('workerd', async ({ site, tasks }) => {
  const { url, version, stop } = await startWorkerd();
  return {
    version,
    stop,
    run: async (name) => {
      const response = await fetch(url, { method: 'POST', body: JSON.stringify({ name, site, tasks }) });
      return response.ok ? (await response.json()).error : `workerd answered ${response.status}: ${await response.text()}`;
    },
  };
});
