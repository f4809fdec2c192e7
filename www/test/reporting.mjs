// Pages that report: for the tests of the npm package, which build a page with some tool, serve it and open it.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { extname, join } from 'node:path';

import { open } from './harness.mjs';

/** @typedef {Awaited<ReturnType<typeof import('./harness.mjs').startTestServer>>} TestServer */

/** Returns options that accept the task which sends values as they are. @param {TestServer} server */
export const optionsOf = (server) =>
  JSON.stringify({ ...server.tasks['truthful'], maxEpsilon: 10, maxDelta: 1, maxTotalEpsilon: 10, spread: 0 });

const types = /** @type {Record<string,
  string>} */ ({ '.html': 'text/html', '.js': 'text/javascript', '.wasm': 'application/wasm' });

/**
 * Serves a folder with the strictest content security policy under which the SDK works.
 * @param {string} folder @param {TestServer} server
 * @param {{scripts?: string, missing?: string}} [more] further sources of scripts; the page for a missing file
 */
export async function serve(folder, server, { scripts = '', missing = '' } = {}) {
  const site = createServer(async ({ url }, response) => {
    try {
      const body = await readFile(join(folder, String(url))).catch((cause) => {
        if (missing && !String(url).includes('favicon')) return readFile(join(folder, missing));
        throw cause;
      });
      response.writeHead(200, {
        'Content-Type': types[extname(String(url))] ?? 'application/octet-stream',
        'Content-Security-Policy': `default-src 'self'; script-src 'self' 'wasm-unsafe-eval' ${scripts}; connect-src 'self' ${server.relay}`,
      });
      response.end(body);
    } catch {
      response.writeHead(404).end();
    }
  });
  site.listen(0, '127.0.0.1');
  await once(site, 'listening');
  const { port } = /** @type {import('node:net').AddressInfo} */ (site.address());
  return { url: `http://127.0.0.1:${port}`, stop: () => site.close() };
}

/**
 * Opens a page. Fails unless it reports 7 to the relay, starts this number of workers and says nothing on its console.
 * @param {import('playwright-core').Browser} browser @param {TestServer} server
 * @param {string} url @param {number} workers @param {RegExp} [ignored] what a tool's server says on the console
 */
export async function pageReports(browser, server, url, workers, ignored = /favicon|404/) {
  await server.take();
  const context = await browser.newContext();
  try {
    const { page, complaints } = await open(context, url);
    const result = await page.waitForFunction(() => /** @type {any} */ (globalThis).result)
      .catch((cause) => assert.fail(`${cause.message}; the page says ${complaints.join('\n')}`));
    assert.deepEqual(complaints.filter((text) => !ignored.test(text)), []);
    assert.equal(await result.jsonValue(), 'reported');
    assert.deepEqual((await server.take()).map((s) => s.messages), [[['0007']]]);
    assert.equal(page.workers().length, workers);
  } finally {
    await context.close();
  }
}
