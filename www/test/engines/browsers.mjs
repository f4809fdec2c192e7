// The three browsers in which tests of this folder visit pages, driven the same way.
import { hide, launch, launchFirefox, patience } from '../harness.mjs';
import { startWebKit } from './webdriver.mjs';

/** A tab of a visitor, who may hide or close it, and open another one. @typedef {Record<'hide' | 'close', () =>
 *   Promise<unknown>> & {open: (url: string) => Promise<unknown>, another: () => Promise<Tab>}} Tab */

/**
 * A browser with one tab. `run` runs a script in the page; the script calls its last argument when it is done. `call`
 * calls a function in the page with a value. `newTab` opens another tab, if it can as
 * another visitor.
 * @typedef {{open: (url: string) => Promise<unknown>, run: (script: string) => Promise<any>,
 *   call: (work: (given: any) => unknown, given?: unknown) => Promise<any>, newTab: () => Promise<Tab>,
 *   stop: () => Promise<unknown>}} Browser
 */

/** @param {Omit<Browser, 'call'>} browser @returns {Browser} */
function withCall({ open, run, newTab, stop }) {
  const call = async (/** @type {(given: any) => unknown} */ work, /** @type {unknown} */ given = null) => {
    const { error, result } = await run(`const done = arguments[0];
      Promise.resolve(${JSON.stringify(given)}).then(${work}).then((result) => done({ result }),
        (error) => done({ error: String(error) + error.stack }));`);
    if (error) throw new Error(error);
    return result;
  };
  return { open, run, call, newTab, stop };
}

/** Options with which Chromium has its back-forward cache; Playwright starts it without. */
export const backForwardCache = { ignoreDefaultArgs: ['--disable-back-forward-cache'] };

/** @param {Promise<import('playwright-core').Browser>} launching @returns {Promise<Browser>} */
export async function started(launching) {
  const browser = await launching;
  const newPage = async (/** @type {{newPage: () => Promise<import('playwright-core').Page>}} */ from = browser) => {
    const page = await from.newPage();
    page.setDefaultTimeout(patience);
    return page;
  };
  const page = await newPage();
  /** @type {(context?: import('playwright-core').BrowserContext) => Promise<Tab>} */
  const newTab = async (context) => {
    const tab = await newPage(context ?? await browser.newContext());
    return {
      another: () => newTab(tab.context()),
      open: (/** @type {string} */ url) => tab.goto(url, { waitUntil: 'commit' }),
      hide: () => tab.evaluate(hide),
      close: async () => {
        const late = setTimeout(() => tab.close(), patience / 4); // A busy browser may forget a polite request.
        await Promise.all([tab.waitForEvent('close'), tab.close({ runBeforeUnload: true })]);
        clearTimeout(late);
      },
    };
  };
  return withCall({ open: (url) => page.goto(url), newTab, stop: () => browser.close(),
    run: (script) => page.evaluate(`new Promise((resolve) => (function () { ${script} })(resolve))`) });
}

/** How to start each browser, by its name. @type {Record<string, () => Promise<Browser>>} */
export const browsers = {
  Chromium: () => started(launch()),
  Firefox: () => started(launchFirefox()),
  WebKitGTK: async () => withCall(await startWebKit()),
};
