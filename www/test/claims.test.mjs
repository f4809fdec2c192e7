// How long Chromium's WASM takes to check the claims of the tasks of a site's two default sets, as `doona plan --set`
// makes them: with caps, rare events and rest cells. Only in the long form, because the planner takes a minute.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { launch, long, open, startTestServer } from './harness.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));

/** The longest time that a check may take, in milliseconds, and how many new pages measure it. */
const [longest, pages] = [100, 5];

/**
 * Plans a set of planner/testdata. Returns the path of a file with its drafts, and their names.
 * @param {string} set @param {string} to a folder
 */
async function plan(set, to) {
  const { stdout } = await promisify(execFile)('go', ['run', './cmd/doona', 'plan', '--set',
    `planner/testdata/${set}.json`, '--out', to, '--json'], { cwd: root });
  const drafts = /** @type {Record<string, object>} */ ({});
  for (const { name, epochs } of JSON.parse(stdout).queries) {
    drafts[name] = { epochs, draft: JSON.parse(await readFile(join(to, `${name}.json`), 'utf8')) };
  }
  await writeFile(join(to, 'drafts'), JSON.stringify(drafts));
  return { path: join(to, 'drafts'), names: Object.keys(drafts) };
}

for (const set of long ? ['site-daily', 'site-weekly'] : []) {
  test(`each claim of ${set} is checked in ${longest} ms`, async (t) => {
    const folder = await mkdtemp(join(tmpdir(), 'doona-claims-'));
    const { path, names } = await plan(set, folder);
    const server = await startTestServer('-drafts', path);
    const browser = await launch();
    try {
      for (const name of names) {
        /** @type {number[]} */
        const took = [];
        for (let i = 0; i < pages; i++) {
          const context = await browser.newContext();
          const { page } = await open(context, `${server.site}/blank.html`);
          // The first task loads the module. Then all that takes long in connect is the check.
          took.push(await page.evaluate(async (offers) => {
            const file = '/doona.js';
            /** @type {typeof import('../sdk/index.js')} */
            const { connect } = await import(file);
            const budget = { epsilon: 10, delta: 1e-5, days: 365 };
            let began = 0;
            for (const offer of offers) {
              began = performance.now();
              await connect({ .../** @type {any} */ (offer), budget, when: 'now' });
            }
            return performance.now() - began;
          }, [server.tasks['year, noise by relays'], server.tasks[name]]));
          await context.close();
        }
        took.sort((a, b) => a - b);
        t.diagnostic(`${set}: connect to "${name}" takes ${took.map((ms) => ms.toFixed(0)).join(', ')} ms`);
        assert.ok(Number(took[Math.floor(pages / 2)]) <= longest, name);
      }
    } finally {
      await browser.close();
      await server.stop();
      await rm(folder, { recursive: true });
    }
  });
}
