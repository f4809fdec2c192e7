// Visits every state of the pages, light and dark, as wide as a desktop and as a phone, and saves screenshots in
// build/screenshots for review. A test fails if a text is cut, overflows its box or breaks within a word, if the page
// scrolls sideways, or if anything is written to the console.
import assert from 'node:assert/strict';
import { after, beforeEach, test } from 'node:test';

import { launch, long, network, open, startDemo, startTestPages } from './harness.mjs';
import { requireAccessible, requireWhole, screenshotAt } from './pages.mjs';

/** @typedef {import('playwright-core').Page} Page */

/** @type {import('playwright-core').Browser} */
let browser;
beforeEach(async () => {
  browser ??= await launch();
});
after(() => browser?.close());

const widths = [1280, 390];

/**
 * Checks a state and saves screenshots of it: four in the long form, otherwise two.
 * @param {Page} page
 * @param {string} name
 */
async function screenshot(page, name) {
  for (const color of /** @type {const} */ (['light', 'dark'])) {
    for (const width of widths) {
      if (!long && (color === 'light') === (width === 390)) continue;
      await page.setViewportSize({ width, height: 900 });
      await page.waitForFunction(() => [...document.querySelectorAll('figure')].every((figure) => { // Redrawn.
        const chart = figure.querySelector('svg');
        return !chart || chart.viewBox.baseVal.width === Math.max(260, figure.clientWidth);
      }));
      await screenshotAt(page, `state-${name}-${width}-${color}`, width, color);
      await requireWhole(page, `${name}, ${width} px`);
    }
  }
  await requireAccessible(page, 'light');
}

let visitors = 0;

/**
 * Opens a page as a new visitor from a new network, and runs `body`.
 * @param {string} url
 * @param {(page: Page) => Promise<void>} body
 * @param {(context: import('playwright-core').BrowserContext) => Promise<unknown>} [before] runs before the page is
 * opened
 */
async function visit(url, body, before) {
  const context = await browser.newContext({ colorScheme: 'light', reducedMotion: 'reduce',
    viewport: { width: 1280, height: 900 } });
  const address = `fdff:0:${++visitors}::1`; // In the form in which a proxy tells it to the relay.
  await context.route(/\/reports$/, (route) =>
    route.continue({ headers: { ...route.request().headers(), 'x-forwarded-for': address } }));
  await before?.(context);
  const { page, complaints } = await open(context, url);
  await body(page);
  assert.deepEqual(complaints.filter((text) => !network.test(text)), []);
  await context.unrouteAll({ behavior: 'wait' }); // the page polls, so a handler may be at work
  await context.close();
}

/** @param {Page} page @param {string | RegExp} text */
const says = (page, text) => page.locator('#status').getByText(text).waitFor();

/** Returns a gate: await `opened` to delay an answer, and call `open` to let it pass. */
function gate() {
  let open = () => {};
  /** @type {Promise<void>} */
  const opened = new Promise((resolve) => (open = resolve));
  return { opened, open };
}

