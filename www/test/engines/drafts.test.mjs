// A draft waits while the visitor goes on within the site, and leaves with the visitor, in each engine that says where
// a navigation leads.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';

import { startTestServer } from '../harness.mjs';
import { browsers } from './browsers.mjs';

for (const [engine, start] of Object.entries(browsers)) {
  test(`${engine}: a draft waits while the visitor goes on within the site, and leaves with the visitor`, async () => {
    const server = await startTestServer();
    after(server.stop);
    const { open, run, stop } = await start();
    after(stop);
    const options = JSON.stringify({ ...server.tasks['year, noise by relays'], maxEpsilon: 100, maxDelta: 1,
      maxTotalEpsilon: 100, when: 'now' });
    /** Connects, reports a provisional value if there is one, and waits until a draft waits. @param {string} [value] */
    const draft = (value) => run(`const done = arguments[0];
      import('/doona.js').then(async ({ init }) => {
        const client = init(${options});
        ${value ? `client.report(${value}, { final: false });` : ''}
        while (client.status.state !== 'draft') await new Promise((resolve) => setTimeout(resolve, 20));
      }).then(done, (error) => done(String(error)));`);
    const goTo = async (/** @type {string} */ url) => {
      await run(`setTimeout(() => { location.href = '${url}'; }); arguments[0]()`);
      await new Promise((resolve) => setTimeout(resolve, 1500));
      return (await server.take()).map(({ messages }) => messages);
    };
    await open(`${server.site}/blank.html`);
    await draft('5');
    assert.deepEqual(await goTo('/blank.html?next'), []);
    await draft();
    assert.deepEqual(await goTo('about:blank'), [[['05']]]);
  });
}
