// Times making one report in Chromium, with Doona and with the peer. Prints {kind: {ours, peer}}, samples in ms.
import { readFile } from 'node:fs/promises';

import { launch } from '../../www/test/harness.mjs';

const request = JSON.parse(await readFile(String(process.argv[2]), 'utf8'));
const browser = await launch();
const page = await browser.newPage();
await page.goto(`${request.site}/blank.html`);
const result = await page.evaluate(async ({ module, relay, offers, peer }) => {
  const load = (/** @type {string} */ file) => import(file);
  const ours = await load('/ours.js');
  const theirs = peer ? await load('/peer.js') : null;
  const code = new Uint8Array(await (await fetch(module)).arrayBuffer());
  /** @type {Record<string, object>} */
  const result = {};
  for (const { kind, bundle, value } of offers) {
    const raw = Uint8Array.from(atob(bundle), (c) => c.charCodeAt(0));
    const once = await ours.prepare(code, raw, value);
    result[kind] = await ours.sample(once, theirs && theirs.prepare(kind, relay));
  }
  return result;
}, request);
await browser.close();
console.log(JSON.stringify(result));
