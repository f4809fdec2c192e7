// Tests the web-vitals example. Real visits in new browser contexts report through the demo's relays to its verifier.
import assert from 'node:assert/strict';
import { after, beforeEach, test } from 'node:test';

import { launch, open, patience, startDemo } from './harness.mjs';
import { numbersIn, requireAccessible, screenshotAt, stateOf } from './pages.mjs';

const visits = 4;

/** @type {import('playwright-core').Browser} */
let browser;
beforeEach(async () => {
  browser ??= await launch();
});
after(() => browser?.close());

test('each visit reports its LCP and CLS once, and with enough of them both are released', async () => {
  const demo = await startDemo('--users', '1000', '--batch', '1000');
  try {
    for (let i = 0; i < visits; i++) await visit(`${demo.url}/examples/web-vitals/`);
    for (const task of ['lcp', 'cls']) {
      assert.equal((await stateOf(demo.url, task)).total, null, 'too few to be opened');
      await fill(demo.url, task, 1000 - visits);
      await released(demo.url, task, 1000);
    }
    await look(demo.url);
  } finally {
    await demo.stop();
  }
});

/**
 * Loads the page as a new visitor, clicks, and leaves. All visitors come from one network, which the task allows.
 * @param {string} url
 */
async function visit(url) {
  const context = await browser.newContext();
  const { page, complaints } = await open(context, url);
  /** @type {string[]} */
  const accepted = [];
  page.on('response', (response) => {
    if (response.request().method() === 'POST' && response.ok()) accepted.push(response.url());
  });
  await page.getByText('this visit can report').waitFor();
  await largestPaintIsKnown(page);
  await page.locator('h1').click(); // LCP is final at the first input.
  for (const metric of ['#LCP', '#CLS']) {
    const hasText = /^[\d.,]+( ms)? on this device; \d+ sealed bytes leave when you leave/;
    await page.locator(metric, { hasText }).waitFor();
  }
  assert.equal(accepted.length, 0, 'both reports wait until the visitor leaves');
  const sent = Promise.all(['lcp', 'cls'].map(() => page.waitForResponse((response) =>
    response.request().method() === 'POST' && response.ok())));
  await page.evaluate(() => {
    // Headless Chromium never hides a tab, so the test dispatches the event itself.
    Object.defineProperty(document, 'visibilityState', { value: 'hidden', configurable: true });
    document.dispatchEvent(new Event('visibilitychange', { bubbles: true }));
  });
  await sent;
  while (accepted.length < 2) await page.waitForTimeout(20);
  assert.equal(new Set(accepted.map((u) => u.split('/epochs/')[0])).size, 2,
    `both tasks' relays said yes: ${accepted}`);
  assert.deepEqual(complaints, []);
  await context.close();
}

/**
 * Waits until the browser has an entry for the largest paint. A click before that would end the browser's search, and
 * the visit would have no LCP.
 * @param {import('playwright-core').Page} page
 */
function largestPaintIsKnown(page) {
  return page.evaluate(() => new Promise((resolve) => {
    new PerformanceObserver(resolve).observe({ type: 'largest-contentful-paint', buffered: true });
  }));
}

/**
 * Opens the page and returns the results that it shows for all visits.
 * @param {string} url
 */
async function look(url) {
  const context = await browser.newContext({ colorScheme: 'light', viewport: { width: 1180, height: 900 } });
  const { page, complaints } = await open(context, `${url}/examples/web-vitals/`);
  await page.locator('#lcp-chart svg').waitFor();
  await page.locator('#cls-chart svg').waitFor();
  const [lcp, cls] = [await stateOf(url, 'lcp'), await stateOf(url, 'cls')];
  const p75 = lcp.distribution.quantiles.find((/** @type {any} */ q) => q.p === 0.75);
  assert.deepEqual(await numbersIn(page, '#lcp'), [p75.estimate, ...p75.interval]);
  assert.deepEqual(await numbersIn(page, '#cls'), [cls.total.estimate, ...cls.total.interval]);
  assert.equal(await page.locator('#lcp-chart .bar').count(), 12);
  await requireAccessible(page, 'light', 'dark');
  await screenshotAt(page, 'web-vitals-light', 1180, 'light');
  await screenshotAt(page, 'web-vitals-dark', 1180, 'dark');
  await screenshotAt(page, 'web-vitals-360', 360, 'light');
  assert.deepEqual(complaints, []);
  await context.close();
}

/** @param {string} url @param {string} task @param {number} clients */
async function fill(url, task, clients) {
  const response = await fetch(`${url}/api/${task}/fill`,
    { method: 'POST', body: JSON.stringify({ epoch: 0, clients }) });
  assert.equal(response.status, 200, await response.text());
}

/** @param {string} url @param {string} task @param {number} users */
async function released(url, task, users) {
  for (let attempt = 0; attempt < patience / 100; attempt++) {
    const { total } = await stateOf(url, task);
    if (total) return assert.equal(total.users, users);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  assert.fail(`${task} was not released: not all visits have reported`);
}
