/**
 * Compares the parsers in TypeScript with those in Go on damaged tasks and bundles. wasm/fuzzcases writes the cases
 * with the verdicts of the Go parsers. TypeScript and Go must both accept or both refuse a case, and compute the same
 * id. The WASM module checks the ranges of a task's fields and the claim, so these tests ask the module too.
 * @module
 */

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';

import { type Bytes, equal } from './bytes.js';
import { checkId, checkIssuer, checkKeys, checkOwner, parseBundle } from './bundle.js';
import { DoonaError } from './errors.js';
import { Module, ModuleError } from './module.js';
import { FormatError } from './msgpack.js';
import { sha256 } from './signature.js';
import { parseTask } from './task.js';

// The paths are relative to www/, where node --test runs. test.sh and scripts/fuzz.sh write the file of cases.
const built = '../build/www/';
const cases = readFileSync(process.env['DOONA_FUZZ_CASES'] ?? '../build/fuzzcases.jsonl',
  'utf8').trim().split('\n').map((line) => JSON.parse(line));

const name = readdirSync(built).find((file) => /^doona-[0-9a-f]+\.wasm$/.test(file))!;
const module = await Module.start(await WebAssembly.compile(readFileSync(built + name)));

function bytes(text: string): Bytes {
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
}

/** Whether `read` succeeds. Throws errors that a parser must not throw. */
async function accepts(read: () => unknown): Promise<boolean> {
  try {
    await read();
    return true;
  } catch (error) {
    if (error instanceof FormatError || error instanceof DoonaError || error instanceof ModuleError) return false;
    throw error;
  }
}

test('TypeScript and Go accept the same tasks', async () => {
  let accepted = 0;
  for (const c of cases.filter((c) => c.kind === 'task')) {
    const canonical = bytes(c.bytes);
    const parsed = await accepts(() => parseTask(canonical));
    if (c.encoding) assert.ok(!parsed, `an encoding that Go refuses: ${c.bytes}`);
    if (c.task) assert.ok(parsed, `a task that Go accepts: ${c.bytes}`);
    const opened = parsed && (await accepts(() => module.open(canonical)));
    assert.equal(opened, c.accept, c.bytes);
    if (opened) accepted++;
    assert.ok(equal(await sha256(canonical), bytes(c.id)));
  }
  assert.ok(accepted > 0 && accepted < cases.length / 4, `${accepted} accepted`);
});

test('TypeScript and Go accept the same bundles', async () => {
  let accepted = 0;
  for (const c of cases.filter((c) => c.kind === 'bundle')) {
    const read = await accepts(async () => {
      const bundle = parseBundle(bytes(c.bytes));
      await checkOwner(bundle, bytes(c.owner));
      await checkKeys(bundle);
      await checkIssuer(bundle);
      await checkId(bundle, bytes(c.id));
    });
    if (c.accept) assert.ok(read, `a bundle that Go accepts: ${c.bytes}`);
    assert.equal(read && c.task, c.accept, c.bytes);
    if (read && c.task) accepted++;
  }
  assert.ok(accepted > 0 && accepted < cases.length / 4, `${accepted} accepted`);
});
