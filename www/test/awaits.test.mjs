// Tests that no call of the SDK stays pending, whichever of its awaits hangs: the call succeeds, or it rejects
// with a named error within 35 seconds. The test finds the awaits in the SDK's source and makes each hang in turn, from
// each call in which it runs. The short form makes some hang, at random.
import assert from 'node:assert/strict';
import { after, beforeEach, test } from 'node:test';

import { hangingScripts, serveHanging, visitHanging } from './awaits.mjs';
import { launch, long, startTestServer } from './harness.mjs';

/** @typedef {import('./awaits.mjs').Visit} Visit */

/** @type {Awaited<ReturnType<typeof startTestServer>>} */
let server;
/** @type {import('playwright-core').Browser} */
let browser;
/** @type {Awaited<ReturnType<typeof serveHanging>>} */
let site;

const { awaits, limited, scripts } = await hangingScripts();

beforeEach(async () => {
  server ??= await startTestServer();
  await fetch(`${server.site}/test/stream`, { method: 'POST', body: '"good"' });
  browser ??= await launch();
  site ??= await serveHanging(scripts, server);
});
after(async () => {
  await browser?.close();
  await server?.stop();
  site?.stop();
});

/** The flows of visitHanging in which every call succeeds if nothing hangs, and those in which the relay refuses. */
const succeeding = ['task', 'task in place', 'tokens', 'stream', 'post-quantum', 'sealing in doona-full.wasm', 'init',
  'init, consent pending', "init on the relay's origin", 'task with its own store'];
const refusing = ['undelivered', 'limited', 'too late', 'token refused', 'no value of the task'];
const flows = [...succeeding, ...refusing];
const shortFlows = ['task', 'task in place', 'init, consent pending'];

/** Matches the outcome of a call that succeeded, or that failed with the code of a DoonaError. */
const isNamed = /^(?!pending|failed)[a-z-]+$/;

/** Makes one await hang in a new page. @param {Omit<Visit, 'tasks'>} visit */
async function visit({ flow, index, from }) {
  const context = await browser.newContext();
  try {
    const page = await context.newPage();
    if (flow === 'tokens') await fetch(`${server.site}/test/login`, { method: 'POST', body: crypto.randomUUID() });
    await page.goto(site.url);
    const input = { flow, index, from, tasks: server.tasks };
    return /** @type {Awaited<ReturnType<typeof visitHanging>>} */ (
      await page.evaluate(`(${visitHanging})(${JSON.stringify(input)})`));
  } finally {
    await context.close();
  }
}

/** The steps in which an await of the SDK runs, in the first flow that reaches it there. */
async function places() {
  /** @type {Map<string, Omit<Visit, 'tasks'>>} */
  const found = new Map();
  for (const flow of long ? flows : shortFlows) {
    const { steps } = await visit({ flow, index: -1, from: 0 });
    assert.ok(steps.length >= 2, flow);
    for (const { step, outcome } of steps) {
      assert.match(outcome, refusing.includes(flow) ? isNamed : /^done$/, `${flow}: ${step}`);
    }
    steps.forEach(({ step, ran }, from) => {
      for (const index of ran) if (!found.has(`${index} ${step}`)) found.set(`${index} ${step}`, { flow, index, from });
    });
  }
  return [...found.values()];
}

test('no call stays pending, whichever await hangs', async (t) => {
  assert.ok(awaits.length >= 150 && limited >= 10, `${awaits.length} awaits, ${limited} limits`);
  const all = await places();
  const reached = new Set(all.map(({ index }) => index));
  const missed = awaits.filter((_, index) => !reached.has(index)).map(({ file, code }) => `${file}: await ${code}`);
  t.diagnostic(`${awaits.length} awaits and ${limited} limits; no flow reaches ${missed.length}: ${missed.join('; ')}`);
  assert.ok(reached.size >= (long ? .85 : .4) * awaits.length, `${reached.size} of ${awaits.length} awaits run`);
  const todo = long ? all : all.sort(() => Math.random() - .5).slice(0, 5);
  const wrong = /** @type {string[]} */ ([]);
  let hung = 0;
  const next = async () => {
    for (let at = todo.pop(); at; at = todo.pop()) {
      const { steps, isReached } = await visit(at);
      const { file, code } = /** @type {import('./awaits.mjs').Await} */ (awaits[at.index]);
      if (isReached) hung++;
      for (const { step, outcome } of steps) {
        if (isNamed.test(outcome)) continue;
        wrong.push(`${file}: await ${code} (${at.flow}, from step ${at.from}): ${step}: ${outcome}`);
      }
    }
  };
  const begun = todo.length;
  t.diagnostic(`${all.length} awaits by call`);
  await Promise.all(Array.from({ length: 5 }, next));
  t.diagnostic(`${begun} hangs: ${hung} reached`);
  assert.deepEqual(wrong.sort(), []);
  assert.ok(hung > 0 && (!long || hung > .5 * begun), `${hung} of ${begun} hangs were reached`);
});
