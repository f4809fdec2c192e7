// Visits that harmed pages or broke promises: changed files, storage that the browser takes away, page views after the
// report, the visitor's choice, and values that are known only when the visitor leaves. In three browsers.
import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';

import { hide, long, startTestServer } from '../harness.mjs';
import { checkedFiles, sourcesOf, startSites } from '../integrity.mjs';
import { browsers } from './browsers.mjs';

/** @typedef {import('./browsers.mjs').Browser} Browser */

/** A task whose clients randomize nothing, and one that takes drafts. */
const [plain, noisy] = ['truthful', 'year, noise by relays'];

const pause = (/** @type {number} */ milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/**
 * Runs in a page: calls `init`. Defines `client`, `receipts`, `loaded()`, which returns the addresses that the page has
 * fetched since, and `workers`, how many workers it has started since.
 */
async function begin(/** @type {object} */ options) {
  /** @type {any} */
  const all = globalThis;
  const load = (/** @type {string} */ file) => import(file);
  const { init } = await load('/doona.js');
  performance.clearResourceTimings();
  const { Worker } = globalThis;
  all.workers = 0;
  all.Worker = class extends Worker {
    constructor(/** @type {[any, any]} */ ...given) {
      all.workers++;
      super(...given);
    }
  };
  all.loaded = () => performance.getEntriesByType('resource').map(({ name }) => name)
    .filter((name) => !name.endsWith('/favicon.ico'));
  [all.receipts, all.errors] = [[], []];
  all.client = init({ maxEpsilon: 100, maxDelta: 1, maxTotalEpsilon: 100, spread: 0, when: 'now', ...options,
    onReceipt: (/** @type {any} */ receipt) => all.receipts.push(receipt),
    onError: (/** @type {any} */ error) => all.errors.push(`${error.message}: ${error.cause}`) });
}

/** Runs in a page: waits until the client has one of these states. */
async function until(/** @type {string[]} */ states) {
  const { client, errors } = /** @type {any} */ (globalThis);
  for (const end = Date.now() + 60_000; !states.includes(client.status.state);) {
    if (Date.now() > end) throw new Error(`want ${states}: ${JSON.stringify([client.status, errors])}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Runs in a page: waits for a number of receipts, and returns all. */
async function received(/** @type {number} */ count) {
  const { client, receipts } = /** @type {any} */ (globalThis);
  for (const end = Date.now() + 60_000; receipts.length < count;) {
    if (Date.now() > end) throw new Error(`want ${count} receipts: ${JSON.stringify([receipts, client.status])}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return receipts;
}

/** Runs in a page: deletes its database. Rejects if a connection blocks that. */
function wipe() {
  return new Promise((resolve, reject) => {
    const deleting = indexedDB.deleteDatabase('doona');
    deleting.onsuccess = () => resolve(null);
    // A transaction may run, which keeps its connection open for a moment.
    deleting.onblocked = () => setTimeout(() => reject(new Error('a connection stays open')), 5000);
  });
}

/** Runs in a page: creates the database as a newer SDK might. */
function createNewer() {
  return new Promise((resolve, reject) => {
    const opening = indexedDB.open('doona', 7);
    opening.onupgradeneeded = () => {
      opening.result.createObjectStore('reports', { keyPath: ['task', 'epoch'] });
      opening.result.createObjectStore('lines', { keyPath: 'id' });
      opening.result.createObjectStore('later');
    };
    opening.onsuccess = () => resolve(opening.result.close());
    opening.onerror = reject;
  });
}

/** Runs in a page: returns the number of the ledger's lines, and the state of each report of a task. */
function stored(/** @type {string} */ id) {
  return new Promise((/** @type {(found: {charged: number, states: string[]}) => void} */ resolve) => {
    const opening = indexedDB.open('doona');
    opening.onsuccess = () => {
      const tx = opening.result.transaction(['reports', 'lines']);
      const [reports, lines] = [tx.objectStore('reports').getAll(), tx.objectStore('lines').getAll()];
      tx.oncomplete = () => {
        opening.result.close();
        const states = reports.result.filter(({ task }) => task === id).map(({ state }) => state);
        resolve({ charged: lines.result.length, states });
      };
    };
  });
}

for (const [name, start] of Object.entries(browsers)) {
  describe(name, () => {
    /** @type {Awaited<ReturnType<typeof startTestServer>> | undefined} */
    let server;
    /** @type {Browser | undefined} */
    let browser;
    after(async () => {
      await browser?.stop();
      await server?.stop();
    });

    /** Starts the browser and shows a blank page to a new visitor. */
    const arrive = async () => {
      server ??= await startTestServer();
      browser ??= await start();
      const [{ site, tasks, take }, { open, call }] = [server, browser];
      const requests = async () => (await /** @type {any} */ (server).requests())
        .filter((/** @type {any} */ { header }) => /Mozilla/.test(String(header['User-Agent'])));
      const view = () => open(`${site}/blank.html`);
      await open('about:blank'); // A page of the last visitor sends what it must.
      await pause(300);
      await view();
      await call(wipe);
      await take();
      await requests();
      return { server, ...server, ...browser, view, requests,
        begin: (/** @type {string} */ task, more = {}) => call(begin, { ...tasks[task], ...more }),
        idOf: (/** @type {string} */ task) => String(tasks[task]?.task.split('/').at(-1)),
        until: (/** @type {string[]} */ ...states) => call(until, states),
        received: (/** @type {number} */ count) => /** @type {Promise<any[]>} */ (call(received, count)),
        /** The messages that have arrived after a while. */
        arrived: async (milliseconds = 500) => (await pause(milliseconds), (await take()).map((sent) => sent.messages)),
      };
    };

    test('of a changed file of another origin nothing runs, and the error names the file', async () => {
      const { server, open, call, take } = await arrive();
      /** @type {import('../integrity.mjs').Browse} */
      const browse = async (url, work, value) => (await open(url), call(work, value));
      for (const from of /** @type {const} */ (['modules', 'tag'])) {
        for (const file of ['', ...checkedFiles]) {
          if (!sourcesOf(file).some(([source]) => source === from)) continue;
          const sites = await startSites(server); // New origins: no browser knows them.
          try {
            if (!file) {
              const blob = 'script-src';
              assert.equal((await sites.report(browse, plain, { from, blob })).code, 'reported');
              assert.equal((await take()).length, 1);
              continue;
            }
            const { code, ran, message } = await sites.reportChanged(browse, file, from);
            assert.deepEqual([code, ran], [/tokens/.test(file) ? 'not-delivered' : 'module-failed', 0], message);
            assert.match(message, /: its hash is not the one/);
            assert.ok(message.includes(file), message);
            assert.deepEqual(await take(), []);
          } finally {
            await open('about:blank');
            sites.stop();
          }
        }
      }
    });

    test('a page reports although the browser has closed its IndexedDB connection, or deleted its data', async () => {
      const { call, begin, until, arrived } = await arrive();
      await begin(plain);
      await until('ready');
      await call(() => {
        const { transaction } = IDBDatabase.prototype;
        IDBDatabase.prototype.transaction = function (...given) {
          IDBDatabase.prototype.transaction = transaction;
          this.close(); // As Safari does in the background, without an event.
          /** @type {any} */ (globalThis).isClosed = true;
          return transaction.apply(this, given);
        };
        /** @type {any} */ (globalThis).client.report(7);
      });
      await until('reported');
      assert.equal(await call(() => /** @type {any} */ (globalThis).isClosed), true);
      assert.deepEqual(await arrived(), [[['0007']]]);

      await arrive();
      await begin(plain);
      await until('ready');
      await call(wipe);
      await call(() => /** @type {any} */ (globalThis).client.report(8));
      await until('reported');
      assert.deepEqual(await arrived(), [[['0008']]]);
    });

    test('a database of a newer version is used as far as it is known', async () => {
      const { call, begin, until, received, arrived } = await arrive();
      await call(createNewer);
      await begin(plain);
      await call(() => /** @type {any} */ (globalThis).client.report(7));
      await until('reported');
      await call(() => /** @type {any} */ (globalThis).client.report(8));
      assert.deepEqual((await received(2)).map(({ repeated }) => repeated), [false, true]);
      assert.deepEqual(await arrived(), [[['0007']]]);
      const version = await call(async () => {
        const all = await indexedDB.databases();
        return all.find(({ name }) => name === 'doona')?.version;
      });
      assert.equal(version, 7);
    });

    test('a second view in an epoch that has its report makes no request and starts no worker', async () => {
      const { call, begin, until, received, arrived, view, requests } = await arrive();
      await begin(plain);
      await call(() => /** @type {any} */ (globalThis).client.report(7));
      await until('reported');
      assert.ok(await call(() => /** @type {any} */ (globalThis).workers) > 0);
      assert.deepEqual(await arrived(), [[['0007']]]);
      await requests();
      await view();
      await begin(plain);
      await call(() => /** @type {any} */ (globalThis).client.report(8));
      assert.deepEqual((await received(1)).map(({ repeated, bytes }) => [repeated, bytes]), [[true, 0]]);
      assert.deepEqual(await arrived(), []);
      assert.deepEqual(await call(() => /** @type {any} */ (globalThis).loaded()), []);
      assert.equal(await call(() => /** @type {any} */ (globalThis).workers), 0);
      assert.deepEqual(await requests(), []);
      await call(() => /** @type {any} */ (globalThis).client.explain());
      assert.ok((await call(() => /** @type {any} */ (globalThis).loaded())).length > 1, 'explain() needs the task');
    });

    test('an opt-out lasts over reloads and drops what is sealed', async () => {
      const { call, begin, until, received, arrived, view, requests, fail, idOf } = await arrive();
      await fail('hostile-name'); // It says Retry-After: 60, so there is no second attempt.
      await begin(plain);
      await call(() => /** @type {any} */ (globalThis).client.report(7));
      await until('not-delivered');
      await fail();
      assert.equal((await arrived()).length, 1);
      await view();
      await begin(plain, { consent: 'pending' });
      await call(() => /** @type {any} */ (globalThis).client.optOut());
      assert.deepEqual((await call(stored, idOf(plain))).states, ['dropped']);
      await requests();
      for (const consent of ['granted', 'pending']) {
        await view();
        await begin(plain, { consent });
        await call(() => /** @type {any} */ (globalThis).client.report(8));
        await until('opted-out');
        assert.deepEqual(await arrived(), []);
        assert.deepEqual(await call(() => /** @type {any} */ (globalThis).loaded()), []);
        assert.deepEqual(await requests(), []);
      }
      await call(() => /** @type {any} */ (globalThis).client.optIn());
      await until('reported');
      await call(() => /** @type {any} */ (globalThis).client.report(9));
      assert.deepEqual((await received(1)).map(({ repeated, bytes }) => [repeated, bytes]), [[true, 0]]);
      assert.deepEqual(await arrived(), []);
    });

    test('under Global Privacy Control nothing is loaded and nothing is sent, until optIn', async () => {
      const { call, begin, until, arrived } = await arrive();
      await call(() => Object.defineProperty(navigator, 'globalPrivacyControl', { value: true }) && null);
      await begin(plain);
      await call(() => /** @type {any} */ (globalThis).client.report(7));
      await until('gpc');
      assert.deepEqual(await arrived(), []);
      assert.deepEqual(await call(() => /** @type {any} */ (globalThis).loaded()), []);
      await call(() => /** @type {any} */ (globalThis).client.optIn());
      await until('ready');
      await call(() => /** @type {any} */ (globalThis).client.report(8));
      await until('reported');
      assert.deepEqual(await arrived(), [[['0008']]]);
    });

    const closings = long ? 201 : 15;

    test(`${closings} closings: a value of visibilitychange arrives then or at the next visit, once`, async (t) => {
      const sums = { charged: 0, atOnce: 0, last: 0 };
      for (let i = 0; i < closings; i++) {
        const { open, call, begin, until, take, view, idOf } = await arrive();
        await begin(noisy);
        const kind = /** @type {const} */ (['draft', 'any moment', 'stays'])[i % 3];
        await call((early) => {
          const { client } = /** @type {any} */ (globalThis);
          if (early) client.report(1, { final: false });
          document.addEventListener('visibilitychange', () => {
            if (document.visibilityState === 'hidden') client.report(2, { final: false });
          });
        }, kind !== 'stays');
        if (kind !== 'any moment') await until(kind === 'draft' ? 'draft' : 'ready');
        await pause((kind === 'any moment' ? 3000 : 300) * Math.random());
        if (kind === 'stays') await call(hide); // The tab is in the background until the draft has left.
        if (kind === 'stays') await until('reported');
        await open('about:blank');
        await pause(500);
        const atOnce = await take();
        await view();
        await begin(noisy); // The next visit, which reports nothing itself.
        await until('draft', 'reported', 'ready');
        await pause(200); // It takes over a draft.
        await call(hide);
        await until('reported', 'ready');
        const all = [...atOnce, ...await take()];
        const { charged, states } = await call(stored, idOf(noisy));
        const messages = all.map((sent) => String(sent.messages));
        const outcome = JSON.stringify({ kind, charged, states, messages });
        assert.equal(new Set(all.map(({ tags }) => String(tags))).size, charged, outcome);
        assert.deepEqual(states, charged ? ['delivered'] : [], outcome);
        if (kind === 'stays') assert.deepEqual(messages, ['02'], outcome);
        else assert.ok(messages.every((message) => /^0[12]$/.test(message)), outcome);
        if (kind === 'draft') assert.equal(charged, 1, outcome);
        sums.charged += charged;
        sums.atOnce += Number(atOnce.length > 0);
        sums.last += Number(messages.includes('02'));
      }
      t.diagnostic(`${name}: ${closings} closings: ${JSON.stringify(sums)}`);
      assert.ok(sums.charged >= closings * 2 / 3 && sums.atOnce >= closings / 3, JSON.stringify(sums));
    });
  });
}
