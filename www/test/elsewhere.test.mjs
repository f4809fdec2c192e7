// The SDK's files on another origin than the page's: the server of that origin cannot replace them.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
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

/** Which file of the CDN is changed, and how often the changed file has run. */
const changed = { file: /^$/, ran: 0 };
/** The page's policy and script tag. */
const page = { policy: '', script: '' };

beforeEach(async () => {
  server ??= await startTestServer();
  browser ??= await launch();
  cdn ??= await serve(fromCDN);
  site ??= await serve(fromSite);
  Object.assign(changed, { file: /^$/, ran: 0 });
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

/** Serves the built files to pages of any origin. A changed script announces that it runs and then works as built.
 * @param {Request} request @param {Response} response */
async function fromCDN({ url = '' }, response) {
  response.setHeader('Access-Control-Allow-Origin', '*');
  if (url === '/ran') return response.end(String(changed.ran++));
  const body = await readFile(join(built, url), 'latin1');
  const more = changed.file.test(url) ? `;fetch(${JSON.stringify(`${cdn.url}/ran`)}, { mode: 'no-cors' });` : '';
  return response.writeHead(200, { 'Content-Type': types[extname(url)] ?? '' }).end(body + more, 'latin1');
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
  if (url !== '/') {
    const body = await readFile(join(built, url));
    return response.writeHead(200, { 'Content-Type': types[extname(url)] ?? '' }).end(body);
  }
  return response.writeHead(200, { 'Content-Type': 'text/html', 'Content-Security-Policy': page.policy })
    .end(`<!doctype html>${page.script}`);
}

/**
 * Loads the SDK and reports 7. The SDK is on the site with `modules` on the CDN, or in a script tag from the CDN.
 * @param {string} name of the task
 * @param {{tag?: boolean, blob?: 'worker-src' | 'script-src' | 'none'}} [how] blob: which directive of the page's
 *   policy admits blob: addresses
 */
async function report(name, { tag = false, blob = 'worker-src' } = {}) {
  const script = await readFile(join(built, 'doona.global.js'));
  const integrity = `sha256-${createHash('sha256').update(script).digest('base64')}`;
  const { task } = server.tasks[name] ?? { task: '' };
  page.policy = `default-src 'self'; connect-src *; worker-src ${blob === 'worker-src' ? 'blob:' : "'none'"};
    script-src 'self' 'wasm-unsafe-eval' ${tag ? cdn.url : ''} ${blob === 'script-src' ? 'blob:' : ''}`
    .replace('\n', '');
  page.script = tag ? `<script src="${cdn.url}/doona.global.js" integrity="${integrity}" crossorigin></script>` : '';
  const context = await browser.newContext();
  try {
    const tab = await context.newPage();
    await tab.goto(site.url);
    const result = await tab.evaluate(async ({ offer, tag, modules }) => {
      const file = '/doona.js';
      /** @type {typeof import('../sdk/index.js')} */
      const { connect } = tag ? /** @type {any} */ (globalThis).doona : await import(file);
      /** @type {import('../sdk/options.js').TokenSource} */
      const tokens = (body, { uri }) => fetch(`/test/token?uri=${encodeURIComponent(uri)}`, { method: 'POST', body });
      try {
        const doona = await connect({ ...offer, ...(!tag && { modules }), maxEpsilon: 10, maxDelta: 1,
          maxTotalEpsilon: 10, spread: 0, when: 'now', tokens });
        await doona.report(1);
        return { code: 'reported', message: '' };
      } catch (error) {
        const { code, message } = /** @type {any} */ (error);
        return { code, message };
      }
    }, { offer: /** @type {any} */ ({ task, owner: server.tasks[name]?.owner }), tag, modules: `${cdn.url}/` });
    const workers = tab.workers().map((worker) => new URL(worker.url()).protocol);
    return { ...result, workers, ran: changed.ran };
  } finally {
    await context.close();
  }
}

for (const tag of [false, true]) {
  const how = tag ? 'a script tag with integrity' : 'the option modules';
  test(`${how}: scripts of another origin run as they were built`, async () => {
    const reported = { code: 'reported', message: '', ran: 0 };
    assert.deepEqual(await report('truthful', { tag }), { ...reported, workers: ['blob:'] });
    assert.deepEqual(await report('truthful', { tag, blob: 'script-src' }), { ...reported, workers: [] }, 'in place');
    assert.equal((await server.take()).length, 2);
  });

  test(`${how}: a changed worker gets no value, and does not run`, async () => {
    changed.file = /doona-worker-/;
    for (const blob of /** @type {const} */ (['worker-src', 'script-src'])) {
      const { code, message, ran } = await report('truthful', { tag, blob });
      assert.deepEqual([code, ran], ['module-failed', 0]);
      assert.match(message, /couldn't load \.\/doona-worker-[0-9a-f]+\.js: its hash is not the one/);
    }
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

test('the script for tokens runs as it was built', async () => {
  await fetch(`${server.site}/test/login`, { method: 'POST', body: crypto.randomUUID() });
  const { code, ran } = await report('tokens', { blob: 'script-src' });
  assert.deepEqual([code, ran], ['reported', 0]);
});
