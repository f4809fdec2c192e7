// The demo page against the real road: cmd/demo with its relays and verifier.
import assert from 'node:assert/strict';
import { mkdir } from 'node:fs/promises';
import { after, before, test } from 'node:test';

import { launch, open, startDemo } from './harness.mjs';

const shots = new URL('../../build/screenshots/', import.meta.url).pathname;

/** @type {import('playwright-core').Browser} */
let browser;

before(async () => {
  await mkdir(shots, { recursive: true });
  browser = await launch();
});
after(() => browser?.close());

/**
 * Reports on the page and waits until the epoch is released.
 * @param {import('playwright-core').Page} page
 */
async function reportAndWait(page) {
  await page.locator('#send:enabled').press('Enter');
  await page.getByText(/^You have reported in epoch \d+: one report.* next epoch starts in \d+ s\.$/).waitFor();
  assert.equal(await page.locator('#send').isDisabled(), true);
  await page.waitForFunction(() => document.querySelectorAll('#life [data-state="done"]').length === 5);
}

test('a person reports a delay, and the estimate appears with its interval and the truth', async () => {
  const demo = await startDemo();
  try {
    const context = await browser.newContext({ colorScheme: 'light', viewport: { width: 1180, height: 900 } });
    const { page, complaints } = await open(context, demo.url);
    await page.locator('#send:enabled').waitFor();
    assert.match(await page.locator('#promise').innerText(), /factor 2\.72.*1 in 1,000,000/s);
    await page.getByRole('slider').press('ArrowRight');
    assert.equal(await page.locator('#picker output').innerText(), '61 minutes');
    await reportAndWait(page);

    assert.match(await page.locator('#status').innerText(), /Released/);
    assert.match(await page.locator('#life').innerText(), /your address and [\d,]+ sealed bytes/);
    assert.equal(await page.locator('#chart circle.estimate').count(), 1);
    assert.equal(await page.locator('#chart .band').count(), 1);
    assert.equal(await page.locator('#chart .truth').count(), 1);
    const released = await history(demo.url);
    assert.equal(released.users, 1000, 'the person and 999 simulated clients');
    assert.ok(Math.abs(released.estimate - released.truth) < 6 * released.standard_error);
    await page.screenshot({ path: `${shots}demo-mean-light.png`, fullPage: true });

    assert.deepEqual(complaints, []);
    await context.close();
  } finally {
    await demo.stop();
  }
});

test('a person reports a bin, and the histogram appears', async () => {
  const demo = await startDemo('--query', 'histogram', '--bins', '8', '--range', '-30,150');
  try {
    const context = await browser.newContext({ colorScheme: 'dark', viewport: { width: 1180, height: 900 } });
    const { page, complaints } = await open(context, demo.url);
    await page.getByRole('radio').nth(2).check({ force: true });
    await reportAndWait(page);
    assert.equal(await page.locator('#chart .bar').count(), 8);
    assert.equal(await page.locator('#chart .whisker').count(), 8);
    const { estimate, truth, standard_error: error } = await history(demo.url);
    estimate.forEach((/** @type {number} */ count, /** @type {number} */ bin) =>
      assert.ok(Math.abs(count - truth[bin]) < 6 * error[bin] + 1, `bin ${bin}: ${count}, truth ${truth[bin]}`));
    await page.screenshot({ path: `${shots}demo-histogram-dark.png`, fullPage: true });
    assert.deepEqual(complaints, []);
    await context.close();
  } finally {
    await demo.stop();
  }
});

/** @param {string} url */
async function history(url) {
  const state = /** @type {any} */ (await (await fetch(`${url}/api/demo`)).json());
  assert.equal(state.history.length, 1);
  return state.history[0];
}
