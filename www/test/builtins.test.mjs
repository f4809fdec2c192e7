// Tests the SDK beside libraries that replace builtins of JavaScript. The test replaces each builtin that the built
// scripts use, before and after the scripts load. The budget must hold, nothing may leave unsealed, and the page must
// get a correct report or an error that says why. The long form takes minutes: it also reports with each broken builtin
// that the SDK accepts, one by one, and repeats all with the engine in a worker.
import assert from 'node:assert/strict';
import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { after, beforeEach, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { builtinsOf, tryBuiltins } from './builtins.mjs';
import { launch, long, open, startTestServer } from './harness.mjs';

const built = fileURLToPath(new URL('../../build/www', import.meta.url));

/** @type {Awaited<ReturnType<typeof startTestServer>>} */
let server;
/** @type {import('playwright-core').Browser} */
let browser;

beforeEach(async () => {
  server ??= await startTestServer();
  browser ??= await launch();
  await server.take();
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

/** Returns the code of the page's script and of the engine's script for the page's thread. */
async function scripts() {
  const inPlace = (await readdir(built)).find((name) => name.startsWith('doona-in-place-'));
  return Promise.all(['doona.js', String(inPlace)].map((file) => readFile(join(built, file), 'utf8')));
}

for (const [where, inPlace] of /** @type {[string, boolean][]} */ ([
  ...(long ? [['with the engine in a worker', false]] : []), ['with the engine in the page', true]])) {
  test(`${where} no replaced builtin voids the budget`, async (t) => {
    const [page, engine] = await scripts();
    const context = await browser.newContext();
    try {
      const { page: tab } = await open(context, `${server.site}/blank.html`);
      const names = await tab.evaluate(`(${builtinsOf})(${JSON.stringify(inPlace ? `${page}${engine}` : page)})`);
      assert.ok(names.length >= 60, `${names.length} builtins`);
      const input = { names, inPlace, each: long, tasks: [server.tasks['one relay'], server.tasks['three relays']] };
      const tried = await tab.evaluate(`(${tryBuiltins})(${JSON.stringify(input)})`);
      const got = await server.take();
      assert.deepEqual(tried.wrong, []);
      assert.equal(got.length, tried.reported);
      for (const { messages, error } of got) assert.deepEqual([messages, error], [[['0007']], '']);
      assert.ok(tried.reported > 0 && tried.named >= 120, `${tried.named} refusals name the builtin`);
      t.diagnostic(`${names.length} builtins, ${tried.tried} tries: ${tried.reported} reports, ${tried.refused} refusals`);
    } finally {
      await context.close();
    }
  });
}
