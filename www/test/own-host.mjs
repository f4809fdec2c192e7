// For tests of sites that serve what pages fetch from their own server: such a server, and Chromium's log of all
// sockets.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { launch } from './harness.mjs';

export const root = fileURLToPath(new URL('../..', import.meta.url));
const types = /** @type {Record<string, string>} */ ({ '.js': 'text/javascript', '.wasm': 'application/wasm' });

/** Serves a blank page, the SDK, and below /doona/ the files of site/doona in a folder. @param {string} folder */
export async function serveSite(folder) {
  /** The paths below /doona/ that were asked for. @type {string[]} */
  const asked = [];
  const server = createServer(async (request, response) => {
    const path = String(request.url);
    if (path === '/') return response.setHeader('content-type', 'text/html').end('<!doctype html><title>site</title>');
    if (path.startsWith('/doona/')) asked.push(path);
    const type = types[extname(path)];
    if (type) response.setHeader('content-type', type);
    const file = path.startsWith('/doona/') ? join(folder, 'site', path) : join(root, 'build/www', path);
    await readFile(file).then((body) => response.end(body), () => response.writeHead(404).end());
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const host = `127.0.0.1:${/** @type {import('node:net').AddressInfo} */ (server.address()).port}`;
  return { asked, host, stop: () => server.close() };
}

/**
 * Visits a site in a new browser. Returns the addresses on this machine to which the browser opened sockets.
 * @param {string} folder where the log goes @param {string} host the site's
 * @param {(page: import('playwright-core').Page) => Promise<void>} visit
 */
export async function socketsOf(folder, host, visit) {
  const log = join(folder, 'net.json');
  const browser = await launch({}, `--log-net-log=${log}`);
  try {
    const page = await browser.newPage();
    await page.goto(`http://${host}/`);
    await visit(page);
  } finally {
    await browser.close();
  }
  const to = new Set(/** @type {string[]} */ ([]));
  const logged = await readFile(log, 'utf8');
  for (const [, address] of logged.matchAll(/"address":"(127\.0\.0\.1:\d+)"/g)) to.add(String(address));
  assert.ok(to.has(host), `the log names no socket to the site: ${[...to]}`);
  return to;
}
