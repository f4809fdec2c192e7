// What the SDK does to the page around it: prints {kind: {ours, peer}} of {lcp, inp, blocked}, in
// milliseconds; the peer is the same page without the SDK.
import { readFile } from 'node:fs/promises';

import { launch } from '../../www/test/harness.mjs';

const request = JSON.parse(await readFile(String(process.argv[2]), 'utf8'));
const browser = await launch();

/** Visits a page, presses its button for a second, and returns what it measured. @param {string} url */
async function visit(url) {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(url, { waitUntil: 'commit' });
  for (let i = 0; i < 10; i++) {
    await page.click('button');
    await page.waitForTimeout(100);
  }
  await page.waitForFunction('window.reported');
  const measured = await page.evaluate('window.measured');
  await context.close();
  return measured;
}

/** @type {Record<string, {ours: object[], peer: object[]}>} */
const result = {};
for (const [kind, asked] of Object.entries(request.tasks)) {
  result[kind] = { ours: [], peer: [] };
  for (let i = 0; i < request.visits; i++) {
    const query = String(new URLSearchParams(/** @type {any} */ (asked)));
    const pages = [['ours', query], ['peer', query.replace('task=', 'none=')]]; // a long address takes its time by itself
    if (i % 2) pages.reverse(); // who comes first finds a colder browser
    for (const [side, search] of pages) {
      result[kind]?.[/** @type {'ours' | 'peer'} */ (side)].push(await visit(`${request.site}/host.html?${search}`));
    }
  }
}
await browser.close();
console.log(JSON.stringify(result));
