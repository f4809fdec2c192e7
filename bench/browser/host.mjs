// Measures how much the SDK slows down the page that includes it. Prints {kind: {ours, peer}} with lists of
// {lcp, inp, blocked, cpu} in milliseconds. The peer is the same page without the SDK.
import { readFile } from 'node:fs/promises';

import { launch } from '../../www/test/harness.mjs';

const request = JSON.parse(await readFile(String(process.argv[2]), 'utf8'));
const browser = await launch();

/** @typedef {{name: string, ph: string, pid: number, tid: number, tdur?: number, args: any}} TraceEvent */

/**
 * Returns the most CPU time that the page's main thread spent on one task, in ms. Unlike the duration of a long task,
 * CPU time does not grow when other programs run.
 * @param {TraceEvent[]} events
 */
function longestWork(events) {
  const page = events.find(({ name, args }) => name === 'ParseHTML' && args.beginData?.url.includes('/host.html'));
  if (!page) throw new Error('the trace has no page');
  return Math.max(...events.map((e) => (e.pid === page.pid && e.tid === page.tid && e.ph === 'X' && e.tdur) ||
    0)) / 1000;
}

/** Visits a page, clicks its button ten times in a second, and returns the measured times. @param {string} url */
async function visit(url) {
  const context = await browser.newContext();
  const page = await context.newPage();
  await browser.startTracing(page, { categories: ['toplevel', 'devtools.timeline'] });
  await page.goto(url, { waitUntil: 'commit' });
  for (let i = 0; i < 10; i++) {
    await page.click('button');
    await page.waitForTimeout(100);
  }
  await page.waitForFunction('window.reported');
  const measured = await page.evaluate('window.measured');
  const { traceEvents } = JSON.parse((await browser.stopTracing()).toString());
  await context.close();
  return { ...measured, cpu: longestWork(traceEvents) };
}

/** @type {Record<string, {ours: object[], peer: object[]}>} */
const result = {};
for (const [kind, asked] of Object.entries(request.tasks)) {
  result[kind] = { ours: [], peer: [] };
  for (let i = 0; i < request.visits; i++) {
    const query = String(new URLSearchParams(/** @type {any} */ (asked)));
    // The peer's address is as long as ours, because a long address takes time by itself.
    const pages = [['ours', query], ['peer', query.replace('task=', 'none=')]];
    if (i % 2) pages.reverse(); // alternate the order: the first page runs in a colder browser
    for (const [side, search] of pages) {
      result[kind]?.[/** @type {'ours' | 'peer'} */ (side)].push(await visit(`${request.site}/host.html?${search}`));
    }
  }
}
await browser.close();
console.log(JSON.stringify(result));
