// Plays visitors in Chromium, each with its own profile and network, who report one text each. Usage: visitors.mjs
// FILE, with {site, relay, task, owner, texts} in FILE. Prints the number of accepted reports. A test of cmd/demo runs
// it.
import { readFile } from 'node:fs/promises';

import { launch } from './harness.mjs';

/** @typedef {typeof import('../sdk/index.js')} SDK */

/** @type {{site: string, relay: string, task: string, owner: string, texts: string[]}} */
const { site, relay, task, owner, texts } = JSON.parse(await readFile(String(process.argv[2]), 'utf8'));
const browser = await launch();
let receipts = 0;
let next = 0;

/** @param {number} i */
async function visit(i) {
  const context = await browser.newContext();
  const network = `fdff:0:${(i + 1).toString(16)}::1`; // In the form in which a proxy tells it to the relay.
  await context.route(`${relay}/**`, (route) =>
    route.continue({ headers: { ...route.request().headers(), 'x-forwarded-for': network } }));
  const page = await context.newPage();
  await page.goto(`${site}/blank`);
  const receipt = await page.evaluate(async ({ task, owner, text }) => {
    const file = '/doona.js';
    /** @type {SDK} */
    const { connect } = await import(file);
    const doona = await connect({ task, owner, maxEpsilon: 1, maxDelta: 1e-6, maxTotalEpsilon: 1, spread: 0 });
    return doona.report(text);
  }, { task, owner, text: String(texts[i]) });
  if (!receipt.repeated) receipts++;
  await context.close();
}

await Promise.all(Array.from({ length: 4 }, async () => {
  while (next < texts.length) await visit(next++);
}));
await browser.close();
console.log(receipts);
