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
 * @param {Awaited<ReturnType<typeof browser.newContext>>} context
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
  const times = { cold: await visit(context, cold), cached: await visit(context, cached) };
  await context.close();
  return times;
}

const address = (/** @type {string} */ state) => `${request.site}/first.html?${new URLSearchParams(request.tasks[state])}`;
const peerAddress = `${request.site}/first-peer.html?${new URLSearchParams({ relay: request.relay })}`;
/** @type {Record<'cold' | 'cached', {ours: number[], peer: number[]}>} */
const times = { cold: { ours: [], peer: [] }, cached: { ours: [], peer: [] } };

/** @param {'ours' | 'peer'} whose @param {string} cold @param {string} cached */
async function measure(whose, cold, cached) {
  const got = await profile(cold, cached);
  times.cold[whose].push(got.cold);
  times.cached[whose].push(got.cached);
}

for (let i = 0; i < request.visits; i++) {
  await measure('ours', address('cold'), address('cached'));
  if (request.peer) await measure('peer', peerAddress, peerAddress);
}
await browser.close();
console.log(JSON.stringify(times));
