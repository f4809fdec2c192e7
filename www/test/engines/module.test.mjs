// Tests the WASM modules in engines other than Node: every vector, every refusal, and a million reports by one
// instance. It runs the specs of www/sdk in each engine.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { bun, deno } from './programs.mjs';

const specs = fileURLToPath(new URL('../../../build/specs/', import.meta.url));
const engines = {
  Deno: { program: join(deno, 'deno'),
    args: ['test', '--no-prompt', '--no-remote', '--no-check', '-A'], only: '--filter' },
  Bun: { program: join(bun, 'bin/bun'),
    args: ['test', '--timeout', '3600000'], only: '-t' },
};
const www = fileURLToPath(new URL('../..', import.meta.url));
const long = fileURLToPath(new URL('../long.mjs', import.meta.url));

/**
 * Runs a program. If a test fails, rejects with the program's output.
 * @param {string} program @param {string[]} args
 */
const run = (program, args) => promisify(execFile)(program, args, { cwd: www, maxBuffer: 1 << 26 });

for (const [name, { program, args, only }] of Object.entries(engines)) {
  test(`${name}: every vector and every refusal is as in Go`, async () => {
    await run(program, [...args, ...['vectors', 'fuzz'].map((spec) => join(specs, `${spec}.spec.mjs`))]);
  });

  test(`${name}: one instance makes a million reports`, async () => {
    const { stdout, stderr } = await run(program, [...args, '--preload', long, only, 'one instance makes many reports',
      join(specs, 'open-task.spec.mjs')]);
    assert.match(stdout + stderr, /\b1 pass/, 'no test has this name: want exactly one');
  });
}
