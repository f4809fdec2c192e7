#!/usr/bin/env node
// `doona copy` copies the SDK's files (copy.mjs). Every other command starts the program doona built for this machine's
// platform. Each platform has its own npm package, such as @doona/linux-x64, and npm installs only the one that fits.
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { constants } from 'node:os';

import { copyFiles, copyUsage } from './copy.mjs';

const require = createRequire(import.meta.url);
const { version, optionalDependencies } = JSON.parse(readFileSync(new URL('package.json', import.meta.url), 'utf8'));
const name = `@doona/${process.platform}-${process.arch}`;

/** @param {string} why @returns {never} */
function fail(why) {
  console.error(`doona: ${why}`);
  process.exit(1);
}

function find() {
  if (!optionalDependencies[name]) {
    const known = Object.keys(optionalDependencies).join(', ').replaceAll('@doona/', '');
    fail(`no program for ${process.platform}-${process.arch}; there is one for ${known}. On Windows use WSL.`);
  }
  try {
    return require.resolve(`${name}/doona`);
  } catch {
    return fail(`the package ${name} is missing: npm leaves optional packages out with --omit=optional, and where a lock file was made on another platform. npm install --no-save ${name}@${version} brings it.`);
  }
}

/** Runs `doona copy`. @param {readonly string[]} args */
function copy(args) {
  const [folder] = args;
  if (args.length !== 1 || !folder || folder.startsWith('-')) {
    const asked = folder === '-h' || folder === '--help';
    (asked ? console.log : console.error)(copyUsage);
    process.exit(asked ? 0 : 2);
  }
  try {
    console.log(`copied ${copyFiles(new URL('./', import.meta.url), folder)} files to ${folder}`);
  } catch (cause) {
    fail(`couldn't copy the files to ${folder}: ${/** @type {Error} */ (cause).message}`);
  }
  process.exit(0);
}

const [command, ...others] = process.argv.slice(2);
if (command === 'copy') copy(others);

const child = spawn(find(), process.argv.slice(2), { stdio: 'inherit' });
// Passes signals on. On Ctrl-C both processes get the signal: the program ends cleanly, then this process ends.
for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM', 'SIGHUP'])) process.on(signal, () => child.kill(signal));
child.on('error', (error) => fail(`couldn't start ${name}: ${error.message}`));
child.on('exit', (code, signal) => process.exit(code ?? 128 + constants.signals[signal ?? 'SIGTERM']));
