// Runs all cases of cases.mjs in every engine except Chromium, Node 22 and workerd: `make test-full PART=engines`.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

import { launchFirefox, startServer } from '../harness.mjs';
import { inBrowser, inPage, suite } from '../suite.mjs';
import { startEdgeRuntime } from './edge-runtime.mjs';
import { bun, deno } from './programs.mjs';
import { startWebKit } from './webdriver.mjs';

const here = fileURLToPath(new URL('.', import.meta.url));
const built = new URL('../../../build/www/', import.meta.url);

/** @param {string} folder of a package */
const versionOf = async (folder) =>
  String(JSON.parse(await readFile(join(folder, 'package.json'), 'utf8')).version);

/**
 * Starts case-runner.mjs. Fails unless it exits by itself after the last case and writes nothing to standard error.
 * @param {string} program @param {string[]} args before the script
 * @param {import('../suite.mjs').Server} server
 */
function startRunner(program, args, { site, tasks }) {
  const child = spawn(program, [...args, join(here, 'case-runner.mjs'), new URL('doona.js', built).href, site,
    JSON.stringify(tasks)], { stdio: ['pipe', 'pipe', 'pipe'] });
  const exited = once(child, 'exit'); // from now on: it may exit before its last case
  let said = '';
  child.stderr.on('data', (chunk) => (said += chunk));
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  return {
    stop: async () => {
      child.stdin.end();
      const [code] = await exited;
      if (code !== 0 || said !== '') throw new Error(`${program} ended with ${code}: ${said}`);
    },
    run: async (/** @type {string} */ name) => {
      child.stdin.write(`${name}\n`);
      const { done, value } = await lines.next();
      return done ? `${program} ended: ${said}` : JSON.parse(value);
    },
  };
}

suite('Firefox', inBrowser(launchFirefox));

suite('WebKitGTK', async ({ site, tasks }) => {
  const { open, run, stop, version } = await startWebKit();
  return {
    version,
    stop,
    run: async (name) => {
      await open(`${site}/blank.html`);
      return run(`(${inPage})(arguments[0], arguments[1]).then(arguments[2])`, name, tasks);
    },
  };
});

suite('Deno', async (server) => {
  const readable = [fileURLToPath(built), fileURLToPath(new URL('..', import.meta.url))];
  const args = ['run', '--no-prompt', '--no-remote', '--allow-net=127.0.0.1', `--allow-read=${readable}`];
  return { ...startRunner(join(deno, 'deno'), args, server), version: await versionOf(deno) };
});

suite('Bun', async (server) => ({
  ...startRunner(join(bun, 'bin/bun'), ['--no-install'], server), version: await versionOf(bun),
}));

// Runs as Deno Deploy would: a module with a fetch handler, which may only read its own files and use the network.
suite('deno serve, for Deno Deploy', async ({ site, tasks }) => {
  const args = ['serve', '--no-prompt', '--no-remote', '--host=127.0.0.1', '--port=0', '--allow-net=127.0.0.1',
    '--allow-env', `--allow-read=${fileURLToPath(built)}`, join(here, 'deno-deploy.mjs')];
  const { match, stop } = await startServer(join(deno, 'deno'), args, 'stderr', /http:\/\/127\.0\.0\.1:\d+/);
  return {
    version: await versionOf(deno),
    stop,
    run: async (name) => {
      const response = await fetch(match[0], { method: 'POST', body: JSON.stringify({ name, site, tasks }) });
      return (await response.json()).error;
    },
  };
});

suite('edge-runtime', async ({ site, tasks }) => {
  const files = await readdir(built);
  const module = (/** @type {RegExp} */ pattern) => readFile(new URL(String(files.find((file) => pattern.test(file))),
    built)).then((code) => WebAssembly.compile(code));
  const [browser, full] = await Promise.all([module(/^doona-[0-9a-f]+\.wasm$/), module(/^doona-full-.*\.wasm$/)]);
  const dispatch = await startEdgeRuntime(join(here, 'edge-worker.mjs'), { browser, full });
  return {
    version: await versionOf(join(here, 'node_modules/edge-runtime')),
    run: async (name) => (await dispatch(JSON.stringify({ name, site, tasks }))).error,
  };
});
