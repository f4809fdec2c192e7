/**
 * Tests where the SDK runs: in Electron, in apps and in browser extensions.
 * @module
 */

import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';

import { checkRuntime } from './connect.js';
import { DoonaError } from './errors.js';
import { parseOptions } from './options.js';

/** Replaces a global object for a test. */
function replace(t: TestContext, name: 'document' | 'location', value: unknown): void {
  Object.defineProperty(globalThis, name, { value, configurable: true });
  t.after(() => Reflect.deleteProperty(globalThis, name));
}

test('an Electron page with an old Node is a page, and an old Node without a page is refused', (t) => {
  const { versions } = process;
  const old = { ...versions, node: '20.19.0', electron: '39' };
  Object.defineProperty(process, 'versions', { value: old, configurable: true });
  t.after(() => Object.defineProperty(process, 'versions', { value: versions, configurable: true }));
  assert.throws(checkRuntime, (error) => error instanceof DoonaError && error.code === 'module-failed');
  replace(t, 'document', {});
  checkRuntime();
});

test("files may be at the scheme of the page's own extension or app, and at no other", (t) => {
  const [id, owner] = ['0'.repeat(64), 'ed25519:O2onvM62pC1io6jQKm8Nc2UyFXcd4kOmOsBIoYtZ2ik'];
  const parse = (modules: string) => parseOptions({ task: `https://relay.test/v1/tasks/${id}`, owner, modules,
    maxEpsilon: 1, maxDelta: 1, maxTotalEpsilon: 1 }).modules?.href;
  for (const page of ['chrome-extension://abcdef/page.html', 'moz-extension://abcdef/a', 'tauri://localhost/index.html',
    'app://./index.html', 'capacitor://localhost/']) {
    replace(t, 'location', new URL(page));
    const folder = page.replace(/[^/]*$/, 'doona/');
    assert.equal(parse(folder), new URL(folder).href);
    assert.equal(parse('https://cdn.test/doona/'), 'https://cdn.test/doona/');
    for (const other of ['javascript:alert(1)/', 'data:text/javascript,/', 'blob:https://a.test/x/', 'other://x/']) {
      assert.throws(() => parse(other), (error) => error instanceof DoonaError && error.code === 'invalid-option' &&
        error.field === 'modules' && /the page's scheme/.test(error.message), other);
    }
  }
});
