// Tests a site that serves a set's files from its own server (doona set files), with real relays: by Chromium's log of
// all sockets, the browser contacts no relay before the visitor leaves, and then only the first one.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, beforeEach, test } from 'node:test';
import { promisify } from 'node:util';

import { freePort, hide, patience } from './harness.mjs';
import { root, serveSite, socketsOf } from './own-host.mjs';

/** @typedef {import('playwright-core').Page} Page */

/** @type {string} */
let folder;
/** @type {import('node:child_process').ChildProcess[]} */
const relays = [];
/** The relays' hosts. @type {string[]} */
const hosts = [];
/** @type {Awaited<ReturnType<typeof serveSite>>} */
let site;
/** What `doona set new` and `doona set files` print. @type {any} */
let made;

/** Runs a program in the folder. Returns what it prints as JSON. @param {string} program @param {...string} args */
async function run(program, ...args) {
  const { stdout } = await promisify(execFile)(join(folder, program), [...args, '--json'], { cwd: folder });
  return JSON.parse(String(stdout.trim().split('\n').at(-1)));
}

/** Starts a relay that takes an owner's sets. Returns its --relay. @param {string} name @param {string} owner */
async function startRelay(name, owner) {
  const { public: key } = await run('relay', 'keygen', '--kind', 'sign', '--out', `${name}.sign`);
  const host = `127.0.0.1:${await freePort()}`;
  const config = { listen: host, sign_key: `${name}.sign`, store: `sqlite:${name}.db`, secret: `${name}.secret`,
    owners: [{ owner, folder: name, tasks: 4 }] };
  await writeFile(join(folder, `${name}.yaml`), JSON.stringify(config));
  const relay = spawn(join(folder, 'relay'), ['serve', '--config', `${name}.yaml`], { cwd: folder });
  for (let said = ''; !said.includes('msg=serving');) said += (await once(relay.stderr, 'data'))[0];
  relays.push(relay);
  hosts.push(host);
  return `http://${host},${key}`;
}

beforeEach(async () => {
  folder ??= await mkdtemp(join(tmpdir(), 'doona-set-files-'));
  const programs = ['doona', 'relay', 'verifier'].map((name) => `./cmd/${name}`);
  await promisify(execFile)('go', ['build', '-o', folder, ...programs], { cwd: root });
  const { public: owner } = await run('doona', 'keygen', '--out', 'owner.sign');
  const { public: verifier } = await run('verifier', 'keygen', '--kind', 'sign', '--out', 'verifier.sign');
  for (const [clock, epochs] of [['days', '14'], ['weeks', '2']]) {
    await run('verifier', 'keygen', '--kind', 'hpke', '--sign-key', 'verifier.sign', '--epochs', String(epochs),
      '--out', String(clock));
  }
  const label = { query: 'histogram', bins: 4, labels: true };
  await writeFile(join(folder, 'site.json'), JSON.stringify({ users: 500, days: 30, total_epsilon: 3, total_delta: 1e-5,
    queries: [{ name: 'visitors', bare: true }, { name: 'goals', ...label, events: '1/30' },
      { name: 'speed', ...label, per: 'week' }] }));
  const monday = new Date();
  monday.setUTCDate(monday.getUTCDate() - (monday.getUTCDay() + 6) % 7);
  made = await run('doona', 'set', 'new', 'site.json', '--owner-key', 'owner.sign', '--days', '14',
    '--start', monday.toISOString().slice(0, 10), '--relay', await startRelay('one', owner),
    '--relay', await startRelay('two', owner), '--verifier', `${verifier},days.pub,weeks.pub`, '--quota', '50',
    '--out', 'set');
  made = { ...made, ...await run('doona', 'set', 'files', 'set', '--out', 'site/doona') };
  site = await serveSite(folder);
});

after(async () => {
  for (const relay of relays) relay.kill();
  site?.stop();
  // Programs may still write.
  if (folder) await rm(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
});

/** Connects a page to the set, and reports values. @param {Page} page @param {string} url @param {...number} values */
function connect(page, url, ...values) {
  return page.evaluate(async ({ url, owner, values }) => {
    const file = '/doona-set.js';
    /** @type {typeof import('../sdk/set-index.js')} */
    const { connectSet } = await import(file);
    const set = await connectSet({ url, owner, defaults: { speed: 0 }, budget: { epsilon: 3, delta: 1e-5, days: 30 },
      when: 'now' });
    Object.assign(globalThis, { set });
    for (const goals of values) await set.report({ goals });
  }, { url, owner: made.owner, values });
}

/** Lets the visitor stay for a while, and then ends the page without any event, so that nobody leaves. */
async function stay(/** @type {Page} */ page) {
  await page.waitForTimeout(1000); // A socket might open late.
  assert.equal(await page.evaluate('set.status.state'), 'draft');
  const client = await page.context().newCDPSession(page);
  const crashed = page.waitForEvent('crash');
  void client.send('Page.crash').catch(() => {});
  await crashed;
}

test('where a site serves a set\'s files, no relay is contacted until the visitor leaves, and then only the first',
  { timeout: 4 * patience }, async () => {
    const own = `/doona${made.page}`;
    const visit = (/** @type {(page: Page) => Promise<unknown>} */ work) =>
      socketsOf(folder, site.host, async (page) => void (await work(page))).then((all) => [...all].sort());
    assert.deepEqual(await visit(async (page) => {
      await connect(page, own);
      await stay(page);
    }), [site.host], 'a visit without a value');
    assert.deepEqual(site.asked.map((path) => path.replaceAll(made.id, 'ID')),
      ['/doona/v1/sets/ID', '/doona/v1/blocks/ID/0/0', '/doona/v1/blocks/ID/1/0']);
    assert.deepEqual(await visit(async (page) => {
      await connect(page, own, 2, 3);
      await stay(page);
    }), [site.host], 'a visit with values that goes on');
    assert.deepEqual(await visit(async (page) => {
      await connect(page, own, 2, 3);
      await page.goto('about:blank');
      await page.goto(`http://${site.host}/`);
      await connect(page, own);
      await page.evaluate(hide); // If the first page could not note the answer, this one asks again.
      for (const end = Date.now() + patience; (await page.evaluate('set.status.state')) !== 'reported';) {
        assert.ok(Date.now() < end, await page.evaluate('set.status.state'));
        await page.waitForTimeout(20);
      }
    }), [site.host, hosts[0]].sort(), 'a visitor who leaves');
    assert.ok((await visit(async (page) => {
      await connect(page, `http://${hosts[0]}${made.page}`);
      await stay(page);
    })).includes(String(hosts[0])), 'without the files, a visit asks the relay');
  });
