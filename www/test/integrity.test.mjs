// Tests that the SDK compares every file that it loads with the file's hash before the file runs, both for files on
// another origin and for files on the page's own origin.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { readFile, readdir } from 'node:fs/promises';
import { createServer } from 'node:http';
import { extname, join } from 'node:path';
import { after, beforeEach, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { launch, startTestServer } from './harness.mjs';

/** @typedef {import('node:http').IncomingMessage} Request */
/** @typedef {import('node:http').ServerResponse} Response */

const built = fileURLToPath(new URL('../../build/www', import.meta.url));
const types = /** @type {Record<string, string>} */ ({ '.js': 'text/javascript', '.wasm': 'application/wasm' });

/** @type {Awaited<ReturnType<typeof startTestServer>>} */
let server;
/** @type {import('playwright-core').Browser} */
let browser;
/** @type {Awaited<ReturnType<typeof serve>>} */
let cdn;
/** @type {Awaited<ReturnType<typeof serve>>} */
let site;

/** Which files are changed (`file`), on which server (`at`), and how often a changed file has run (`ran`). */
const changed = { file: /^$/, at: 'both', ran: 0 };
/** The policy and the script tag of the page. */
const page = { policy: '', script: '' };

beforeEach(async () => {
  server ??= await startTestServer();
  browser ??= await launch();
  cdn ??= await serve(fromCDN);
  site ??= await serve(fromSite);
  Object.assign(changed, { file: /^$/, at: 'both', ran: 0 });
  await server.take();
});
after(async () => {
  await browser?.close();
  await server?.stop();
  cdn?.stop();
  site?.stop();
});

/** @param {(request: Request, response: Response) => Promise<unknown>} answer */
async function serve(answer) {
  const listening = createServer((request, response) => {
    answer(request, response).catch(() => response.writeHead(404).end());
  });
  listening.listen(0, '127.0.0.1');
  await once(listening, 'listening');
  const { port } = /** @type {import('node:net').AddressInfo} */ (listening.address());
  return { url: `http://127.0.0.1:${port}`, stop: () => listening.close() };
}

/**
 * Plays a CDN: serves the built files to pages of any origin. A changed script reports that it runs (`/ran`) and then
 * works as built.
 * @param {Request} request @param {Response} response
 */
async function fromCDN({ url = '' }, response) {
  response.setHeader('Access-Control-Allow-Origin', '*');
  if (url === '/ran') return response.end(String(changed.ran++));
  return serveFile(url, 'cdn', response);
}

/**
 * Serves the page and the SDK, and answers as the site's backend.
 * @param {Request} request @param {Response} response
 */
async function fromSite(request, response) {
  const { url = '' } = request;
  if (url.startsWith('/test/')) {
    const parts = [];
    for await (const part of request) parts.push(part);
    const answer = await fetch(server.site + url, { method: 'POST', body: Buffer.concat(parts) });
    const body = Buffer.from(await answer.arrayBuffer());
    return response.writeHead(answer.status).end(body);
  }
  if (url !== '/') return serveFile(url, 'site', response);
  return response.writeHead(200, { 'Content-Type': 'text/html', 'Content-Security-Policy': page.policy })
    .end(`<!doctype html>${page.script}`);
}

/**
 * Serves a built file, with changes if `changed` names it.
 * @param {string} url @param {string} at @param {Response} response
 */
async function serveFile(url, at, response) {
  const body = await readFile(join(built, url), 'latin1');
  const more = changed.file.test(url) && (changed.at === 'both' || changed.at === at)
    ? `;fetch(${JSON.stringify(`${cdn.url}/ran`)}, { mode: 'no-cors' });` : '';
  return response.writeHead(200, { 'Content-Type': types[extname(url)] ?? '' }).end(body + more, 'latin1');
}

/**
 * Loads the SDK in a page and reports 7. By `from`, the SDK is on the site with `modules` on the CDN, or in a script
 * tag from the CDN, or all on the site.
 * @param {string} name of the task
 * @param {{from?: 'modules' | 'tag' | 'site', blob?: 'worker-src' | 'script-src' | 'none', explains?: boolean,
 *   inPlace?: boolean}} [how] blob: which directive of the page's policy admits blob: addresses; explains: whether the
 *   page calls explain() first; inPlace: whether no worker may run
 */
async function report(name, { from = 'modules', blob = 'worker-src', explains = false, inPlace = false } = {}) {
  const tag = from === 'tag';
  const integrity = JSON.parse(await readFile(join(built, 'integrity.json'), 'utf8'))['doona.global.js'];
  const { task } = server.tasks[name] ?? { task: '' };
  const worker = workers[inPlace ? 'none' : from === 'site' ? 'site' : blob];
  page.policy = `default-src 'self'; connect-src *; worker-src ${worker};
    script-src 'self' 'wasm-unsafe-eval' ${tag ? cdn.url : ''} ${blob === 'script-src' ? 'blob:' : ''}`
    .replace('\n', '');
  page.script = tag ? `<script src="${cdn.url}/doona.global.js" integrity="${integrity}" crossorigin></script>` : '';
  const context = await browser.newContext();
  try {
    const tab = await context.newPage();
    await tab.goto(site.url);
    const result = await tab.evaluate(async ({ offer, tag, modules, explains }) => {
      const file = '/doona.js';
      /** @type {import('../sdk/options.js').TokenSource} */
      const tokens = (body, { uri }) => fetch(`/test/token?uri=${encodeURIComponent(uri)}`, { method: 'POST', body });
      try {
        /** @type {typeof import('../sdk/index.js')} */
        const { connect } = tag ? /** @type {any} */ (globalThis).doona : await import(file);
        const doona = await connect({ ...offer, ...(modules && { modules }), maxEpsilon: 10, maxDelta: 1,
          maxTotalEpsilon: 10, spread: 0, when: 'now', tokens });
        if (explains) await doona.explain();
        await doona.report(1);
        return { code: 'reported', message: '' };
      } catch (error) {
        const { code, message } = /** @type {any} */ (error);
        return { code, message };
      }
    }, { offer: /** @type {any} */ ({ task, owner: server.tasks[name]?.owner }), tag, explains,
      modules: from === 'modules' ? `${cdn.url}/` : undefined });
    const started = tab.workers().map((worker) => new URL(worker.url()).protocol);
    return { ...result, workers: started, ran: changed.ran };
  } finally {
    await context.close();
  }
}

/** The value of the page's worker-src, by the parameter `blob`. */
const workers = { 'worker-src': 'blob:', 'script-src': "'none'", none: "'none'", site: "'self'" };

for (const from of /** @type {const} */ (['modules', 'tag'])) {
  const how = from === 'tag' ? 'a script tag with integrity' : 'the option modules';
  test(`${how}: scripts of another origin run as they were built`, async () => {
    const reported = { code: 'reported', message: '', ran: 0 };
    assert.deepEqual(await report('truthful', { from }), { ...reported, workers: ['blob:'] });
    assert.deepEqual(await report('truthful', { from, blob: 'script-src' }), { ...reported, workers: [] }, 'in place');
    assert.equal((await server.take()).length, 2);
  });

  test(`${how}: a changed worker does not run in place, either`, async () => {
    changed.file = /doona-worker-/;
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
  changed.file = /doona-tokens-/;
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

/** Whether pages load a file of the package: neither source maps nor the module for CommonJS. @param {string} name */
function isLoaded(name) {
  return name.startsWith('doona') && !/\.(map|cjs)$/.test(name);
}

test('integrity.json has the hash of every file that a page loads', async () => {
  const listed = JSON.parse(await readFile(join(built, 'integrity.json'), 'utf8'));
  const files = (await readdir(built)).filter(isLoaded).sort();
  assert.deepEqual(Object.keys(listed).sort(), files);
  assert.equal(files.length, 9, String(files));
  for (const file of files) {
    const hash = createHash('sha256').update(await readFile(join(built, file))).digest('base64');
    assert.equal(listed[file], `sha256-${hash}`, file);
  }
});

test("on the page's own origin everything runs as it was built, under a policy without blob:", async () => {
  assert.deepEqual(await report('truthful', { from: 'site' }),
    { code: 'reported', message: '', ran: 0, workers: ['http:'] });
  assert.equal((await server.take()).length, 1);
});

// The page's first script checks all other files. Only integrity in its script tag checks the first script itself.
const first = ['doona.js', 'doona.global.js'];
for (const file of (await readdir(built)).filter((name) => isLoaded(name) && !first.includes(name))) {
  for (const from of /** @type {const} */ (['site', 'modules', 'tag'])) {
    const where = { site: "the page's origin", modules: 'the option modules', tag: "the script tag's origin" }[from];
    test(`a changed ${file.replace(/[0-9a-f]{12}/, '…')} of ${where} does not run`, async () => {
      await fetch(`${server.site}/test/login`, { method: 'POST', body: crypto.randomUUID() });
      changed.file = new RegExp(`${file}$`);
      // doona.wasm is loaded only for protocols that doona-small.wasm lacks.
      const task = /full/.test(file) ? 'post-quantum' : /tokens/.test(file) ? 'tokens'
        : /small|worker|words|in-place/.test(file) ? 'truthful' : 'shares';
      const { code, ran, message } = await report(task, { from, explains: /words/.test(file),
        inPlace: /in-place/.test(file) });
      assert.deepEqual([code, ran], [/tokens/.test(file) ? 'not-delivered' : 'module-failed', 0], message);
      assert.match(message, /: its hash is not the one/);
      assert.ok(message.includes(file), message);
      assert.deepEqual(await server.take(), []);
    });
  }
}

test('a changed doona.global.js does not run: the browser compares it with integrity.json', async () => {
  changed.file = /doona\.global\.js/;
  const got = await report('truthful', { from: 'tag' });
  assert.deepEqual([got.ran, /doona|undefined/.test(got.message)], [0, true], got.message);
  assert.deepEqual(await server.take(), []);
});
