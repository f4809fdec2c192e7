// Tests the SDK on hostile pages in Chromium: each page has the outcome that docs/browsers.md lists. Only the long form
// tests slow pages; engines/hostile.test.mjs tests all pages in Firefox and WebKitGTK, too.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { long, startTestServer } from './harness.mjs';
import { distinct, pages, startChromium, tasks, testPages, visitPage } from './hostile.mjs';

testPages('Chromium', () => startChromium(), { slow: long, concurrency: 4 });

test('a service worker that answers from its cache first does not end a stream', async () => {
  const server = await startTestServer();
  const serve = (/** @type {string} */ variant) =>
    fetch(`${server.site}/test/stream`, { method: 'POST', body: JSON.stringify(variant) });
  const { open, stop } = await startChromium((page) => page.on('framenavigated', (frame) => {
    if (frame.url().endsWith('?again')) void serve('good'); // The owner adds tasks between the two visits.
  }));
  try {
    await serve('replayed'); // two tasks of an hour
    const offers = Object.fromEntries(tasks.map((name) => [name, /** @type {any} */ (server.tasks['stream'])]));
    const { text } = await visitPage({ ...pages['Service worker: cache first'], same: true, epsilon: 1000, begins: `{
      const { now } = Date;
      if (location.search) Date.now = () => now() + 2.5 * 3_600_000;
    }` }, offers, open);
    assert.equal(text.trim(), 'reported,reported');
    const reports = distinct(await server.take());
    assert.deepEqual(reports.map(({ messages, error }) => [messages, error]), Array(2).fill([[['0001']], '']));
    assert.equal(new Set(reports.map(({ path }) => path)).size, 2, 'a task each');
  } finally {
    await stop();
    await server.stop();
  }
});
