// Counts visits whose report reaches the relay, by sender and by length of the visit in seconds. Prints
// {kind: {cold: {1: visits, 3: …, 10: …}, cached: …}} for one network. A visit ends when the script closes the tab:
// at its full length, or as soon as the report has arrived. Cached visits reuse the profile of the 10 s cold visit.
import { readFile } from 'node:fs/promises';

import { launch } from '../../www/test/harness.mjs';

/** What Chromium emulates: throughput in bytes per second, latency in ms, and `slower`, the CPU's slowdown factor. */
const networks = {
  '10mbit-40ms': { slower: 1, offline: false, latency: 40, downloadThroughput: 1.25e6, uploadThroughput: 1.25e6 },
  '1.6mbit-150ms': { slower: 6, offline: false, latency: 150, downloadThroughput: 2e5, uploadThroughput: 9.375e4 },
};

/** Lengths of visits, in seconds. */
const lengths = [1, 3, 10];

/** How long after a visit its report may still arrive, in milliseconds. */
const patience = 2000;

const request = JSON.parse(await readFile(String(process.argv[2]), 'utf8'));
const { slower, ...network } = /** @type {any} */ (networks)[request.network];
const browser = await launch();

/** Asks the relay whether a report has arrived since the previous call. */
const arrived = async () => (await (await fetch(`${request.relay}/arrived`)).text()) !== '0';

/** Waits until a report arrives, or the time is over. Returns whether it arrived. @param {number} milliseconds */
async function arrivesWithin(milliseconds) {
  for (const end = Date.now() + milliseconds; ;) {
    if (await arrived()) return true;
    if (Date.now() >= end) return false;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/**
 * Visits a page, closes it after `seconds`, and returns whether its report arrived.
 * @param {Awaited<ReturnType<typeof browser.newContext>>} context @param {string} url @param {number} seconds
 */
async function visit(context, url, seconds) {
  const page = await context.newPage();
  const session = await context.newCDPSession(page);
  await session.send('Network.emulateNetworkConditions', network);
  await session.send('Emulation.setCPUThrottlingRate', { rate: slower });
  await arrived(); // resets the relay's counter
  page.goto(url, { waitUntil: 'commit' }).catch(() => {}); // fails if the page is closed before it has loaded
  const early = await arrivesWithin(1000 * seconds);
  await page.close({ runBeforeUnload: true });
  const late = early || await arrivesWithin(patience);
  await page.close(); // the first close does not close a page that has not loaded
  return late;
}

const query = (/** @type {object} */ more) => new URLSearchParams(/** @type {any} */ (more));
/** @type {Record<string, (task: string) => string>} */
const pages = {
  idle: (task) => `arrives.html?${query({ ...request.tasks[task], when: 'idle' })}`,
  now: (task) => `arrives.html?${query({ ...request.tasks[task], when: 'now' })}`,
  ...(request.peer && { peer: () => `arrives-peer.html?${query({ relay: request.relay })}` }),
  beacon: () => `arrives-beacon.html?${query({ relay: request.relay })}`,
};

/** @type {Record<string, {cold: Record<number, any>, cached: Record<number, any>}>} */
const counts = {};
for (let i = 0; i < request.visits; i++) {
  for (const [kind, page] of Object.entries(pages)) {
    const count = (counts[kind] ??= { cold: { 1: 0, 3: 0, 10: 0 }, cached: { 1: 0, 3: 0, 10: 0 } });
    let context = await browser.newContext();
    for (const seconds of lengths) {
      await context.close();
      context = await browser.newContext();
      count.cold[seconds] += Number(await visit(context, `${request.site}/${page('cold')}`, seconds));
    }
    for (const seconds of lengths) {
      const url = `${request.site}/${page(`cached${seconds}`)}`;
      count.cached[seconds] += Number(await visit(context, url, seconds));
    }
    await context.close();
  }
}
await browser.close();
console.log(JSON.stringify(counts));
