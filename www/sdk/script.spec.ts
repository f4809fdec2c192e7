/**
 * Tests that a script with other bytes than the build's does not run. test/integrity.test.mjs checks it in a browser.
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

/**
 * Calls checkedScript as if on the page `page`, while the server answers with `bytes`. Returns the address from which
 * the script would run.
 */
async function checkAddress(t: TestContext, page: string | undefined, url: string,
  bytes = code): Promise<string | undefined> {
  Reflect.deleteProperty(globalThis, 'location');
  if (page) Object.defineProperty(globalThis, 'location', { value: new URL(page), configurable: true });
  t.mock.method(globalThis, 'fetch', async () => new Response(bytes));
  return checkedScript(asset, () => new URL(url)).finally(() => t.mock.restoreAll());
}

/** Whether an error says that the script's hash is wrong. */
const refused = (error: unknown): boolean =>
  error instanceof DoonaError && error.code === 'module-failed' && error.field === 'modules' &&
    /couldn't load .\/script.js: its hash is not the one this script names/.test(error.message);

test('a script on the origin of the page runs from its own address, only with the bytes of the build', async (t) => {
  const [page, url] = ['https://site.test/a/b', 'https://site.test/doona/script.js'];
  assert.equal(await checkAddress(t, page, url), url);
  await assert.rejects(checkAddress(t, page, url, utf8('other bytes')), refused);
});

test('a development server may append a comment that names a source map, and nothing else', async (t) => {
  const [page, url] = ['https://site.test/a/b', 'https://site.test/doona/script.js'];
  const serve = (added: string) => checkAddress(t, page, url, utf8(`export const answer = 42;${added}`));
  assert.equal(await serve('\n//# sourceMappingURL=data:application/json;base64,AA=='), url);
  for (const added of ['\n// sourceMappingURL=a', '//# sourceMappingURL=a', '\n//# sourceMappingURL=a\nalert()',
    '\n//# sourceMappingURL=a\u2028alert()', '\n//# sourceMappingURL=a\ralert()', 'alert()\n//# sourceMappingURL=a']) {
    await assert.rejects(serve(added), refused, added);
  }
  await assert.rejects(checkAddress(t, page, 'https://cdn.test/script.js',
    utf8('export const answer = 42;\n//# sourceMappingURL=a')), refused);
});

test('a script that is a part of the site or of a program is not fetched', async (t) => {
  for (const [page, url] of [['https://site.test/', 'https://site.test/assets/script-9f3.js'],
    [undefined, 'file:///doona/script.js'], ['https://site.test/', 'data:text/javascript,1'],
    ['https://site.test/', 'not an address']] as const) {
    assert.equal(await checkAddress(t, page, url, utf8('other bytes')), undefined, url);
  }
  Object.assign(globalThis, { ServiceWorkerGlobalScope: class {} }); // A service worker cannot import files.
  t.after(() => Reflect.deleteProperty(globalThis, 'ServiceWorkerGlobalScope'));
  assert.equal(await checkAddress(t, 'https://site.test/', 'https://site.test/script.js', utf8('other')), undefined);
});

test('a script of another origin runs only with the bytes of the build', async (t) => {
  for (const [page, url] of [['https://site.test/', 'https://cdn.test/script.js'],
    ['https://site.test/', 'http://site.test/script.js'], ['https://site.test/', 'https://site.test:444/script.js'],
    [undefined, 'https://cdn.test/script.js']] as const) {
    const address = await checkAddress(t, page, url);
    assert.equal(await (await fetch(address!)).text(), 'export const answer = 42;', url);
    await assert.rejects(checkAddress(t, page, url, utf8('export const answer = 43;')), refused, url);
  }
});

test('a script above a megabyte is not read further', async (t) => {
  await assert.rejects(checkAddress(t, 'https://site.test/', 'https://cdn.test/script.js', new Uint8Array((1 << 20) + 1)),
    /longer than 1048576 bytes/);
});
