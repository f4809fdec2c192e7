// Tests the verifier's pages in rare states. `www/testserver -pages` makes these states.
import assert from 'node:assert/strict';
import { after, beforeEach, test } from 'node:test';

import { launch, open, startTestPages } from './harness.mjs';
import { numbersIn, requireAccessible, screenshotAt } from './pages.mjs';

/** @type {import('playwright-core').Browser} */
let browser;
/** @type {Awaited<ReturnType<typeof startTestPages>>} */
let pages;
beforeEach(async () => {
  browser ??= await launch();
  pages ??= await startTestPages();
});
after(() => Promise.all([browser?.close(), pages?.stop()]));

/**
 * Returns the ends of an interval, or none if it is null.
 * @param {[number, number] | null} interval
 * @returns {number[]}
 */
const ends = (interval) => interval ?? [];

/**
 * Opens the page of a state, runs `body`, checks what must hold in every state, and takes screenshots.
 * @param {string} state
 * @param {(page: import('playwright-core').Page, report: any) => Promise<void>} body
 */
async function onPage(state, body) {
  const context = await browser.newContext({ viewport: { width: 1180, height: 900 } });
  const { page, complaints } = await open(context, pages.url + pages.tasks[state]);
  page.on('dialog', () => assert.fail('a script ran'));
  const report = await (await fetch(`${pages.url}${pages.tasks[state]}api/report`)).json();
  await body(page, report);
  /** @type {('light' | 'dark')[]} */
  const colors = state === 'bins' ? ['light', 'dark'] : ['light'];
  await requireAccessible(page, ...colors);
  for (const color of colors) await screenshotAt(page, `verifier-${state}-${color}`, 1180, color);
  await screenshotAt(page, `verifier-${state}-360`, 360, 'light');
  assert.deepEqual(complaints, []);
  await context.close();
}

test('without a batch the page says what it waits for', () =>
  onPage('empty', async (page) => {
    assert.match(await page.locator('main').innerText(),
      /No batch has been released yet\. The first one comes when 40 clients/);
    assert.equal(await page.locator('.verdict').innerText(), 'Nothing has been added yet.');
  }));

test('a year of epochs is a series with a gap, and its numbers are the JSON\'s', () =>
  onPage('year', async (page, report) => {
    const [series, costs] = [page.locator('.chart').first(), page.locator('.chart').nth(1)];
    assert.equal(await series.locator('.point').count(), 365 - 14);
    assert.equal((await series.locator('.line').getAttribute('d'))?.match(/M/g)?.length, 2);
    assert.equal(await costs.locator('.point').count(), 365 - 14);
    assert.equal(await page.locator('.verdict').innerText(), 'Everything added up.');
    const figures = (/** @type {any} */ e) =>
      [e.estimate, ...ends(e.interval), e.standard_error, e.standard_error_worst];
    assert.deepEqual(await numbersIn(page, '[aria-label="Estimate"]'), figures(report));
    const { estimate, interval, method } = report.processed;
    assert.deepEqual(await numbersIn(page, '[aria-label="Nearest possible answer"]'), [estimate, ...ends(interval)]);
    assert.equal(method, 'clip');
    assert.match(await page.locator('main').innerText(), /Post-processed \(clip\): each number is moved/);
    const rows = report.ledger.epochs.reverse()
      .flatMap((/** @type {any} */ e) => [...figures(e), ...ends(e.band_over_epochs)]);
    assert.deepEqual(await numbersIn(page, '[aria-label="Epochs"]'), rows);
    const csv = await (await fetch(`${pages.url}${pages.tasks['year']}api/report.csv`)).text();
    assert.equal(csv.trim().split('\n').length, 1 + 1 + 351);
    assert.ok(csv.includes(`\nall,,0,,,,2808,351,${report.estimate},`));
  }));

