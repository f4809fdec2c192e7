// Tests the demo page with cmd/demo, which runs real relays and a verifier. Tests in which an epoch ends are in
// epochs.test.mjs.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, beforeEach, test } from 'node:test';

import { launch, open, startDemo } from './harness.mjs';
import { numbersIn, requireAccessible, screenshotAt, stateOf } from './pages.mjs';

/** @typedef {import('playwright-core').Page} Page */

/** @type {import('playwright-core').Browser} */
let browser;
const folder = mkdtempSync(join(tmpdir(), 'doona-pages-'));

beforeEach(async () => {
  browser ??= await launch();
});
after(async () => {
  await browser?.close();
  rmSync(folder, { recursive: true });
});

/**
 * Starts the demo with arguments, opens its page in a new browser context, and runs `body`.
 * @param {string[]} args
 * @param {(page: Page, url: string) => Promise<void>} body
 */
async function onDemo(args, body) {
  const demo = await startDemo('--users', '500', '--batch', '500', '--epoch', '600', ...args);
  try {
    const context = await browser.newContext({ colorScheme: 'light', reducedMotion: 'reduce',
      viewport: { width: 1180, height: 900 } });
    const { page, complaints } = await open(context, demo.url);
    await page.locator('#send:enabled').waitFor();
    await body(page, demo.url);
    assert.deepEqual(complaints, []);
    await context.close();
  } finally {
    await demo.stop();
  }
}

/**
 * Waits until the batch with the report is released and the page shows the result.
 * @param {Page} page
 */
async function released(page) {
  await page.getByText(/^Released: your report is in the estimate/).waitFor();
  await page.locator('#answer').waitFor();
  assert.equal(await page.locator('#send').isDisabled(), true);
  assert.equal(await page.locator('#path li').count(), await page.locator('#path li[data-state="done"]').count());
}

/**
 * Checks that the table has the numbers of the demo's JSON, row by row.
 * @param {Page} page
 * @param {any} state
 */
async function requireTable(page, state) {
  await page.locator('#numbers summary').press('Enter');
  const list = (/** @type {any} */ x) => (Array.isArray(x) ? x : [x]);
  const { estimate, interval, truth, users } = state.total;
  const intervals = Array.isArray(estimate) ? interval : [interval];
  const want = list(estimate).flatMap((x, i) => [...(Array.isArray(estimate) ? [] : [users]), x, ...intervals[i],
    list(truth)[i]]);
  assert.deepEqual(await numbersIn(page, '#table'), want);
}

test('by keyboard alone a person picks a delay and reports it; the page shows the numbers of its JSON', async () => {
  await onDemo([], async (page, url) => {
    assert.equal(await page.locator('h1').innerText(), 'How late was your flight?');
    assert.match(await page.locator('#promise').innerText(), /factor 2\.72.*1 in 1,000,000.*ε = 1.*δ = 1e-6.*ε₀ = /s);
    assert.match(await page.locator('#not').innerText(),
      /you took part is visible.*One of the 2 relays and 450 of the 500 clients must be honest.*surround you/s);
    await page.getByText(/practice messages for this value/).waitFor();
    assert.ok((await page.locator('.strip rect').count()) >= 2);

    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate(() => document.activeElement?.id), 'theme');
    await page.keyboard.press('Enter');
    assert.equal(await page.evaluate(() => getComputedStyle(document.documentElement).colorScheme), 'dark');
    await page.evaluate(() => { // back to the system's theme
      localStorage.removeItem('doona-theme');
      delete document.documentElement.dataset['theme'];
    });
    await page.keyboard.press('Tab');
    await page.keyboard.press('ArrowRight');
    assert.equal(await page.locator('#picker output').innerText(), '61 minutes');
    assert.equal(await page.getByRole('slider').getAttribute('aria-valuetext'), '61 minutes');
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await released(page);

    const state = await stateOf(url);
    assert.equal(state.total.users, 500, 'the person and 499 simulated clients');
    assert.ok(Math.abs(state.total.estimate - state.total.truth) < 6 * state.total.standard_error);
    const { estimate, interval, truth } = state.total;
    assert.deepEqual(await numbersIn(page, '#answer'), [estimate, ...interval, truth]);
    await requireTable(page, state);
    assert.match(await page.locator('#answer').innerText(),
      /minutes\s+is the estimate of the mean delay, from 500 reports/);
    assert.match(await page.locator('#path').innerText(),
      /61 minutes.*γ = .*3 layers, [\d,]+ bytes.*500 of 500 reports.*500 in, 500 out.*500 messages counted/s);
    for (const part of ['.point', '.band', '.truth']) assert.equal(await page.locator(`#chart ${part}`).count(), 1);
    await requireAccessible(page, 'light', 'dark');
    await screenshotAt(page, 'demo-mean-light', 1180, 'light');
    await screenshotAt(page, 'demo-mean-dark', 1180, 'dark');
    await screenshotAt(page, 'demo-mean-360', 360, 'light');
  });
});

