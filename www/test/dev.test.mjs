// Tests a developer's first hour: from an empty Vite project to a decoded message, with only the package archives that
// npm would install. The short form uses an empty project and this repository's Vite. The long form uses the project
// that `npm create vite` creates today, and also builds the examples for frameworks.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { appendFile, cp, mkdir, mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, beforeEach, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { launch, long, open, patience } from './harness.mjs';

const run = promisify(execFile);
const root = fileURLToPath(new URL('../..', import.meta.url));

/** @type {import('playwright-core').Browser} */
let browser;
/** @type {string} */
let folder;

beforeEach(async () => {
  browser ??= await launch();
  folder ??= await mkdtemp(join(tmpdir(), 'doona-dev-'));
});

after(async () => {
  await browser?.close();
  if (folder) await rm(folder, { recursive: true, force: true });
});

/** Returns the paths of the archives that npm would fetch: the SDK, and the program for this machine's platform. */
async function archives() {
  const names = (await readdir(join(root, 'build'))).filter((name) => /^doona-.*\.tgz$/.test(name)).sort();
  assert.equal(names.length, 2, String(names));
  return names.map((name) => join(root, 'build', name));
}

/** Installs the archives and the project's other dependencies. @param {string} app */
async function install(app) {
  await run('npm', ['install', '--no-audit', '--no-fund', ...(long ? [] : ['--offline']), ...(await archives())],
    { cwd: app });
}

/** Creates an empty project whose page loads src/main.js, and installs the archives into it. */
async function makeProject() {
  const app = join(folder, 'app');
  if (long) {
    await run('npm', ['create', '--yes', 'vite@latest', 'app', '--', '--template', 'vanilla', '--no-interactive'],
      { cwd: folder });
  } else {
    await mkdir(join(app, 'src'), { recursive: true });
    await writeFile(join(app, 'package.json'), '{"private": true, "type": "module"}');
    await writeFile(join(app, 'index.html'), '<!doctype html><script type="module" src="/src/main.js"></script>');
    await writeFile(join(app, 'src/main.js'), '');
    // Vite 8 does not need this configuration.
    await writeFile(join(app, 'vite.config.js'), "export default { optimizeDeps: { exclude: ['doona'] } };");
  }
  await install(app);
  return app;
}

/**
 * Runs a program of the project. PATH has only Node and the project's programs, so it works without Go.
 * @param {string} app
 * @param {string} file
 * @param {string[]} args
 */
function start(app, file, ...args) {
  const child = spawn(file, args, { cwd: app, stdio: ['ignore', 'pipe', 'pipe'],
    env: { PATH: `${dirname(process.execPath)}:${join(app, 'node_modules/.bin')}`, HOME: folder } });
  let said = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => { said += chunk; });
  const ended = once(child, 'exit');
  return {
    said: () => said,
    /** Waits for an output that matches. @param {RegExp} what */
    async says(what) {
      for (const until = Date.now() + patience; ; await new Promise((resolve) => setTimeout(resolve, 50))) {
        // eslint-disable-next-line no-control-regex
        const found = what.exec(said.replace(/\x1b\[[0-9;]*m/g, ''));
        if (found) return found;
        assert.ok(child.exitCode === null && Date.now() < until, `no ${what} in: ${said}`);
      }
    },
    /** Stops the program as Ctrl-C does, and returns its exit status. */
    async stop() {
      child.kill('SIGINT');
      return (await ended)[0];
    },
  };
}

/**
 * Opens the page whose address a server prints. Checks that `doona dev` prints the value that the page reported.
 * @param {ReturnType<typeof start>} doona
 * @param {ReturnType<typeof start>} server
 */
