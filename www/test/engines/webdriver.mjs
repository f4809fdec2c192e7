// Drives WebKitGTK's MiniBrowser over WebDriver in a virtual X server. Playwright supports only its own WebKit.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

import { freePort, hide, patience } from '../harness.mjs';

/** Starts an X server. Returns the number of its display and a function that stops it. */
async function startDisplay() {
  const child = spawn(process.env['XVFB'] ?? 'Xvfb',
    ['-displayfd', '3', '-screen', '0', '1280x1024x24', '-nolisten', 'tcp'], { stdio: ['ignore', 'ignore', 'ignore', 'pipe'] });
  const [line] = await once(createInterface({ input: /** @type {any} */ (child.stdio[3]) }), 'line');
  return { display: `:${line}`, stop: () => void child.kill() };
}

/** Starts MiniBrowser with a new profile. */
export async function startWebKit() {
  const { display, stop: stopDisplay } = await startDisplay();
  const port = await freePort();
  const driver = spawn(process.env['WEBKITWEBDRIVER'] ?? 'WebKitWebDriver', [`--port=${port}`, '--host=127.0.0.1'],
    // In CI's container, root runs MiniBrowser, and its sandbox refuses to run for root.
    { stdio: 'ignore', env: { ...process.env, DISPLAY: display, WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS: '1' } });

  /**
   * @param {'GET' | 'POST' | 'DELETE'} method @param {string} path @param {object} [body]
   * @returns {Promise<any>}
   */
  const ask = async (method, path, body) => {
    const response = await fetch(`http://127.0.0.1:${port}${path}`, { method,
      ...(body && { body: JSON.stringify(body) }) });
    const { value } = await response.json();
    if (!response.ok) throw new Error(`WebKitWebDriver: ${path}: ${value.error}: ${value.message}`);
    return value;
  };

  /** @type {any} */
  let session;
  for (const deadline = Date.now() + patience; !session;) {
    try {
      session = await ask('POST', '/session', { capabilities: { alwaysMatch: { browserName: 'MiniBrowser' } } });
    } catch (error) {
      // The driver is not listening yet: retry.
      if (!(error instanceof TypeError) || Date.now() > deadline) throw error;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
  const at = `/session/${session.sessionId}`;
  await ask('POST', `${at}/timeouts`, { script: patience, pageLoad: patience });
  /** @param {string} script @param {...unknown} args */
  const run = (script, ...args) => ask('POST', `${at}/execute/async`, { script, args });
  const window = String(await ask('GET', `${at}/window`));
  let turn = Promise.resolve();
  /**
   * Sends commands to a window. WebDriver has one current window, so the windows take turns.
   * @template T @param {string} handle @param {() => Promise<T>} work @returns {Promise<T>}
   */
  const inWindow = (handle, work) => {
    const result = turn.then(() => ask('POST', `${at}/window`, { handle })).then(work);
    turn = result.then(() => {}, () => {});
    return result;
  };
  return {
    version: `${session.capabilities.browserName} ${session.capabilities.browserVersion}`,
    /** @param {string} url */
    open: (url) => ask('POST', `${at}/url`, { url }),
    /**
     * Runs a script in the page. The script must call its last argument when it is done.
     * @param {string} script @param {...unknown} args
     */
    run,
    /** Opens a window: a tab would hide the other tabs of its window. */
    newTab: async function newTab() {
      const { handle } = await inWindow(window, () => ask('POST', `${at}/window/new`, { type: 'window' }));
      return {
        another: newTab,
        open: (/** @type {string} */ url) => inWindow(handle, () => ask('POST', `${at}/url`, { url })),
        hide: () => inWindow(handle, () => run(`(${hide})(); arguments[0]()`)),
        close: () => inWindow(handle, () => ask('DELETE', `${at}/window`)),
      };
    },
    stop: async () => {
      await ask('DELETE', at);
      driver.kill();
      await once(driver, 'exit');
      stopDisplay();
    },
  };
}