test('a count asks yes or no, by the arrow keys', async () => {
  await onDemo(['--query', 'count', '--range', '0,30'], async (page, url) => {
    assert.equal(await page.locator('h1').innerText(), 'Was your flight 0 to 30 minutes late?');
    await page.getByRole('radio', { name: 'No' }).focus();
    await page.keyboard.press('ArrowRight');
    assert.equal(await page.getByRole('radio', { name: 'Yes' }).isChecked(), true);
    await page.keyboard.press('Enter');
    await released(page);
    assert.match(await page.locator('#answer').innerText(),
      /of 500 clients\s+is the estimate of the number of clients who say yes \([\d.]+ %\)/);
    await requireTable(page, await stateOf(url));
    await requireAccessible(page, 'dark');
    await screenshotAt(page, 'demo-count', 1180, 'dark');
  });
});

test('a histogram has a choice and a bar per bin, and a median', async () => {
  await onDemo(['--query', 'histogram', '--bins', '8', '--range', '-30,150'], async (page, url) => {
    const names = await page.locator('.choices').innerText();
    assert.match(names, /^below -7\.5\s.*\s127\.5 or more$/s);
    await page.getByRole('radio').nth(2).focus();
    await page.keyboard.press('Space');
    await page.keyboard.press('Enter');
    await released(page);
    const state = await stateOf(url);
    for (const part of ['.bar', '.whisker', '.truth']) assert.equal(await page.locator(`#chart ${part}`).count(), 8);
    const median = state.distribution.quantiles.find((/** @type {any} */ q) => q.p === 0.5);
    assert.deepEqual(await numbersIn(page, '#answer'), [median.estimate, ...median.interval]);
    await requireTable(page, state);
    await requireAccessible(page, 'dark');
    await screenshotAt(page, 'demo-histogram-dark', 1180, 'dark');
    await screenshotAt(page, 'demo-histogram-360', 360, 'dark');
  });
});

test('fifty clients have their histogram, by noise that relays add', async () => {
  await onDemo(['--noise', 'relays', '--query', 'histogram', '--bins', '12', '--users', '50', '--batch', '50'],
    async (page, url) => {
      assert.match(await page.locator('#not').innerText(), /One of the 2 relays must be honest, and nobody else/);
      assert.doesNotMatch(await page.locator('#not').innerText(), /surround/);
      assert.match(await page.locator('#promise').innerText(), /ε′ = 1\s.*no ε₀/s);
      await page.getByRole('radio').nth(3).focus();
      await page.keyboard.press('Space');
      await page.keyboard.press('Enter');
      await released(page);
      const { total, by_hop: hops, history } = await stateOf(url);
      assert.equal(total.users, 50, 'the person and 49 simulated clients');
      const own = (/** @type {number} */ i) => (i === 3 ? 1 : 0); // The truth counts only the 49 simulated clients.
      for (const [i, estimate] of total.estimate.entries()) {
        const error = Math.abs(estimate - total.truth[i] - own(i));
        assert.ok(error < 8 * total.standard_error[i], `bin ${i} is ${error} off`); // By chance about once in 10⁹ runs.
        assert.ok(total.standard_error[i] < 4);
      }
      assert.equal(history.length, 1);
      assert.equal(hops[0].in, 50);
      assert.ok(hops[0].out > 50 + 12 && hops[1].in === hops[0].out && hops[1].out > hops[1].in + 12,
        JSON.stringify(hops));
      assert.match(await page.locator('#path').innerText(), /added by relays.*dummies/s);
      assert.equal(await page.locator('#chart .bar').count(), 12);
      await requireTable(page, await stateOf(url));
      await requireAccessible(page, 'light');
    });
});

