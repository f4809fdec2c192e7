// Runs cases as a script in Node, Deno and Bun. For each line of standard input, the name of a case, it writes the
// case's error or null as JSON. Arguments: the address of the built SDK, the site, and the tasks.
import process from 'node:process';
import { createInterface } from 'node:readline';

import { cases } from '../cases.mjs';

const [file, site, tasks] = process.argv.slice(2);
const sdk = await import(String(file));
for await (const name of createInterface({ input: process.stdin })) {
  /** @type {string | null} */
  let failed = null;
  try {
    const run = cases[name];
    if (!run) throw new Error('no such case');
    await run({ sdk, site: String(site), tasks: JSON.parse(String(tasks)), options: { store: sdk.memoryStore() } });
  } catch (error) {
    failed = String(error) + /** @type {Error} */ (error).stack;
  }
  console.log(JSON.stringify(failed));
}
