// Measures what a set of a site's six tables takes: to check it, to seal a day, and to seal it again after a change.
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { test } from 'node:test';

import { launch, open, startTestServer } from './harness.mjs';

test('how long a site\'s set takes to be checked, sealed and sealed again', async () => {
  const server = await startTestServer('-set', 'site');
  const browser = await launch();
  try {
    const { own, owner, id } = /** @type {any} */ (server.sets.site);
    const context = await browser.newContext({ bypassCSP: true });
    const { page } = await open(context, `${server.site}/blank.html`);
    await page.waitForTimeout(5000); // A browser that has just started is busy, which doubles the worker's times.
    const cdp = await context.newCDPSession(page);
    const file = (/** @type {RegExp} */ pattern) => readdirSync('../build/www').find((name) => pattern.test(name));
    const given = { own, id, key: owner, script: `/${file(/^doona-set-in-place-/)}`,
      work: `/${file(/^doona-set-worker-/)}`, wasm: `/${file(/^doona-set-\w+\.wasm$/)}` };
    for (const [where, rate] of /** @type {const} */ ([['worker', 1], ['page', 1], ['page', 4]])) {
      await cdp.send('Emulation.setCPUThrottlingRate', { rate });
      const times = await page.evaluate(async ({ own, id, key, script, work, wasm, where }) => {
        let { answer } = await import(`${script}?${Math.random()}`);
        if (where === 'worker') {
          const worker = new Worker(work, { type: 'module', name: 'doona' });
          await new Promise((resolve) => (worker.onmessage = resolve));
          answer = (/** @type {unknown} */ call) => new Promise((resolve) => {
            worker.onmessage = ({ data }) => resolve(data);
            worker.postMessage(call);
          });
        }
        let [began, ended] = [0, 0]; // Sealing: from the first transaction until the last ciphertext.
        const [{ transaction }, { encrypt }] = [IDBDatabase.prototype, SubtleCrypto.prototype];
        IDBDatabase.prototype.transaction = function (...args) {
          const opened = transaction.apply(this, args);
          opened.addEventListener('complete', () => (began ||= performance.now()));
          return opened;
        };
        SubtleCrypto.prototype.encrypt = async function (...args) {
          const sealed = await encrypt.apply(this, args);
          ended = performance.now();
          return sealed;
        };
        const get = async (/** @type {string} */ url) => new Uint8Array(await (await fetch(url)).arrayBuffer());
        const call = async (/** @type {string} */ method, /** @type {unknown[]} */ ...args) => {
          began = 0;
          const start = performance.now();
          const { result, error } = await answer({ id: 1, method, args });
          if (error) throw new Error(JSON.stringify(error));
          const time = performance.now() - start;
          return { result, time, sealing: ended - began };
        };
        const bytes = (/** @type {string} */ text) => Uint8Array.from(text, (c) => c.charCodeAt(0));
        const hex = Uint8Array.from(id.match(/../g), (/** @type {string} */ x) => parseInt(x, 16));
        const raw = bytes(atob(key.slice(8).replaceAll('-', '+').replaceAll('_', '/')));
        const bundle = await get(`${own}?unpacked`);
        await call('start', 'small', await get(wasm));
        /** @type {Record<string, number>} */
        const out = { bundle: bundle.length };
        const { result: set, time } = await call('open', { bundle, owner: raw, id: hex, module: 'small' });
        out.check = time;
        const days = set.tables[0].task.epochs;
        const day = Math.floor((Date.now() / 1000 - days.start) / days.length);
        out.keys = 0;
        for (const [i, table] of set.tables.entries()) {
          if (set.tables.findIndex((/** @type {any} */ other) => other.clock === table.clock) < i) continue;
          const { start, length, count } = table.task.epochs;
          const at = days.start + day * days.length;
          const epoch = length === 2 ** 32 ? new Date(1000 * at).getUTCMonth() : Math.floor((at - start) / length);
          const block = Math.floor(Math.min(Math.max(epoch, 0), count - 1) / 8);
          out.keys += (await call('keys', set.handle, table.clock, await get(`${own.replace('/sets/', '/blocks/')}/${table.clock}/${block}`))).time;
        }
        const usual = set.tables.map((/** @type {any} */ table) => (table.bare ? [] : [0]));
        const request = { handle: set.handle, day, usual, now: Date.now(), 
          limit: { epsilon: 100, delta: .1, days: 30, option: 'budget' } };
        const first = await call('today', request);
        const again = [];
        for (let n = 0; n < 9; n++) again.push(await call('change', request, [[1, new Float64Array([n])]]));
        const middle = (/** @type {number[]} */ times) => times.sort((a, b) => a - b)[4] ?? 0;
        Object.assign(out, { first: first.time, again: middle(again.map(({ time }) => time)) });
        Object.assign(SubtleCrypto.prototype, { encrypt });
        Object.assign(IDBDatabase.prototype, { transaction });
        if (where === 'worker') return out; // It seals in another thread.
        return { ...out, firstSealed: first.sealing, againSealed: middle(again.map(({ sealing }) => sealing)) };
      }, { ...given, where });
      const text = Object.entries(times).map(([name, x]) => `${name} ${x.toFixed(1)}`).join(', ');
      console.log(`in the ${where}, slowed ${rate} times, in ms: ${text}`);
      for (const [name, x] of Object.entries(times)) assert.ok(x > 0, name); // 100 ms are wanted for the check.
    }
  } finally {
    await browser.close();
    await server.stop();
  }
});