test('where nobody else is honest, noise by clients shows the victim’s answer, noise by relays hides it', async () => {
  await onDemo(['--noise', 'relays', '--query', 'count', '--users', '50', '--batch', '50'], async (page) => {
    const panel = page.locator('#alone');
    assert.equal(await panel.isVisible(), false);
    await page.getByRole('switch', { name: 'Nobody else is honest' }).focus();
    await page.keyboard.press('Space');
    await panel.waitFor();
    for (const [plays, answer] of ['Yes', 'No'].entries()) {
      await panel.getByRole('button', { name: answer }).press('Enter');
      await panel.getByText(`The victim said ${answer}.`).waitFor();
      const of = `of ${plays + 1} so far`;
      const clients = panel.locator('[data-noise="clients"]');
      const [no, yes, sure] = await numbersIn(page, '[data-noise="clients"]');
      assert.equal(Number(no) + Number(yes), 1, 'the victim’s message');
      assert.ok(Number(sure) > 95, `${sure} % sure`);
      assert.match(await clients.innerText(), new RegExp(`One message is not its own.*${of}.*ε′ = 3`, 's'));
      const relays = panel.locator('[data-noise="relays"]');
      const [hidden, among, guess] = await numbersIn(page, '[data-noise="relays"]');
      assert.ok(Number(hidden) + Number(among) > 10, 'the victim’s message and dummies');
      // The guess exceeds the bound with probability δ: once in 10⁶ runs.
      assert.ok(Number(guess) >= 50 && Number(guess) < 100 / (1 + Math.exp(-1)) + 1e-6, `${guess} % sure`);
      assert.match(await relays.innerText(), new RegExp(`dummies.*${of}.*the promise holds, ε′ = 1`, 's'));
    }
    await requireAccessible(page, 'light', 'dark');
    await screenshotAt(page, 'demo-alone-light', 1180, 'light');
    await screenshotAt(page, 'demo-alone-dark', 1180, 'dark');
    await screenshotAt(page, 'demo-alone-390', 390, 'light');
  });
});

