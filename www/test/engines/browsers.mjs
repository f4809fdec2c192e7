// The three browsers in which tests of this folder visit pages, driven the same way.
import { launch, launchFirefox, patience } from '../harness.mjs';
import { startWebKit } from './webdriver.mjs';

/**
 * A browser with one tab. `run` runs a script in the page; the script calls its last argument when it is done. `call`
 * calls a function in the page with a value.
 * @typedef {{open: (url: string) => Promise<unknown>, run: (script: string) => Promise<any>,
 *   call: (work: (given: any) => unknown, given?: unknown) => Promise<any>, stop: () => Promise<unknown>}} Browser
 */

/** @param {Omit<Browser, 'call'>} browser @returns {Browser} */
function withCall({ open, run, stop }) {
  const call = async (/** @type {(given: any) => unknown} */ work, /** @type {unknown} */ given = null) => {
    const { error, result } = await run(`const done = arguments[0];
      Promise.resolve(${JSON.stringify(given)}).then(${work}).then((result) => done({ result }),
        (error) => done({ error: String(error) + error.stack }));`);
    if (error) throw new Error(error);
    return result;
  };
  return { open, run, call, stop };
}

/** @param {Promise<import('playwright-core').Browser>} launching @returns {Promise<Browser>} */
async function started(launching) {
  const browser = await launching;
  const page = await browser.newPage();
  page.setDefaultTimeout(patience);
  return withCall({ open: (url) => page.goto(url), stop: () => browser.close(),
    run: (script) => page.evaluate(`new Promise((resolve) => (function () { ${script} })(resolve))`) });
}

/** How to start each browser, by its name. @type {Record<string, () => Promise<Browser>>} */
export const browsers = {
  Chromium: () => started(launch()),
  Firefox: () => started(launchFirefox()),
  WebKitGTK: async () => withCall(await startWebKit()),
};
