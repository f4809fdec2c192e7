// A task with tokens in a real browser: a real issuer, a real relay, and the site's backend between.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { launch, open, startTestServer } from './harness.mjs';

/** @type {Awaited<ReturnType<typeof startTestServer>>} */
let server;
/** @type {import('playwright-core').Browser} */
let browser;

before(async () => {
  server = await startTestServer();
  browser = await launch();
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

/** Messages the browser itself writes for HTTP errors; the SDK writes none. */
const network = /^Failed to load resource/;

/**
 * Opens a page as a new visitor and reports once for a task.
 * @param {string} account
 * @param {{name?: string, options?: object, through?: (page: import('playwright-core').Page) => Promise<unknown>, again?: boolean}} [with_]
 */
async function visit(account, { name = 'tokens', options = {}, through, again = false } = {}) {
  await fetch(`${server.site}/test/login`, { method: 'POST', body: account });
  const context = await browser.newContext();
  try {
    const { page, complaints } = await open(context, `${server.site}/blank.html`);
    /** @type {import('playwright-core').Request[]} */
    const requests = [];
    page.on('request', (request) => requests.push(request));
    await through?.(page);
    const got = await page.evaluate(
      async ({ offer, options, again }) => {
        const file = '/doona.js';
        /** @type {typeof import('../sdk/index.js')} */
        const { connect, DoonaError } = await import(file);
        const doona = await connect({
          ...offer, maxEpsilon: 10, maxDelta: 1, maxTotalEpsilon: 10, spread: 0, when: 'now', ...options,
          tokens: (body, { uri }) => fetch(`/test/token?uri=${encodeURIComponent(uri)}`, { method: 'POST', body }),
        });
        try {
          const first = await doona.report(1);
          return { first, second: again ? await doona.report(1) : null, code: '' };
        } catch (error) {
          if (!(error instanceof DoonaError)) throw error;
          return { first: null, second: null, code: error.code, message: error.message, flushed: again ? await doona.flush() : null };
        }
      },
      { offer: /** @type {any} */ (server.tasks[name]), options, again },
    );
    assert.deepEqual(complaints.filter((text) => !network.test(text)), []);
    return { ...got, requests };
  } finally {
    await context.close();
  }
}

for (const sealing of /** @type {const} */ (['webcrypto', 'wasm'])) {
  test(`${sealing}: a report with a token is taken, and the site's quota ends at two`, async () => {
    const options = { sealing };
    for (let i = 0; i < 2; i++) {
      const { first, code } = await visit(`ann ${sealing}`, { options });
      assert.equal(code, '');
      assert.equal(first?.repeated, false);
    }
    assert.equal((await visit(`ann ${sealing}`, { options })).code, 'limit-reached');
    assert.equal((await visit(`bob ${sealing}`, { options })).code, '', 'another person at the same address');
  });
}

test('a retry, also by flush, sends the same bytes with the same token', async () => {
  /** @type {{body: string, token: string | undefined}[]} */
  const sent = [];
  const { code, flushed, requests } = await visit('cid', {
    again: true,
    through: (page) =>
      page.route('**/reports', async (route) => {
        const request = route.request();
        if (request.method() !== 'POST') return route.continue();
        sent.push({ body: request.postDataBuffer()?.toString('hex') ?? '', token: (await request.allHeaders())['authorization'] });
        if (sent.length === 1) return route.fulfill({ status: 503, headers: { 'Retry-After': '100', 'Access-Control-Allow-Origin': '*', 'Access-Control-Expose-Headers': 'Retry-After' }, contentType: 'application/problem+json', body: '{"type":"urn:doona:error:overloaded"}' });
        return route.continue();
      }),
  });
  assert.equal(code, 'not-delivered');
  assert.deepEqual(flushed, { delivered: 1, dropped: 0, waiting: 0 });
  assert.equal(sent.length, 2);
  assert.deepEqual(sent[0], sent[1]);
  assert.match(sent[0]?.token ?? '', /^PrivateToken token="[A-Za-z0-9_-]{472}"$/);
  assert.equal(requests.filter((r) => r.url().includes('/test/token')).length, 1, 'one token');
});

test('a second call in the epoch asks for no second token', async () => {
  const { second, requests } = await visit('dan', { again: true });
  assert.equal(second?.repeated, true);
  assert.equal(requests.filter((r) => r.url().includes('/test/token')).length, 1);
});

test("an issuer's key that the task does not name marks nobody: no token, and the report waits", async () => {
  const { code, message, flushed } = await visit('eve', {
    again: true,
    through: (page) =>
      page.route('**/issuer-directory', async (route) => {
        const response = await route.fetch();
        const directory = await response.json();
        directory['token-keys'][0]['token-key'] = directory['token-keys'][0]['token-key'].replace(/.{10}(.{6})$/, 'AAAAAAAAAA$1');
        return route.fulfill({ response, json: directory });
      }),
  });
  assert.equal(code, 'not-delivered');
  assert.match(message ?? '', /not the one the task names/);
  assert.deepEqual(flushed, { delivered: 0, dropped: 0, waiting: 1 });
});

test('pages of tasks without tokens do not load what tokens need', async () => {
  const { requests, code } = await visit('fay', { name: 'histogram' });
  assert.equal(code, '');
  assert.ok(requests.some((r) => r.url().includes('/doona-')), 'the module');
  assert.ok(!requests.some((r) => r.url().includes('doona-tokens')));
  assert.ok((await visit('fay')).requests.some((r) => r.url().includes('doona-tokens')));
});
