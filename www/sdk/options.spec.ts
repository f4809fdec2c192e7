/**
 * Tests the options that depend on the page's address: browser extensions and apps have schemes of their own.
 * @module
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { parseOptions } from './options.js';

const given = {
  task: `https://relay.example/v1/tasks/${'0'.repeat(64)}`,
  owner: `ed25519:${'A'.repeat(43)}`,
  budget: { epsilon: 1, delta: 1e-5, days: 1 },
};

for (const page of ['https://shop.example/', 'chrome-extension://abcdef/popup.html', 'capacitor://localhost/index.html',
  'tauri://localhost/', 'app://./index.html', 'file:///opt/app/index.html']) {
  test(`on a page of ${page}, modules may be in a folder of that scheme, and nothing else but a folder`, () => {
    const location = new URL(page);
    Object.defineProperty(globalThis, 'location', { value: location, configurable: true });
    try {
      const want = new URL('doona/', page).href;
      for (const modules of ['doona/', want, new URL(want)]) {
        assert.equal(parseOptions({ ...given, modules }).modules?.href, want);
      }
      const own = new URL('tasks/', page).href + given.task.slice(-64);
      for (const [option, value] of [['modules', 'doona'], ['modules', 'other-scheme://host/doona/'], ['task', own]]) {
        assert.throws(() => parseOptions({ ...given, [option!]: value }), { code: 'invalid-option', field: option! });
      }
    } finally {
      Reflect.deleteProperty(globalThis, 'location');
    }
  });
}
