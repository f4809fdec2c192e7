// Tests that the SDK compares every file that it loads with the file's hash before the file runs, both for files on
// another origin and for files on the page's own origin.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { after, beforeEach, test } from 'node:test';

import { launch, startTestServer } from './harness.mjs';
import { built, checkedFiles, isLoaded, sourcesOf, startSites } from './integrity.mjs';

/** @type {Awaited<ReturnType<typeof startTestServer>>} */
let server;
/** @type {import('playwright-core').Browser} */
let browser;
/** @type {Awaited<ReturnType<typeof startSites>>} */
let sites;
/** How the address of each worker of the last page began. @type {string[]} */
let workers;

beforeEach(async () => {
  server ??= await startTestServer();
  browser ??= await launch();
  sites ??= await startSites(server);
  Object.assign(sites.changed, { file: /^$/, ran: 0 });
  await server.take();
});
after(async () => {
  await browser?.close();
  await server?.stop();
  sites?.stop();
});

/** Shows a page to a new visitor. @type {import('./integrity.mjs').Browse} */
async function browse(url, work, given) {
  const context = await browser.newContext();
  try {
    const page = await context.newPage();
    await page.goto(url);
    const result = await page.evaluate(work, given);
    workers = page.workers().map((worker) => new URL(worker.url()).protocol);
    return result;
  } finally {
    await context.close();
  }
}

/** @param {string} name of the task @param {import('./integrity.mjs').Visit} [how] */
const report = (name, how) => sites.report(browse, name, how);

for (const from of /** @type {const} */ (['modules', 'tag'])) {
  const how = from === 'tag' ? 'a script tag with integrity' : 'the option modules';
  test(`${how}: scripts of another origin run as they were built`, async () => {
    const reported = { code: 'reported', message: '', ran: 0 };
    assert.deepEqual(await report('truthful', { from }), reported);
    assert.deepEqual(workers, ['blob:']);
    assert.deepEqual(await report('truthful', { from, blob: 'script-src' }), reported);
    assert.deepEqual(workers, [], 'in place');
    assert.equal((await server.take()).length, 2);
  });

  test(`${how}: a changed worker does not run in place, either`, async () => {
    sites.changed.file = /doona-worker-/;
    const { code, message, ran } = await report('truthful', { from, blob: 'script-src' });
    assert.deepEqual([code, ran], ['module-failed', 0]);
    assert.match(message, /couldn't load \.\/doona-worker-[0-9a-f]+\.js: its hash is not the one/);
    assert.deepEqual(await server.take(), []);
  });
}

test('where the policy admits no blob:, the error names what it lacks', async () => {
  const { code, message } = await report('truthful', { blob: 'none' });
  assert.equal(code, 'module-failed');
  assert.match(message, /blob:, which worker-src or script-src of the page's policy must name/);
  assert.deepEqual(await server.take(), []);
});

test('a changed script for tokens gets no token, and does not run; the report waits', async () => {
  await fetch(`${server.site}/test/login`, { method: 'POST', body: crypto.randomUUID() });
  sites.changed.file = /doona-tokens-/;
  const { code, message, ran } = await report('tokens', { blob: 'script-src' });
  assert.deepEqual([code, ran], ['not-delivered', 0]);
  assert.match(message, /doona-tokens-[0-9a-f]+\.js: its hash is not the one this script names/);
});

test('the script for explanations runs as it was built, from another origin', async () => {
  const { code, ran } = await report('truthful', { blob: 'script-src', explains: true });
  assert.deepEqual([code, ran], ['reported', 0]);
  assert.equal((await server.take()).length, 1);
});

test('the script for tokens runs as it was built', async () => {
  await fetch(`${server.site}/test/login`, { method: 'POST', body: crypto.randomUUID() });
  const { code, ran } = await report('tokens', { blob: 'script-src' });
  assert.deepEqual([code, ran], ['reported', 0]);
});

test('integrity.json has the hash of every file that a page loads', async () => {
  const listed = JSON.parse(await readFile(join(built, 'integrity.json'), 'utf8'));
  const files = (await readdir(built)).filter(isLoaded).sort();
  assert.deepEqual(Object.keys(listed).sort(), files);
  assert.equal(files.length, 13, String(files));
  for (const file of files) {
    const hash = createHash('sha256').update(await readFile(join(built, file))).digest('base64');
    assert.equal(listed[file], `sha256-${hash}`, file);
  }
});

test("on the page's own origin everything runs as it was built, under a policy without blob:", async () => {
  assert.deepEqual(await report('truthful', { from: 'site' }), { code: 'reported', message: '', ran: 0 });
  assert.deepEqual(workers, ['http:']);
  assert.equal((await server.take()).length, 1);
});

for (const file of checkedFiles) {
  for (const [from, where] of sourcesOf(file)) {
    test(`a changed ${file.replace(/[0-9a-f]{12}/, '…')} of ${where} does not run`, async () => {
      const { code, ran, message } = await sites.reportChanged(browse, file, from);
      assert.deepEqual([code, ran], [/tokens/.test(file) ? 'not-delivered' : 'module-failed', 0], message);
      assert.match(message, /: its hash is not the one/);
      assert.ok(message.includes(file), message);
      assert.deepEqual(await server.take(), []);
    });
  }
}

test('a changed doona.global.js does not run: the browser compares it with integrity.json', async () => {
  sites.changed.file = /doona\.global\.js/;
  const got = await report('truthful', { from: 'tag' });
  assert.deepEqual([got.ran, /doona|undefined/.test(got.message)], [0, true], got.message);
  assert.deepEqual(await server.take(), []);
});