test('screenshots: the demo from its start to the estimate, and its error states', async () => {
  const batch = 500;
  const demo = await startDemo('--users', String(batch), '--batch', String(batch), '--epoch', '900');
  const { url } = demo;
  try {
    await visit(`${url}/verifier/`, (page) => screenshot(page, 'index-empty'));

    const [sealed, filled] = [gate(), gate()];
    await visit(url, async (page) => {
      await page.locator('#send:enabled').waitFor();
      await page.locator('#practice-note').getByText('practice messages').waitFor();
      await screenshot(page, 'idle');
      for (const name of ['δ = ', 'ε = ']) {
        await page.getByRole('button', { name }).click();
        await screenshot(page, `idle-${name.startsWith('ε') ? 'epsilon' : 'delta'}`);
      }
      await page.locator('#send').click();
      await says(page, 'Randomizing and sealing…');
      await screenshot(page, 'reporting');
      sealed.open();
      await page.getByText(`Your batch has 181 of ${batch} reports.`).waitFor();
      await screenshot(page, 'waiting');
      assert.equal(await page.locator('#filled').evaluate((bar) => /** @type {HTMLProgressElement} */ (bar).value), 181);
      filled.open();
      await says(page, /^Released: your report is in the estimate/);
      await page.locator('#answer').waitFor();
      await screenshot(page, 'released');
      await page.locator('#numbers summary').click();
      await screenshot(page, 'released-numbers');
    }, async (context) => {
      await context.route(/\/reports$/, async (route) => {
        await sealed.opened;
        await route.fallback();
      });
      await context.route(/\/fill$/, async (route) => {
        await fetch(`${url}/api/live/fill`, { method: 'POST', body: '{"epoch": 0, "clients": 180}' });
        await filled.opened;
        await route.continue();
      });
    });

    await visit(url, async (page) => {
      await page.locator('#send:enabled').click();
      await says(page, 'This epoch ends too soon to fill a batch');
      await screenshot(page, 'late-click');
    }, (context) => context.route(/\/api\/live$/, async (route) => {
      const state = await (await route.fetch()).json();
      Object.assign(state.epoch, { ends_at: new Date(Date.now() + 7000), fill_seconds: 30 });
      await route.fulfill({ json: state });
    }));

    await visit(url, async (page) => {
      await says(page, /does not let the page store anything/);
      await screenshot(page, 'storage-blocked');
    }, (context) => context.addInitScript(() => {
      indexedDB.open = () => {
        throw new DOMException('as a private window', 'InvalidStateError');
      };
    }));

    await visit(url, async (page) => {
      await says(page, /^The first relay does not answer/);
      await screenshot(page, 'relay-offline');
    }, (context) => context.route(/\/v1\/tasks\//, (route) => route.abort()));

    await visit(url, async (page) => {
      await page.locator('#send:enabled').click();
      await says(page, /it is sent at your next visit/);
      await screenshot(page, 'not-delivered');
    }, (context) => context.route(/\/reports$/, (route) => route.abort()));

    for (const name of ['lcp', 'live']) {
      await visit(`${url}/verifier/${name}/`, (page) => screenshot(page, name === 'live' ? 'verifier-running' : 'verifier-waiting'));
    }
    await visit(`${url}/verifier/`, (page) => screenshot(page, 'index-running'));

    await visit(`${url}/examples/web-vitals/`, async (page) => {
      await says(page, 'this visit can report');
      await screenshot(page, 'vitals');
      await page.locator('#fill').click();
      await says(page, 'The simulated visits have reported.');
      await screenshot(page, 'vitals-filled');
    });
  } finally {
    await demo.stop();
  }
});

test('in pictures: noise that relays add: the page, a refused value, the answer, and the attack', async () => {
  const demo = await startDemo('--query', 'strings', '--noise', 'relays', '--users', '1000', '--batch', '1000',
    '--epoch', '900');
  try {
    await visit(demo.url, async (page) => {
      await page.locator('#send:enabled').waitFor();
      await screenshot(page, 'relays-idle');
      await page.locator('#value').evaluate((line) => {
        /** @type {HTMLInputElement} */ (line).value = '/no\0page';
      });
      await page.locator('#send').click();
      await says(page, /^The task does not take this value/);
      await screenshot(page, 'refused-value');
      await page.locator('#value').fill('/docs/SPEC.html');
      await page.locator('#send').click();
      await says(page, /^Released: your report is in the estimate/);
      await page.locator('#numbers').waitFor();
      await screenshot(page, 'relays-released');
      await page.getByRole('switch', { name: 'Nobody else is honest' }).click();
      await screenshot(page, 'attack-asked');
      await page.locator('#alone').getByRole('button', { name: 'Yes' }).click();
      await page.getByText('The victim said Yes.').waitFor();
      await screenshot(page, 'attack');
    });
  } finally {
    await demo.stop();
  }
});

test('in pictures: the verifier’s pages, empty, finished, with findings and unusable, and their list', async () => {
  const pages = await startTestPages();
  try {
    for (const [name, path] of Object.entries(pages.tasks)) {
      await visit(pages.url + path, (page) => screenshot(page, `verifier-${name}`));
    }
    await visit(pages.url, (page) => screenshot(page, 'index-all'));
  } finally {
    await pages.stop();
  }
});
