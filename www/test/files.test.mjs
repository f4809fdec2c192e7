// Tests a site that serves what pages fetch from its own server (doona task files): by Chromium's log of all sockets,
// the browser contacts no relay before it reports.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { extname, join } from 'node:path';
import { after, beforeEach, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { launch, patience } from './harness.mjs';

const run = promisify(execFile);
const root = fileURLToPath(new URL('../..', import.meta.url));
const types = { '.js': 'text/javascript', '.wasm': 'application/wasm' };

/** @type {string} */
let folder;
/** @type {import('node:child_process').ChildProcessWithoutNullStreams} */
let relays;
/** @type {import('node:http').Server} */
let site;
/** What the site was asked for. @type {string[]} */
const asked = [];

beforeEach(async () => {
  folder ??= await mkdtemp(join(tmpdir(), 'doona-files-'));
  const doona = join(folder, 'doona');
  await run('go', ['build', '-o', doona, './cmd/doona'], { cwd: root });
  relays = spawn(doona, ['dev', '--port', '0', '--epoch', '3600'], { cwd: folder });
  for (let said = ''; !said.includes('.doona/task.json');) said += (await once(relays.stdout, 'data'))[0];
  await run(doona, ['task', 'files', '.doona/parties/dev.bundle', '--out', 'site/doona'], { cwd: folder });
  site = createServer(async (request, response) => {
    const path = String(request.url);
    if (path === '/') return response.setHeader('content-type', 'text/html').end('<!doctype html><title>site</title>');
    if (path.startsWith('/doona/')) asked.push(path);
    const type = /** @type {Record<string, string>} */ (types)[extname(path)];
    if (type) response.setHeader('content-type', type);
    const file = path.startsWith('/doona/') ? join(folder, 'site', path) : join(root, 'build/www', path);
    await readFile(file).then((body) => response.end(body), () => response.writeHead(404).end());
  }).listen(0, '127.0.0.1');
  await once(site, 'listening');
});

after(async () => {
  relays?.kill();
  site?.close();
  if (folder) await rm(folder, { recursive: true, force: true });
});

/**
 * Visits the site in a new browser, and reports if `reports`. Returns the addresses to which the browser opened sockets.
 * @param {{task: string, owner: string}} offer @param {boolean} reports
 */
async function visit(offer, reports) {
  const log = join(folder, `net-${reports}.json`);
  const browser = await launch({}, `--log-net-log=${log}`);
  const { port } = /** @type {import('node:net').AddressInfo} */ (site.address());
  try {
    const page = await browser.newPage();
    await page.goto(`http://127.0.0.1:${port}/`);
    await page.evaluate(async ({ offer, reports }) => {
      const file = '/doona.js';
      /** @type {typeof import('../sdk/index.js')} */
      const { connect } = await import(file);
      const limits = { maxEpsilon: Infinity, maxTotalEpsilon: Infinity, maxDelta: 1 };
      const doona = await connect({ ...offer, ...limits, spread: 0, when: 'now' });
      if (reports) await doona.report(42);
      else await new Promise((resolve) => setTimeout(resolve, 1000)); // A socket might open late.
      doona.close();
    }, { offer, reports });
  } finally {
    await browser.close();
  }
  const to = new Set(/** @type {string[]} */ ([]));
  for (const [, address] of (await readFile(log, 'utf8')).matchAll(/"address":"(127\.0\.0\.1:\d+)"/g)) to.add(address ?? '');
  assert.ok(to.has(`127.0.0.1:${port}`), `the log names no socket to the site: ${[...to]}`);
  return to;
}

test('where a site serves the files, a browser contacts no relay before it reports', { timeout: 4 * patience }, async () => {
  const { task, owner } = JSON.parse(await readFile(join(folder, '.doona/task.json'), 'utf8'));
  const relay = new URL(task).host;
  const offer = { task: `/doona${new URL(task).pathname}`, owner };
  assert.ok(!(await visit(offer, false)).has(relay), 'a visit without a report');
  assert.deepEqual(asked, [offer.task]);
  assert.ok((await visit(offer, true)).has(relay), 'a report goes to the relay');
  assert.ok((await visit({ task, owner }, false)).has(relay), 'without the files, a visit asks the relay');
});
