// Tests a site that serves what pages fetch from its own server (doona task files): by Chromium's log of all sockets,
// the browser contacts no relay before it reports.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, beforeEach, test } from 'node:test';
import { promisify } from 'node:util';

import { patience } from './harness.mjs';
import { root, serveSite, socketsOf } from './own-host.mjs';

const run = promisify(execFile);

/** @type {string} */
let folder;
/** @type {import('node:child_process').ChildProcessWithoutNullStreams} */
let relays;
/** @type {Awaited<ReturnType<typeof serveSite>>} */
let site;

beforeEach(async () => {
  folder ??= await mkdtemp(join(tmpdir(), 'doona-files-'));
  const doona = join(folder, 'doona');
  await run('go', ['build', '-o', doona, './cmd/doona'], { cwd: root });
  relays = spawn(doona, ['dev', '--port', '0', '--epoch', '3600'], { cwd: folder });
  for (let said = ''; !said.includes('.doona/task.json');) said += (await once(relays.stdout, 'data'))[0];
  await run(doona, ['task', 'files', '.doona/parties/dev.bundle', '--out', 'site/doona'], { cwd: folder });
  site = await serveSite(folder);
});

after(async () => {
  relays?.kill();
  site?.stop();
  // Programs may still write.
  if (folder) await rm(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
});

/** Visits the site, and reports if `reports`. @param {{task: string, owner: string}} offer @param {boolean} reports */
const visit = (offer, reports) => socketsOf(folder, site.host, (page) => page.evaluate(async ({ offer, reports }) => {
  const file = '/doona.js';
  /** @type {typeof import('../sdk/index.js')} */
  const { connect } = await import(file);
  const limits = { maxEpsilon: Infinity, maxTotalEpsilon: Infinity, maxDelta: 1 };
  const doona = await connect({ ...offer, ...limits, spread: 0, when: 'now' });
  if (reports) await doona.report(42);
  else await new Promise((resolve) => setTimeout(resolve, 1000)); // A socket might open late.
  doona.close();
}, { offer, reports }));

test('where a site serves the files, a browser contacts no relay before it reports', { timeout: 4 * patience }, async () => {
  const { task, owner } = JSON.parse(await readFile(join(folder, '.doona/task.json'), 'utf8'));
  const relay = new URL(task).host;
  const offer = { task: `/doona${new URL(task).pathname}`, owner };
  assert.ok(!(await visit(offer, false)).has(relay), 'a visit without a report');
  assert.deepEqual(site.asked, [offer.task]);
  assert.ok((await visit(offer, true)).has(relay), 'a report goes to the relay');
  assert.ok((await visit({ task, owner }, false)).has(relay), 'without the files, a visit asks the relay');
});