async function visit(doona, server) {
  const [url] = await server.says(/http:\/\/127\.0\.0\.1:\d+/);
  const context = await browser.newContext();
  const { complaints } = await open(context, `${url}/`);
  const [line] = await doona.says(/.*1 report decoded, 1 in all: .*\n/).catch((cause) => {
    throw new Error(`the page says ${complaints.join('\n')}; its server ${server.said()}`, { cause });
  });
  assert.match(line, /decoded, 1 in all: Mean of a client's value (42|42\.0\d*|41\.99\d*) \(/);
  await context.close();
}

/** Checks that `doona task types` writes a file which TypeScript accepts, with the type of the values. @param {string} app */
async function checkTypes(app) {
  await run(join(app, 'node_modules/.bin/doona'), ['task', 'types', '.doona/parties/dev.bundle', '--out', 'task.ts'],
    { cwd: app });
  const { task, owner } = JSON.parse(await readFile(join(app, '.doona/task.json'), 'utf8'));
  const written = await readFile(join(app, 'task.ts'), 'utf8');
  assert.ok(written.includes(`'${task}'`) && written.includes(`'${owner}'`), written);
  await writeFile(join(app, 'typed.ts'), `import { init } from 'doona';
import task from './task';
const doona = init({ ...task, budget: { epsilon: 1, delta: 1e-5, days: 1 } });
doona.report(42);
// @ts-expect-error a mean has no texts
doona.report('42');`);
  await run(join(root, 'www/node_modules/.bin/tsc'), ['--noEmit', '--strict', '--target', 'es2022', '--lib', 'es2022,dom',
    '--types', '', '--module', 'esnext', '--moduleResolution', 'bundler', 'typed.ts'], { cwd: app })
    .catch(({ stdout }) => assert.fail(stdout));
}

test('from an empty project to a decoded message, and on with it after Ctrl-C', async () => {
  const app = await makeProject();
  const doona = start(app, join(app, 'node_modules/.bin/doona'), 'dev', '--port', '0');
  const [, code] = await doona.says(/In the page:\n\n([^]*?)\n\n[^]*End with Ctrl-C/);
  const lines = String(code).split('\n').map((line) => line.trim());
  assert.ok(lines.length <= 10, String(code));
  await appendFile(join(app, 'src/main.js'), lines.join('\n'));

  await checkTypes(app);
  const bin = long ? join(app, 'node_modules') : join(root, 'www/node_modules');
  const vite = start(app, process.execPath, join(bin, 'vite/bin/vite.js'), '--host', '127.0.0.1');
  try {
    await visit(doona, vite);
    console.log(doona.said());
  } finally {
    await vite.stop();
    assert.equal(await doona.stop(), 0, doona.said());
  }

  const kept = await readFile(join(app, '.doona/task.json'), 'utf8');
  const again = start(app, join(app, 'node_modules/.bin/doona'), 'dev', '--json');
  const [offer] = await again.says(/^{.*}\n/);
  assert.equal(JSON.parse(offer).task, JSON.parse(kept).task);
  assert.equal(await again.stop(), 0, again.said());
});

/** The commands that serve the built examples of frameworks. */
const examples = {
  react: ['vite', 'preview', '--host', '127.0.0.1'],
  svelte: ['vite', 'preview', '--host', '127.0.0.1'],
  next: ['next', 'start', '-H', '127.0.0.1', '-p', '0'],
};

for (const [name, [program, ...args]] of long ? Object.entries(examples) : []) {
  test(`from an empty project: the example of ${name}`, async () => {
    const app = join(folder, name);
    await cp(join(root, 'www/examples', name), app, { recursive: true });
    await install(app);
    const doona = start(app, join(app, 'node_modules/.bin/doona'), 'dev', '--port', '0');
    await doona.says(/End with Ctrl-C/);
    await run('npm', ['run', 'build'], { cwd: app, env: { ...process.env, NEXT_TELEMETRY_DISABLED: '1' } });
    const server = start(app, join(app, 'node_modules/.bin', String(program)), ...args);
    try {
      await visit(doona, server);
    } finally {
      await server.stop();
      await doona.stop();
    }
  });
}
