// Runs the cases of cases.mjs in Node 22. The relay is www/testserver, which opens all reports with Go code.
import assert from 'node:assert/strict';

import { cases } from './cases.mjs';
import { suite } from './suite.mjs';

suite('Node 22', async ({ site, tasks }) => {
  assert.match(process.version, /^v22\./);
  const built = '../../build/www/doona.js';
  /** @type {import('./suite.mjs').SDK} */
  const sdk = await import(built);
  return {
    version: process.version,
    run: async (name) => void (await cases[name]?.({ sdk, site, tasks, options: { store: sdk.memoryStore() } })),
  };
});
