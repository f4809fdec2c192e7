// Tests the demo page while short epochs end and begin. It uses cmd/demo, as demo.test.mjs does.
import assert from 'node:assert/strict';
import { after, beforeEach, test } from 'node:test';
import { setTimeout } from 'node:timers/promises';

import { launch, long, open, startDemo } from './harness.mjs';
import { stateOf } from './pages.mjs';

/** @type {import('playwright-core').Browser} */
let browser;
beforeEach(async () => {
  browser ??= await launch();
});
after(() => browser?.close());

test('who reports in a batch that is cut short goes into the next epoch, whatever others of its epoch had', async () => {
  const [batch, length] = [200, 15];
  const demo = await startDemo('--users', '200', '--batch', String(batch), '--epoch', String(length));
  try {
    const visitor = async (/** @type {number} */ network) => {
      const context = await browser.newContext();
      await context.route(/\/reports$/, (route) => // This is how a proxy tells the relay the client's network.
        route.continue({ headers: { ...route.request().headers(), 'x-forwarded-for': `fdff:0:${network}::1` } }));
      return (await open(context, demo.url)).page;
    };
    const [one, two] = await Promise.all([visitor(1), visitor(2)]);
    const epoch = (await stateOf(demo.url)).epoch.number;
    while ((await stateOf(demo.url)).epoch.number === epoch) await setTimeout(50); // Both report in the same epoch.
    await one.locator('#send:enabled').click();
    await one.getByText(/^Released: your report is in the estimate/).waitFor();
    let cut = 0;
    await two.route(/\/fill$/, (route) =>
      cut++ === 0 ? route.fulfill({ status: 410, body: '' }) : route.continue());
    await two.locator('#send:enabled').click();
    await two.getByText('The epoch ended before its batch was full').waitFor();
    assert.equal(await two.getByText(/^Released/).count(), 0);
    await two.getByText(/^Released: your report is in the estimate/).waitFor();
    const { history } = await stateOf(demo.url);
    assert.deepEqual(history.map((/** @type {any} */ row) => row.users), [batch, batch]);
    assert.equal(history[1].epoch, history[0].epoch + 1);
  } finally {
    await demo.stop();
  }
});

test('a click at any moment, on a slow device, ends in an estimate that counts it, and no raw error', async () => {
  const [visitors, clicks] = long ? [5, 10] : [2, 1];
  const batch = 100;
  const demo = await startDemo('--users', String(batch), '--batch', String(batch), '--epsilon', '4', '--epoch', '20');
  /** How many clicks ended as counted, by epoch. @type {Map<number, number>} */
  const counted = new Map();
  const visit = async (/** @type {number} */ i) => {
    const context = await browser.newContext();
    // Gives each visitor its own network, as a proxy would report it: the relay accepts one report per network.
    await context.route(/\/reports$/, (route) =>
      route.continue({ headers: { ...route.request().headers(), 'x-forwarded-for': `fdff:0:${i + 1}::1` } }));
    const { page, complaints } = await open(context, demo.url);
    await (await context.newCDPSession(page)).send('Emulation.setCPUThrottlingRate', { rate: 6 });
    let epoch = -1;
    page.on('request', (request) => {
      const [, number] = /\/epochs\/(\d+)\/reports$/.exec(request.url()) ?? [];
      if (number) epoch = Number(number);
    });
    await page.evaluate(() => {
      const status = /** @type {HTMLElement} */ (document.getElementById('status'));
      new MutationObserver(() => status.classList.contains('bad') && console.error(status.textContent))
        .observe(status, { attributes: true, childList: true });
    });
    for (let click = 0; click < clicks; click++) {
      await page.waitForTimeout(20_000 * Math.random());
      await page.locator('#send:enabled').click();
      await page.locator('#send:disabled').waitFor();
      await page.getByText(/^Released: your report is in the estimate/).waitFor();
      counted.set(epoch, (counted.get(epoch) ?? 0) + 1);
    }
    assert.deepEqual(complaints.filter((text) => !/410/.test(text)), []);
    await context.close();
  };
  try {
    await Promise.all(Array.from({ length: visitors }, (_, i) => visit(i)));
    assert.equal([...counted.values()].reduce((a, b) => a + b), visitors * clicks);
    for (const [epoch, own] of counted) {
      const users = async () => {
        const { history } = await stateOf(demo.url);
        return history.find((/** @type {any} */ row) => row.epoch === epoch).users;
      };
      // Another batch of the epoch may still be on its way.
      const deadline = Date.now() + 20_000;
      while ((await users()) < own * batch && Date.now() < deadline) await setTimeout(100);
      assert.ok((await users()) >= own * batch, `epoch ${epoch} counts ${await users()} for ${own} clicks`);
    }
  } finally {
    await demo.stop();
  }
});
