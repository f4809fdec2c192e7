// Measures the time from navigation until the relay acknowledges the first report, in ms. Prints
// {plain: {ours, peer, phases}, cold: …, cached: …}; phases is the median time until each file was loaded.
import { readFile } from 'node:fs/promises';
import { setTimeout as pause } from 'node:timers/promises';

import { launch } from '../../www/test/harness.mjs';

/** What Chromium emulates: throughput in bytes per second, and latency in milliseconds. */
const networks = {
  '1.6mbit-150ms': { offline: false, latency: 150, downloadThroughput: 2e5, uploadThroughput: 9.375e4 },
  '10mbit-40ms': { offline: false, latency: 40, downloadThroughput: 1.25e6, uploadThroughput: 1.25e6 },
};

const request = JSON.parse(await readFile(String(process.argv[2]), 'utf8'));
const browser = await launch();

/** Milliseconds to wait first: the window of a new profile also loads pages of the browser. Real visitors' are open. */
const settling = 1500;

/** @typedef {{reported: number, ended: Record<string, number>}} Visit times in ms since the start of navigation */

/**
 * Opens a page. Returns when its report was acknowledged and when each file was loaded.
 * @param {Awaited<ReturnType<typeof browser.newContext>>} context
 * @param {string} url
 * @returns {Promise<Visit>}
 */
async function visit(context, url) {
  const page = await context.newPage();
  await pause(settling);
  const network = /** @type {any} */ (networks)[request.network];
  if (network) await (await context.newCDPSession(page)).send('Network.emulateNetworkConditions', network);
  // Evaluate nothing in the page before it has reported: evaluating takes time of its main thread.
  const reported = page.waitForEvent('console', { predicate: (message) => message.text() === 'reported' });
  await page.goto(url, { waitUntil: 'commit' });
  await reported;
  const visited = await page.evaluate(() => {
    /** @type {Record<string, number>} */
    const ended = {};
    const files = performance.getEntriesByType('resource');
    for (const { name, responseEnd } of /** @type {PerformanceResourceTiming[]} */ (files)) {
      ended[new URL(name).pathname.replace(/-?[0-9a-f]{12,64}/, '')] = responseEnd;
    }
    return { reported: /** @type {any} */ (globalThis).reported, ended };
  });
  await page.close();
  return visited;
}

const pages = {
  ours: (/** @type {string} */ state, plain = '') =>
    `${request.site}/${plain}first.html?${new URLSearchParams(request.tasks[state])}`,
  // With the state, no page itself is cached: a visitor's page rarely is.
  peer: (/** @type {string} */ state, plain = '') =>
    `${request.site}/${plain}first-peer.html?${new URLSearchParams({ relay: request.relay, state })}`,
};

/** @type {Record<string, {ours: number[], peer: number[], phases: Record<string, number[]>}>} */
const times = {};

/** @param {'ours' | 'peer'} whose @param {string} state @param {Visit} visited */
function note(whose, state, { reported, ended }) {
  const row = (times[state] ??= { ours: [], peer: [], phases: {} });
  row[whose].push(reported);
  for (const [file, end] of Object.entries(ended)) (row.phases[`${whose} ${file}`] ??= []).push(end);
}

/** Makes a plain visit in a fresh profile, then a cold and a cached visit in another. @param {'ours' | 'peer'} whose */
async function measure(whose) {
  const first = await browser.newContext();
  note(whose, 'plain', await visit(first, pages[whose]('plain', 'plain-')));
  await first.close();
  const context = await browser.newContext();
  for (const state of ['cold', 'cached']) note(whose, state, await visit(context, pages[whose](state)));
  await context.close();
}

for (let i = 0; i < request.visits; i++) {
  await measure('ours');
  if (request.peer) await measure('peer');
}
await browser.close();
const median = (/** @type {number[]} */ list) => Math.round(Number(list.toSorted((a, b) => a - b)[list.length >> 1]));
console.log(JSON.stringify(times, (key, value) => key !== 'phases' ? value
  : Object.fromEntries(Object.entries(value).map(([file, ends]) => [file, median(ends)]))));