test('256 bins, with quantiles and mean', () =>
  onPage('bins', async (page, report) => {
    assert.equal(await page.locator('section[aria-labelledby="estimate-heading"] .bar').count(), 256);
    const { quantiles, mean } = report.distribution;
    assert.deepEqual(await numbersIn(page, '[aria-label="Quantiles and mean"]'),
      [...quantiles, mean].flatMap((/** @type {any} */ q) => [q.estimate, ...ends(q.interval)]));
    await page.locator('#entries summary').press('Enter');
    const entries = report.estimate.flatMap((/** @type {number} */ x, /** @type {number} */ i) =>
      [x, ...ends(report.interval[i]), report.standard_error[i], report.standard_error_worst[i],
        ...ends(report.band[i])]);
    assert.deepEqual(await numbersIn(page, '#entries'), entries);
    await page.locator('#entries summary').press('Enter');
    await page.locator('#possible summary').press('Enter');
    const { estimate, interval, band } = report.processed;
    assert.deepEqual(await numbersIn(page, '#possible'),
      estimate.flatMap((/** @type {number} */ x, /** @type {number} */ i) =>
        [x, ...ends(interval[i]), ...ends(band[i])]));
    await page.locator('#possible summary').press('Enter');
    await page.locator('#possible summary').blur(); // no focus ring in the screenshot
  }));

test('a vector has a bar per coordinate', () =>
  onPage('vector', async (page) => {
    assert.equal(await page.locator('.chart .bar').count(), 24);
  }));

test('findings are explained, and a hostile name stays text', () =>
  onPage('findings', async (page, report) => {
    assert.match(await page.locator('h1').innerText(), /^<script>alert\(1\)<\/script> a name/);
    assert.equal(await page.locator('script').count(), 1, 'the page\'s own');
    const text = await page.locator('.findings').innerText();
    assert.match(text, /unreadable \(1\): slots that the verifier’s key does not open; first in epoch 1, batch 0/);
    assert.match(text, /destroyed \(1\): batches that a relay destroyed/);
    const [one, two] = report.by_hop;
    assert.deepEqual([one.in, one.out, two.in, two.out, two.destroyed], [240, 240, 240, 180, 60]);
    assert.match(await page.locator('[aria-label="Messages by hop"]').innerText(),
      /relay 1\s+240\s+240\s+0\s+0\s+relay 2\s+240\s+180\s+0\s+60/);
  }));

test('where a share is missing there is no estimate, but the reason', () =>
  onPage('unusable', async (page, report) => {
    assert.deepEqual([report.usable, report.estimate, report.processed], [false, null, undefined]);
    assert.match(await page.locator('#report p.bad:not(.verdict)').innerText(), /^Unusable: 1 of 2 batches lack messages/);
    for (const selector of ['.tiles .main', '[aria-label="Estimate"]', '[aria-label="Nearest possible answer"]'])
      assert.equal(await page.locator(selector).count(), 0, selector);
    const [unusable, whole] = await page.locator('[aria-label="Epochs"] tbody tr').allInnerTexts();
    assert.match(unusable ?? '', /^1\s+2 Jan 2026\s+unusable\s/);
    assert.deepEqual(await numbersIn(page, '[aria-label="Epochs"] tbody tr:first-child'), [], unusable);
    const [one] = report.ledger.epochs;
    assert.deepEqual(await numbersIn(page, '[aria-label="Epochs"]'),
      [one.estimate, ...ends(one.interval), one.standard_error, one.standard_error_worst,
        ...ends(one.band_over_epochs)],
      whole);
    assert.match(await page.locator('.findings').innerText(), /incomplete \(1\): batches with missing shares, withheld/);
    const csv = await (await fetch(`${pages.url}${pages.tasks['unusable']}api/report.csv`)).text();
    assert.match(csv, /\nall,,,,,,40,1,,,,,,,,\d+,\d+,false,"1 of 2 batches/);
  }));

test('the list of tasks leads to each', async () => {
  const context = await browser.newContext({ viewport: { width: 1180, height: 900 } });
  const { page, complaints } = await open(context, pages.url);
  await requireAccessible(page, 'dark');
  await screenshotAt(page, 'verifier-tasks', 1180, 'light');
  await page.getByRole('link', { name: 'load time' }).click();
  assert.equal(await page.locator('h1').innerText(), 'load time');
  await page.getByRole('link', { name: 'All tasks' }).click();
  assert.equal(await page.locator('section').count(), Object.keys(pages.tasks).length);
  assert.deepEqual(complaints, []);
  await context.close();
});

test('every answer has the strict policy', async () => {
  for (const path of ['/', `${pages.tasks['year']}`, `${pages.tasks['year']}api/report`, '/page.css', '/nothing']) {
    const { headers } = await fetch(pages.url + path);
    assert.match(headers.get('content-security-policy') ?? '',
      /^default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; connect-src 'self'; base-uri 'none'/,
        path);
    assert.equal(headers.get('x-content-type-options'), 'nosniff');
  }
});
