// Tests that no call of the SDK stays pending, whichever of its awaits hangs: the call succeeds, or it rejects
// with a named error within 35 seconds. The test finds the awaits in the SDK's source and makes each hang in turn, from
// each call in which it runs. The short form makes some hang, at random.
import assert from 'node:assert/strict';
import { after, beforeEach, test } from 'node:test';

import { flowsOf } from './await-flows.mjs';
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
  browser ??= await launch();
  site ??= await serveHanging(scripts, server);
});
after(async () => {
  await browser?.close();
  await server?.stop();
  site?.stop();
});

const flows = Object.keys(flowsOf(/** @type {any} */ ({})));
const shortFlows = ['task', 'task in place', 'init, consent pending'];

/** The environment variable DOONA_PLACES, such as 2/5, limits the long form to one part of the awaits. */
const [part, parts] = /** @type {[number, number]} */ ((process.env.DOONA_PLACES ?? '1/1').split('/').map(Number));

/** The number of pages at the same time. */
const pages = 8;

/** Matches the outcome of a call that succeeded, or that failed with the code of a DoonaError. */
const isNamed = /^(?!pending|failed)[a-z-]+$/;

/** Makes one await hang in a new page. @param {Omit<Visit, 'tasks'>} visit */
async function visit({ flow, index, from }) {
  const context = await browser.newContext();
  try {
    const page = await context.newPage();
    await page.goto(site.url);
    const input = { flow, index, from, tasks: server.tasks };
    return /** @type {Awaited<ReturnType<typeof visitHanging>>} */ (
      await page.evaluate(`(${visitHanging})(${JSON.stringify(input)}, ${flowsOf})`));
  } finally {
    await context.close();
  }
}

/**
 * Calls `work` with each item, with several at the same time.
 * @template T @param {T[]} items @param {(item: T) => Promise<void>} work
 */
async function each(items, work) {
  const todo = items.slice();
  const next = async () => {
    for (let item = todo.shift(); item !== undefined; item = todo.shift()) await work(item);
  };
  await Promise.all(Array.from({ length: pages }, next));
}

/** The steps in which an await of the SDK runs, in the first flow that reaches it there. */
async function places() {
  /** @type {Map<string, Awaited<ReturnType<typeof visitHanging>>['steps']>} */
  const visits = new Map();
  await each(long ? flows : shortFlows, async (flow) => {
    const { steps } = await visit({ flow, index: -1, from: 0 });
    assert.ok(steps.length >= 2, flow);
    for (const { step, outcome, want } of steps) assert.equal(outcome, want, `${flow}: ${step}`);
    visits.set(flow, steps);
  });
  /** @type {Map<string, Omit<Visit, 'tasks'>>} */
  const found = new Map();
  for (const flow of flows) {
    visits.get(flow)?.forEach(({ step, ran }, from) => {
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
  if (long) assert.deepEqual(missed, []);
  else assert.ok(reached.size >= .4 * awaits.length, `${reached.size} of ${awaits.length} awaits run`);
  t.diagnostic(`${awaits.length} awaits and ${limited} limits; ${reached.size} awaits run, in ${all.length} calls`);
  all.sort(() => Math.random() - .5);
  const todo = long ? all.filter(({ index }) => index % parts === part - 1) : all.slice(0, 5);
  const wrong = /** @type {string[]} */ ([]);
  /** @type {Set<number>} */
  const stuck = new Set();
  let [hung, done] = [0, 0];
  const begun = performance.now();
  await each(todo, async (at) => {
    const { steps, isReached } = await visit(at);
    const { file, code } = /** @type {import('./awaits.mjs').Await} */ (awaits[at.index]);
    if (isReached) {
      hung++;
      stuck.add(at.index);
    }
    for (const { step, outcome } of steps) {
      if (isNamed.test(outcome)) continue;
      wrong.push(`${file}: await ${code} (${at.flow}, from step ${at.from}): ${step}: ${outcome}`);
      console.log(wrong.at(-1));
    }
    const seconds = Math.round((performance.now() - begun) / 1000);
    if (long && ++done % 50 === 0) console.log(`${done} of ${todo.length}: ${hung} hung, ${seconds} s`);
  });
  const free = [...new Set(todo.map(({ index }) => index))].filter((index) => !stuck.has(index))
    .map((index) => `${awaits[index]?.file}: await ${awaits[index]?.code}`);
  t.diagnostic(`${todo.length} awaits by call: ${hung} hung, of ${stuck.size} awaits; ` +
    `${wrong.length} calls pending or without a name; never hung: ${free.join('; ') || 'none'}`);
  assert.deepEqual(wrong.sort(), []);
  assert.ok(hung > 0 && (!long || hung > .8 * todo.length), `${hung} of ${todo.length} hangs were reached`);
  if (long) assert.ok(free.length <= .02 * awaits.length, `${free.length} awaits never hung`);
});