test('a broken link is picked or typed, and found texts are listed here and on the verifier’s page', async () => {
  const input = join(folder, 'links.txt');
  const often = '/old/<b>start</b>.html';
  writeFileSync(input, Array.from({ length: 1000 }, (_, i) => (i < 900 ? often : `/${i}`)).join('\n'));
  const args = ['--query', 'strings', '--noise', 'relays', '--users', '1000', '--batch', '1000', '--input', input];
  await onDemo(args, async (page, url) => {
    assert.equal(await page.locator('h1').innerText(), 'What is your text?');
    assert.equal(await page.locator('#practice-note').innerText(), '');
    const line = page.getByRole('combobox', { name: 'What is your text?' });
    await line.press('Enter');
    assert.equal(await page.locator('#send').isEnabled(), true, 'an empty text is not sent');
    await line.fill('/no/such/page.html');
    await line.press('Enter');
    await released(page);
    assert.match(await page.locator('#path').innerText(),
      /\/no\/such\/page\.….*added by relays.*fixed number.*1,000 of 1,000 reports/s);

    const { total, texts, about_texts: about } = await stateOf(url);
    assert.equal(total.users, 1000, 'the person and 999 simulated clients');
    assert.equal(texts.length, 1);
    const [{ text, clients, interval, truth }] = texts;
    assert.deepEqual([text, truth], [often, 900]);
    assert.ok(Math.abs(clients - truth) < 2 * (interval[1] - interval[0])); // About 8 standard errors.
    assert.match(await page.locator('#answer').innerText(), /The texts that many clients have, from 1,000 reports/);
    assert.ok((await page.locator('#answer').innerText()).includes(about));
    assert.equal(await page.locator('#table tbody th').innerText(), often);
    assert.deepEqual(await numbersIn(page, '#table'), [clients, ...interval, truth]);
    assert.equal(await page.locator('#legend').isVisible(), false, 'there is no chart');
    await requireAccessible(page, 'light', 'dark');
    await screenshotAt(page, 'demo-strings-light', 1180, 'light');
    await screenshotAt(page, 'demo-strings-390', 390, 'dark');
    await page.goto(`${url}/verifier/live/`);
    await page.getByText(`"${often}"`).waitFor();
  });
});

test('the demo’s own broken links are there to pick', async () => {
  await onDemo(['--query', 'strings', '--noise', 'relays'], async (page) => {
    assert.equal(await page.locator('h1').innerText(), 'Which address had no page?');
    assert.equal(await page.getByRole('combobox').inputValue(), '/README.html');
    const options = page.locator('#texts option');
    assert.deepEqual([await options.count(), await options.nth(1).getAttribute('value')], [12, '/docs/SPEC.html']);
  });
});

test('a sum of another column has its unit; a hostile column name stays text', async () => {
  const input = join(folder, 'hostile.csv');
  const name = '<img src=x onerror=alert(1)>';
  writeFileSync(input, `${name}\n${Array.from({ length: 500 }, (_, i) => i % 7).join('\n')}\n`);
  await onDemo(['--query', 'sum', '--range', '0,10', '--input', input, '--column', name], async (page, url) => {
    page.on('dialog', () => assert.fail('a script ran'));
    await page.locator('#send').press('Enter');
    await released(page);
    assert.equal(await page.locator('h1').innerText(), `What is your ${name}?`);
    assert.match(await page.locator('#answer').innerText(), /estimate of the total <img src=x/);
    assert.equal(await page.locator('img').count(), 1, 'the icon');
    await requireTable(page, await stateOf(url));
    await requireAccessible(page, 'light');
  });
});

for (const [query, measure, args] of /** @type {const} */ ([
  ['vector', 'sum of every coordinate', []],
  ['vectormean', 'mean of every coordinate',
    ['--users', '100', '--batch', '100', '--honest', '1', '--epsilon', '4', '--padding', 'none']],
])) {
  test(`a ${query} has a slider and a bar per coordinate`, async () => {
    const input = join(folder, `${query}.csv`);
    writeFileSync(input, Array.from({ length: 500 },
      (_, i) => [0, 1, 2, 3].map((l) => (Math.sin(i + l * l) + 1) / 4).join()).join('\n'));
    await onDemo(['--query', query, '--input', input, ...args], async (page, url) => {
      assert.equal(await page.getByRole('slider').count(), 4);
      await page.getByRole('slider').first().press('End');
      await page.locator('#send').press('Enter');
      await released(page);
      assert.match(await page.locator('#answer').innerText(), new RegExp(`The ${measure}, from`));
      assert.equal(await page.locator('#chart .bar').count(), 4);
      await requireTable(page, await stateOf(url));
      await requireAccessible(page, 'light');
      await screenshotAt(page, `demo-${query}`, 1180, 'light');
    });
  });
}

/**
 * Checks that the button of each symbol shows the symbol's meaning, and only one meaning at a time.
 * @param {Page} page
 */
