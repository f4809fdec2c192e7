// Tests the demo's second page, a site's month. cmd/demo simulates the month while the page waits.
import assert from 'node:assert/strict';
import { after, beforeEach, test } from 'node:test';

import { launch, open, startDemo } from './harness.mjs';
import { numbersIn, requireAccessible, screenshotAt } from './pages.mjs';

/** @type {import('playwright-core').Browser} */
let browser;
beforeEach(async () => {
  browser ??= await launch();
});
after(() => browser?.close());

test('the month has every panel, its numbers match its JSON, and entries below the noise floor are marked', async () => {
  const demo = await startDemo('--users', '200', '--batch', '200', '--seed', '7');
  try {
    const context = await browser.newContext({ colorScheme: 'light', reducedMotion: 'reduce',
      viewport: { width: 1280, height: 900 } });
    const { page, complaints } = await open(context, demo.url);
    await page.getByRole('link', { name: 'a site’s month' }).click(); // On the demo's first page.
    assert.equal(await page.locator('h1').innerText(), 'A site’s month');
    assert.match(await page.locator('#status').innerText(), /^Simulating the month…/);
    await page.locator('#month').waitFor();
    await page.locator('#budget-chart svg').waitFor();
    const month = /** @type {any} */ (await (await fetch(`${demo.url}/api/month`)).json());
    assert.equal(month.seed, 7);

    const { total, days } = month.visits;
    assert.deepEqual(await numbersIn(page, '#visits-answer'), [total.estimate, ...total.interval]);
    assert.equal(await page.locator('#visits-chart .bar').count(), 30);
    assert.equal(await page.locator('#visits-chart .whisker').count(), 30);
    await page.getByText('Visits in numbers').press('Enter');
    assert.deepEqual(await numbersIn(page, '#visits'), days.flatMap((/** @type {any} */ d) =>
      [d.reports, d.estimate, ...d.interval.map(atLeast0), d.truth]));

    for (const [id, rows] of /** @type {const} */ ([['pages', 20], ['referrers', 12], ['countries', 32]])) {
      const list = month[id].entries.slice(0, rows);
      assert.equal(await page.locator(`#${id} tbody tr`).count(), rows);
      assert.equal(await page.locator(`#${id} tbody .bar`).count(), rows);
      assert.deepEqual(await numbersIn(page, `#${id} tbody`), list.flatMap((/** @type {any} */ e) =>
        [e.seen ? e.estimate : atLeast0(e.band[1]), ...e.interval.map(atLeast0)]));
      const below = list.filter((/** @type {any} */ e) => !e.seen).length;
      assert.equal(await page.locator(`#${id} tbody tr.below`).count(), below);
    }
    assert.ok((await page.locator('#countries .below').count()) > 0, 'some countries are below the noise floor');
    assert.match(await page.locator('#countries .below').first().innerText(), /under \d/);
    await page.getByText('All 1,000 listed pages, and other').press('Enter');
    await page.locator('#pages-all tbody tr').last().waitFor(); // The toggle event fills the table.
    assert.equal(await page.locator('#pages-all tbody tr').count(), 1001);

    assert.equal(await page.locator('#devices figure .bar').count(), 36);
    assert.equal(await page.locator('#pairs figure .bar').count(), 36);
    const [phone] = month.speed.devices;
    assert.equal((await numbersIn(page, '#devices dt'))[1], 100 * phone.good.estimate);
    const [pair] = month.speed.differences;
    assert.match(await page.locator('#pairs h4').first().innerText(), /^Phone less desktop$/);
    assert.equal((await numbersIn(page, '#pairs dt'))[0], 100 * pair.good.estimate);

    const { budget } = month;
    assert.ok(budget.composed_epsilon <= budget.epsilon);
    assert.deepEqual(await numbersIn(page, '#budget-answer', { bounds: true }),
      [budget.composed_epsilon, budget.each_composed, budget.epsilon_sum]);
    assert.equal(await page.locator('#budget tbody tr').count(), 5);
    assert.match(await page.locator('#coverage').innerText(), /of 32,460 \(9\d\.\d %\) hold the truth/);
    assert.match(await page.locator('#made').innerText(), /Nothing was encrypted, sent or shuffled/);
    await requireAccessible(page, 'light', 'dark');
    await screenshotAt(page, 'month-open-390', 390, 'light'); // With all tables open.
    await page.locator('details').evaluateAll((all) => all.forEach((of) => of.removeAttribute('open')));
    for (const width of [1280, 390]) {
      for (const colors of /** @type {const} */ (['light', 'dark'])) {
        await screenshotAt(page, `month-${width}-${colors}`, width, colors);
      }
    }
    assert.deepEqual(complaints, []);
    await context.close();
  } finally {
    await demo.stop();
  }
});

/**
 * Cuts x at 0, as the page does: counts are never negative, but intervals may be.
 * @param {number} x
 */
function atLeast0(x) {
  return Math.max(0, x);
}
