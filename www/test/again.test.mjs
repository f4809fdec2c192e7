// Tests that relays and issuers cannot recognize a browser that was closed and started again with the same profile.
// Every answer of www/testserver carries marks, such as cookies (watch.go), which must not come back.
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';

import { launchAgain, open, startTestServer } from './harness.mjs';

/** @typedef {typeof import('../sdk/index.js')} SDK */
/** @typedef {Awaited<ReturnType<typeof startTestServer>>} Server */
/** @typedef {{method: string, path: string, header: Record<string, string[]>}} Request */

/** @type {Server | undefined} */
let server;
/** @type {string | undefined} */
let folder;
after(async () => {
  await server?.stop();
  if (folder) await rm(folder, { recursive: true, force: true });
});

/**
 * Starts a browser. For each visitor, one page reports to all tasks. Returns the requests that arrived, for each
 * visitor.
 * @param {Server} server
 * @param {string} folder of the browser
 * @param {readonly ({wipe: boolean})[]} visitors wipe: whether to clear the site's data before the visit
 * @returns {Promise<Request[][]>}
 */
async function visits(server, folder, ...visitors) {
  const context = await launchAgain(folder);
  const out = [];
  try {
    for (const { wipe } of visitors) out.push(await visit(server, context, wipe));
    return out;
  } finally {
    await context.close();
  }
}

/** @param {Server} server @param {import('playwright-core').BrowserContext} context @param {boolean} wipe */
async function visit(server, context, wipe) {
  await fetch(`${server.site}/test/login`, { method: 'POST', body: crypto.randomUUID() });
  await server.requests();
  const { page } = await open(context, `${server.site}/blank.html`);
  await page.evaluate(async ({ offers, wipe }) => {
    const file = '/doona.js';
    /** @type {SDK} */
    const { connect } = await import(file);
    if (wipe) await new Promise((resolve) => (indexedDB.deleteDatabase('doona').onsuccess = resolve));
    /** @type {import('../sdk/options.js').TokenSource} */
    const tokens = (body, { uri }) => fetch(`/test/token?uri=${encodeURIComponent(uri)}`, { method: 'POST', body });
    for (const offer of offers) {
      const doona = await connect({ ...offer, maxEpsilon: 10, maxDelta: 1, maxTotalEpsilon: 100, spread: 0,
        flush: false, when: 'now', tokens });
      await doona.report(1);
    }
  }, { offers: /** @type {any[]} */ (['truthful', 'stream', 'tokens'].map((name) => server.tasks[name])), wipe });
  await page.close();
  return (await server.requests()).filter(({ header }) => /Mozilla/.test(String(header['User-Agent'])));
}

/** Returns the distinct requests: the SDK may repeat a request if a relay is busy. @param {Request[]} requests */
const kinds = (requests) => [...new Set(requests.map(({ method, path, header }) =>
  `${method} ${path.replace(/[0-9a-f]{64}/, 'ID')}: ${Object.keys(header).sort()}`))].sort();

test('a browser that was started again brings nothing back, and asks for no task that it has', async () => {
  server ??= await startTestServer();
  folder ??= await mkdtemp(join(tmpdir(), 'doona-again-'));
  await fetch(`${server.site}/test/stream`, { method: 'POST', body: '"good"' });
  const [first = []] = await visits(server, folder, { wipe: false });
  const asked = kinds(first).filter((kind) => /^GET .*((tasks|streams)\/ID|issuer-directory):/.test(kind));
  assert.equal(asked.length, 3);

  const [second, third = []] = await visits(server, folder, { wipe: false }, { wipe: true });
  assert.deepEqual(second, [], 'a second visit in the epoch needs no request');
  assert.deepEqual(kinds(third), kinds(first), 'the requests of a known and of a new browser differ');
  for (const { path, header } of third) {
    assert.doesNotMatch(JSON.stringify(header), /mark|1970|cookie|if-(none-)?match|modified-since/i, path);
  }
});
