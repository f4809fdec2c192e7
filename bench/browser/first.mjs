// Time from navigation to the first report acknowledged: prints {cold: {ours, peer}, cached: …}.
import { readFile } from 'node:fs/promises';

import { launch } from '../../www/test/harness.mjs';

/** What Chromium emulates: bytes per second each way, and milliseconds of latency. */
const networks = {
  '10mbit-40ms': { offline: false, latency: 40, downloadThroughput: 1.25e6, uploadThroughput: 1.25e6 },
};

const request = JSON.parse(await readFile(String(process.argv[2]), 'utf8'));
const browser = await launch();

/**
 * Opens a page and returns when it had reported, in milliseconds from the start of navigation.
 * @param {import('playwright-core').BrowserContext} context
 * @param {string} url
 * @returns {Promise<number>}
 */
async function visit(context, url) {
  const page = await context.newPage();
  const network = /** @type {any} */ (networks)[request.network];
  if (network) await (await context.newCDPSession(page)).send('Network.emulateNetworkConditions', network);
  await page.goto(url);
  const time = await page.waitForFunction('window.reported');
  const value = /** @type {number} */ (await time.jsonValue());
  await page.close();
  return value;
}

/** A cold and a cached visit in a fresh profile. @param {string} cold @param {string} cached */
async function profile(cold, cached) {
  const context = await browser.newContext();
  const times = [await visit(context, cold), await visit(context, cached)];
  await context.close();
  return times;
}

const address = (/** @type {string} */ state) => `${request.site}/first.html?${new URLSearchParams(request.tasks[state])}`;
const peerAddress = `${request.site}/first-peer.html?${new URLSearchParams({ relay: request.relay })}`;
/** @type {{ours: number[], peer: number[]}[]} */
const [cold, cached] = [{ ours: [], peer: [] }, { ours: [], peer: [] }];
for (let i = 0; i < request.visits; i++) {
  const [first, second] = await profile(address('cold'), address('cached'));
  cold.ours.push(first);
  cached.ours.push(second);
  if (request.peer) {
    const [peerFirst, peerSecond] = await profile(peerAddress, peerAddress);
    cold.peer.push(peerFirst);
    cached.peer.push(peerSecond);
  }
}
await browser.close();
console.log(JSON.stringify({ cold, cached }));
