/**
 * A script of another origin runs only with the bytes of the build; test/elsewhere.test.mjs checks it in a browser.
 * @module
 */

import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';

import { utf8 } from './bytes.js';
import { DoonaError } from './errors.js';
import { checkedScript } from './script.js';

const code = utf8('export const answer = 42;');
const hash = Buffer.from(await crypto.subtle.digest('SHA-256', code)).toString('base64');
const asset = { file: './script.js', integrity: `sha256-${hash}` };

/** Calls checkedScript on a page of an origin, with a server's bytes; returns the text of the script that would run. */
async function check(t: TestContext, page: string | undefined, url: string, bytes = code): Promise<string | undefined> {
  Reflect.deleteProperty(globalThis, 'location');
  if (page) Object.defineProperty(globalThis, 'location', { value: new URL(page), configurable: true });
  t.mock.method(globalThis, 'fetch', async () => new Response(bytes));
  const address = await checkedScript(asset, () => new URL(url)).finally(() => t.mock.restoreAll());
  return address && (await fetch(address)).text();
}

test("a script of the page's origin runs unchecked", async (t) => {
  for (const [page, url] of [['https://site.test/a/b', 'https://site.test/doona/script.js'],
    [undefined, 'file:///doona/script.js'], ['https://site.test/', 'data:text/javascript,1'],
    ['https://site.test/', 'not an address']] as const) {
    assert.equal(await check(t, page, url, utf8('other bytes')), undefined, url);
  }
});

test('a script of another origin runs only with the bytes of the build', async (t) => {
  for (const [page, url] of [['https://site.test/', 'https://cdn.test/script.js'],
    ['https://site.test/', 'http://site.test/script.js'], ['https://site.test/', 'https://site.test:444/script.js'],
    [undefined, 'https://cdn.test/script.js']] as const) {
    assert.equal(await check(t, page, url), 'export const answer = 42;', url);
    await assert.rejects(check(t, page, url, utf8('export const answer = 43;')),
      (error) => error instanceof DoonaError && error.code === 'module-failed' && error.field === 'modules' &&
        /couldn't load .\/script.js: its hash is not the one this script names/.test(error.message), url);
  }
});

test('a script above a megabyte is not read further', async (t) => {
  await assert.rejects(check(t, 'https://site.test/', 'https://cdn.test/script.js', new Uint8Array((1 << 20) + 1)),
    /longer than 1048576 bytes/);
});