async function requireMeanings(page) {
  const meaning = page.locator('#meaning');
  for (const [term, words] of /** @type {const} */ ([
    [/^ε = /, /the factor is e\^ε = 2\.72\. All 360 epochs/], [/^δ = /, /the factor does not hold: 1 in 1,000,000/],
    [/^ε′ = /, /nobody else who reports is honest/], [/^ε₀ = /, /every relay works with the verifier/],
  ])) {
    const button = page.getByRole('button', { name: term });
    await button.click();
    assert.match(await meaning.innerText(), words);
    assert.equal(await page.locator('.terms [aria-expanded="true"]').count(), 1);
    assert.equal(await button.getAttribute('aria-expanded'), 'true');
  }
  await page.locator('.terms [aria-expanded="true"]').click();
  assert.equal(await meaning.innerText(), '');
}

test('a tap explains ε and δ; the verifier’s tasks are listed; on a phone the rest waits for a tap', async () => {
  await onDemo([], async (page, url) => {
    await requireMeanings(page);
    await page.setViewportSize({ width: 390, height: 844 });
    const words = page.getByText('It never leaves this page and is not stored.');
    await words.waitFor({ state: 'hidden' });
    await page.locator('#path summary').first().click();
    await words.waitFor();
    const surrounded = page.getByText('a deployment uses tokens.');
    assert.equal(await surrounded.isVisible(), false);
    await page.getByText('Whoever can mint clients').click();
    assert.equal(await surrounded.isVisible(), true);
    await page.getByRole('link', { name: 'the verifier sees' }).click();
    await page.waitForURL(`${url}/verifier/`);
    assert.deepEqual(await page.locator('section h2').allInnerTexts(),
      ['live', 'cumulative layout shift', 'largest contentful paint']);
    await page.getByRole('link', { name: 'largest contentful paint' }).click();
    assert.equal(await page.locator('h1').innerText(), 'largest contentful paint');
    const { task } = await (await fetch(`${url}/verifier/live/`)).text().then(() => fetch(`${url}/verifier/api/tasks`))
      .then(async (list) => (await list.json())[0]);
    assert.equal(new URL((await fetch(`${url}/verifier/live/`)).url).pathname, `/verifier/tasks/${task}/`);
    await page.getByRole('link', { name: 'All tasks' }).click();
    await page.waitForURL(`${url}/verifier/`);
  });
});

test("another site's page can neither use up its visitor's network nor ask whether it has reported", async () => {
  const site = createServer((_, response) => response.setHeader('Content-Type', 'text/html').end('<!doctype html>'));
  await new Promise((resolve) => site.listen(0, '127.0.0.1', () => resolve(null)));
  const { port } = /** @type {import('node:net').AddressInfo} */ (site.address());
  try {
    await onDemo(['--query', 'count', '--range', '0,30'], async (page) => {
      const posted = page.waitForRequest(/\/reports$/);
      const foreign = await page.context().newPage();
      await foreign.goto(`http://localhost:${port}/`);
      const ask = (/** @type {string} */ url) => foreign.evaluate(async (to) => {
        const answers = [];
        for (const mode of /** @type {RequestMode[]} */ (['cors', 'no-cors'])) {
          const post = fetch(to, { method: 'POST', mode, body: 'x' });
          answers.push(await post.then(({ status, type }) => `${type} ${status}`, (error) => error.name));
        }
        return answers;
      }, url);
      await page.bringToFront();
      await page.locator('#send:enabled').click();
      const url = (await posted).url();
      await released(page);
      const nobody = url.replace(/epochs\/\d+/, 'epochs/359'); // an epoch that has no reports
      assert.deepEqual(await ask(url), ['TypeError', 'opaque 0']);
      assert.deepEqual(await ask(nobody), ['TypeError', 'opaque 0']);
    });
  } finally {
    site.closeAllConnections();
    site.close();
  }
});
