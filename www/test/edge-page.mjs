// Runs the edge worker's script for pages in Chromium. TestPageScript of wasm/edge starts this program, which prints
// the result of each step as JSON. The arguments are two addresses: a page with the script, and a page of another site
// that frames the first page.
import { launch, open } from './harness.mjs';

const [site, framing] = process.argv.slice(2).map(String);
const browser = await launch();

/**
 * Calls the script's report() in a page. Returns whether the value was sent, or the error.
 * @param {import('playwright-core').Page | import('playwright-core').Frame} page
 * @param {number} value
 * @param {string} [task]
 * @returns {Promise<boolean | string>}
 */
function report(page, value, task = '/doona/x') {
  return page.evaluate(async ([task, value]) => {
    try {
      // @ts-expect-error the script's global
      return await globalThis.doonaEdge.report(task, value);
    } catch (error) {
      return String(error);
    }
  }, /** @type {const} */ ([task, value]));
}

/**
 * Reports twice, after a reload, in another tab, and with the clock a day ahead. Returns the results and the number of
 * requests.
 */
async function again() {
  const context = await browser.newContext();
  let asked = 0;
  context.on('request', (request) => {
    if (request.method() === 'POST') asked++;
  });
  const { page } = await open(context, String(site));
  /** @type {unknown[]} */
  const said = [await report(page, 1), await report(page, 2)];
  await page.reload();
  said.push(await report(page, 3), await report((await open(context, String(site))).page, 4));
  said.push(asked);
  await page.clock.setSystemTime(Date.now() + 86_400_000);
  said.push(await report(page, 5));
  return said;
}

/** Reports in two tabs at the same time. */
async function atOnce() {
  const context = await browser.newContext();
  const tabs = [(await open(context, String(site))).page, (await open(context, String(site))).page];
  return Promise.all(tabs.map((page, i) => report(page, 6 + i)));
}

/** Reports while the network drops the post, and then reports again. */
async function lost() {
  const { page } = await open(await browser.newContext(), String(site));
  await page.route('**/doona/x', (route) => route.abort());
  const said = [await report(page, 8)];
  await page.unroute('**/doona/x');
  return [...said, await report(page, 9)];
}

/** Reports while a page of another site frames the page. */
async function inFrame() {
  const { page } = await open(await browser.newContext(), String(framing));
  const frame = page.frames().find((frame) => frame.url().startsWith(String(site)));
  return frame && report(frame, 10);
}

/**
 * Reports in a prerendered page. Returns the number of requests before the page is shown, and the result of the report
 * afterwards.
 */
async function prerendered() {
  const { page } = await open(await browser.newContext(), String(site));
  let asked = 0;
  page.on('request', () => asked++);
  await page.evaluate(() => Object.defineProperty(document, 'prerendering', { value: true, configurable: true }));
  const said = report(page, 12);
  await page.waitForTimeout(200);
  const before = asked;
  await page.evaluate(() => document.dispatchEvent(new Event('prerenderingchange')));
  return [before, await said];
}

/**
 * Reports until two values were sent, in a task with epochs of 3 seconds. The worker refuses a post that names another
 * epoch than the current one.
 */
async function inTwoEpochs() {
  const { page } = await open(await browser.newContext(), String(site));
  const said = [];
  for (let sent = 0; sent < 2 && said.length < 100; await page.waitForTimeout(200)) {
    said.push(await report(page, 11, '/doona/short'));
    if (said.at(-1) === true) sent++;
  }
  return said;
}

try {
  const said = { again: await again(), atOnce: await atOnce(), lost: await lost(), inFrame: await inFrame(),
    prerendered: await prerendered(), inTwoEpochs: await inTwoEpochs() };
  process.stdout.write(JSON.stringify(said));
} finally {
  await browser.close();
}
