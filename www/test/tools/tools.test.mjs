// Uses the npm package as a new user does, with the tools of package.json in this folder: bundlers, package managers,
// test runners and versions of TypeScript. Each says no error and no warning, and each built page reports from real
// Chromium. Only make test-full PART=tools runs this file: it installs the tools from npm into a temporary folder.
// DOONA_TOOLS_FOLDER names a folder that keeps them for the next run.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { appendFile, cp, mkdir, mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { launch, patience, startTestServer } from '../harness.mjs';
import { optionsOf, pageReports, serve } from '../reporting.mjs';
import { startRegistry } from './registry.mjs';

const run = promisify(execFile);
const here = fileURLToPath(new URL('.', import.meta.url));
const root = fileURLToPath(new URL('../../..', import.meta.url));
const { DOONA_TOOLS, DOONA_TOOLS_FOLDER } = process.env;
const versions = JSON.parse(await readFile(join(here, 'package.json'), 'utf8')).dependencies;

/** @type {Awaited<ReturnType<typeof startTestServer>>} */
let server;
/** @type {import('playwright-core').Browser} */
let browser;
/** @type {Awaited<ReturnType<typeof startRegistry>>} */
let registry;
/** The folder with the installed tools and the package. @type {string} */
let tools;

before(async () => {
  tools = DOONA_TOOLS_FOLDER ?? (await mkdtemp(join(tmpdir(), 'doona-tools-')));
  await mkdir(tools, { recursive: true });
  const lock = join(tools, 'package-lock.json');
  const wanted = await readFile(join(here, 'package-lock.json'), 'utf8');
  if (!existsSync(join(tools, 'node_modules')) || (await readFile(lock, 'utf8').catch(() => '')) !== wanted) {
    for (const name of ['package.json', 'package-lock.json']) await cp(join(here, name), join(tools, name));
    await run('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error'], { cwd: tools });
  }
  await rm(join(tools, 'try'), { recursive: true, force: true });
  const archives = (await readdir(join(root, 'build'))).filter((name) => /^doona-.*\.tgz$/.test(name));
  registry = await startRegistry(archives.map((name) => join(root, 'build', name)));
  for (const archive of archives) {
    const to = join(tools, 'node_modules', /^doona-\d/.test(archive) ? 'doona' : `@doona/${process.platform}-${process.arch}`);
    await rm(to, { recursive: true, force: true });
    await mkdir(to, { recursive: true });
    await run('tar', ['-xzf', join(root, 'build', archive), '-C', to, '--strip-components=1']);
  }
  [server, browser] = await Promise.all([startTestServer(), launch()]);
});

after(async () => {
  await browser?.close();
  await server?.stop();
  registry?.stop();
  if (tools && !DOONA_TOOLS_FOLDER) await rm(tools, { recursive: true, force: true });
});

/**
 * Creates an empty project among the tools.
 * @param {string} name @param {Record<string, string>} files
 */
async function makeProject(name, files) {
  const folder = join(tools, 'try', name.replaceAll(/\W+/g, '-'));
  for (const [file, text] of Object.entries({ 'package.json': '{"private": true}', ...files })) {
    await mkdir(dirname(join(folder, file)), { recursive: true });
    await writeFile(join(folder, file), text);
  }
  return folder;
}

/** The environment of the tools: no telemetry, no colours, and only Node 22 and the project's programs. */
const env = () => ({ PATH: `${dirname(process.execPath)}:${join(tools, 'node_modules/.bin')}:/usr/bin:/bin`, HOME: tools,
  NO_COLOR: '1', CI: '1', NEXT_TELEMETRY_DISABLED: '1', npm_config_update_notifier: 'false' });

/** Fails if a tool's output has an error or a warning. @param {string} output */
function checkQuiet(output) {
  const said = output.split('\n').filter((line) => /warn|error|deprecat|critical|unsupported/i.test(line));
  assert.deepEqual(said, [], output);
}

/** Runs a tool. Fails if it says an error or a warning. @param {string} cwd @param {string[]} command */
async function quietly(cwd, [file = '', ...args]) {
  const { stdout, stderr } = await run(file, args, { cwd, env: env(), maxBuffer: 1 << 24 })
    .catch(({ message, stdout: said }) => assert.fail(`${message}\n${said}`));
  checkQuiet(stdout + stderr);
  return stdout;
}

/** A program that a package of the tools installs. @param {string} path */
const script = (path) => [process.execPath, join(tools, 'node_modules', path)];

/** Defines a test, and records its seconds. @param {string} name @param {() => Promise<void>} work */
function check(name, work) {
  test(name, async () => {
    const begin = Date.now();
    await work();
    const line = { tool: name, seconds: (Date.now() - begin) / 1000 };
    if (DOONA_TOOLS) await appendFile(DOONA_TOOLS, `${JSON.stringify(line)}\n`);
  });
}

/** The lines that a page adds, as the README has them. */
const lines = () => `import { init } from 'doona';
const doona = init({ ...${optionsOf(server)},
  onReceipt: () => { globalThis.result = 'reported'; }, onError: (error) => { globalThis.result = String(error); } });
doona.report(7);
`;

/** @param {string} address */
const page = (address) => `<!doctype html><html lang="en"><body><script type="module" src="${address}"></script></body></html>`;

const esbuild = ['esbuild', 'src/main.js', '--bundle', '--format=esm', '--outdir=dist', '--external:./doona-*'];

/**
 * The bundlers. `run` are the commands that build to the folder dist; `html` is what the tool reads or what the built
 * page is; `scripts` is what the page's policy must allow besides.
 * @type {Record<string, {files?: Record<string, string>, run: () => string[][], html: [file: string, script: string],
 *   scripts?: string}>}
 */
const bundlers = {
  [`Vite ${versions.vite}`]: { run: () => [[...script('vite/bin/vite.js'), 'build']], html: ['index.html', '/src/main.js'] },
  'Vite 7': { run: () => [[...script('vite-7/bin/vite.js'), 'build']], html: ['index.html', '/src/main.js'] },
  [`webpack ${versions.webpack}`]: {
    files: { 'webpack.config.cjs': `module.exports = { mode: 'production', entry: './src/main.js',
      performance: { assetFilter: (name) => !name.endsWith('.wasm') } };` },
    run: () => [script('webpack-cli/bin/cli.js')], html: ['dist/index.html', './main.js'],
  },
  [`Parcel ${versions.parcel}`]: {
    run: () => [[...script('parcel/lib/bin.js'), 'build', 'index.html', '--no-cache']], html: ['index.html', './src/main.js'],
    scripts: "'unsafe-inline'", // for its import map
  },
  [`esbuild ${versions.esbuild}`]: {
    run: () => [[join(tools, 'node_modules/doona/bin.mjs'), 'copy', 'dist'], esbuild], html: ['dist/index.html', './main.js'],
  },
  [`Rollup ${versions.rollup}`]: {
    files: { 'rollup.config.mjs': `import { nodeResolve } from '@rollup/plugin-node-resolve';
      export default { input: 'src/main.js', output: { dir: 'dist' }, plugins: [nodeResolve()] };` },
    run: () => [[join(tools, 'node_modules/doona/bin.mjs'), 'copy', 'dist'], [...script('rollup/dist/bin/rollup'), '-c']],
    html: ['dist/index.html', './main.js'],
  },
};

for (const [name, { files, run: commands, html: [file, address], scripts = '' }] of Object.entries(bundlers)) {
  check(name, async () => {
    const folder = await makeProject(name, { 'src/main.js': lines(), [file]: page(address), ...files });
    for (const command of commands()) await quietly(folder, command);
    const site = await serve(join(folder, 'dist'), server, { scripts });
    try {
      await pageReports(browser, server, `${site.url}/index.html`, 1);
    } finally {
      site.stop();
    }
    assert.equal(await readFile(join(folder, 'package.json'), 'utf8'), '{"private": true}', 'the tool installed something');
  });
}

/**
 * Starts a tool's server, opens its page, and stops it.
 * @param {string} cwd @param {string[]} command @param {number} workers @param {RegExp} ignored
 */
async function serves(cwd, [file = '', ...args], workers, ignored) {
  const child = spawn(file, args, { cwd, env: env(), stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (said += chunk));
  const ended = once(child, 'exit');
  try {
    let found;
    for (const until = Date.now() + patience; !found; await new Promise((resolve) => setTimeout(resolve, 50))) {
      // eslint-disable-next-line no-control-regex
      found = /http:\/\/(?:127\.0\.0\.1|localhost):\d+/.exec(said.replaceAll(/\x1b\[[0-9;]*m/g, ''));
      assert.ok(child.exitCode === null && Date.now() < until, said);
    }
    await pageReports(browser, server, `${found[0].replace('localhost', '127.0.0.1')}/`, workers, ignored);
    checkQuiet(said);
  } finally {
    child.kill('SIGINT');
    await ended;
  }
}

/** Vite's server reads no folder above the project; here the tools are in one, unlike in a page's project. */
const allowed = () => `server: { fs: { allow: [${JSON.stringify(tools)}] } }`;

/** What development servers say on the console of every page. */
const chatter = /favicon|404|^\[vite\]|React DevTools|\[HMR\]|\[Fast Refresh\]/;

check(`Vite ${versions.vite}, development server`, async () => {
  const folder = await makeProject('vite dev', { 'src/main.js': lines(), 'index.html': page('/src/main.js'),
    'vite.config.mjs': `export default { ${allowed()} };` });
  await serves(folder, [...script('vite/bin/vite.js'), '--host', '127.0.0.1', '--port', '0'], 1, chatter);
});

check('Vite 7, development server', async () => {
  const folder = await makeProject('vite 7 dev', { 'src/main.js': lines(), 'index.html': page('/src/main.js'),
    'vite.config.mjs': `export default { optimizeDeps: { exclude: ['doona'] }, ${allowed()} };` });
  await serves(folder, [...script('vite-7/bin/vite.js'), '--host', '127.0.0.1', '--port', '0'], 1, chatter);
});

/** A Next app whose page reports in an effect. */
const nextFiles = () => ({
  'next.config.mjs': `export default { turbopack: { root: ${JSON.stringify(tools)} }, outputFileTracingRoot: ${JSON.stringify(tools)} };`,
  'app/layout.jsx': 'export default function Layout({ children }) { return <html lang="en"><body>{children}</body></html>; }',
  'app/page.jsx': "import Visit from './visit';\nexport default function Page() { return <Visit />; }",
  'app/visit.jsx': `'use client';
import { useEffect } from 'react';
import { init } from 'doona';
export default function Visit() {
  useEffect(() => {
    init({ ...${optionsOf(server)}, onReceipt: () => { globalThis.result = 'reported'; },
      onError: (error) => { globalThis.result = String(error); } }).report(7);
  }, []);
  return <p>a page</p>;
}`,
});

for (const [how, ...flags] of [['Turbopack'], ['webpack', '--webpack']]) {
  check(`Next ${versions.next} with ${how}`, async () => {
    const folder = await makeProject(`next ${how}`, nextFiles());
    await quietly(folder, [...script('next/dist/bin/next'), 'build', ...flags]);
    await serves(folder, [...script('next/dist/bin/next'), 'start', '-H', '127.0.0.1', '-p', '0'], 1, chatter);
  });
}

const unitTest = `import { connect, init } from 'doona';
import { fakeRelay } from 'doona/testing';
test('a page reports', async () => {
  const relay = await fakeRelay({ query: 'mean', range: [0, 100] });
  const doona = await connect(relay.options);
  await doona.report(42);
  expect(relay.values).toEqual([42]);
  relay.close();
});
test('init, with fake timers', async () => {
  FAKE.useFakeTimers();
  const relay = await fakeRelay({ query: 'histogram', bins: 5 });
  const doona = init(relay.options);
  doona.report(3);
  expect(await relay.arrived(1)).toEqual([3]);
  expect(doona.status.state).not.toBe('failed');
  doona.close();
  relay.close();
  FAKE.useRealTimers();
});
`;

for (const environment of ['node', 'jsdom']) {
  check(`Jest ${versions.jest}, ${environment}`, async () => {
    const folder = await makeProject(`jest ${environment}`, { 'a.test.js': unitTest.replaceAll('FAKE', 'jest'),
      'package.json': `{"private": true, "jest": {"testEnvironment": "${environment}"}}`,
      '.babelrc': '{"presets": [["@babel/preset-env", {"targets": {"node": "current"}}]]}' });
    const { stderr } = await run(process.execPath, [join(tools, 'node_modules/jest/bin/jest.js'), '--rootDir', '.'],
      { cwd: folder, env: env() }).catch(({ stderr: said }) => assert.fail(said)); // Jest reports on stderr.
    assert.match(stderr, /Tests: +2 passed, 2 total/);
    checkQuiet(stderr);
  });
  check(`Vitest ${versions.vitest}, ${environment}`, async () => {
    const folder = await makeProject(`vitest ${environment}`, { 'package.json': '{"private": true, "type": "module"}',
      'a.test.js': `import { expect, test, vi } from 'vitest';\n${unitTest.replaceAll('FAKE', 'vi')}` });
    const said = await quietly(folder, [...script('vitest/vitest.mjs'), 'run', `--environment=${environment}`]);
    assert.match(said, /Tests +2 passed/);
  });
}

check(`Jest ${versions.jest} with modules, node`, async () => {
  const folder = await makeProject(`jest modules node`, {
    'a.test.js': `import { jest } from '@jest/globals';\n${unitTest.replaceAll('FAKE', 'jest')}`,
    'package.json': `{"private": true, "type": "module", "jest": {"testEnvironment": "node", "transform": {}}}` });
  const { stderr } = await run(process.execPath, ['--experimental-vm-modules', '--no-warnings',
    join(tools, 'node_modules/jest/bin/jest.js'), '--rootDir', '.'], { cwd: folder, env: env() })
    .catch(({ stderr: said }) => assert.fail(said));
  assert.match(stderr, /Tests: +2 passed, 2 total/);
  checkQuiet(stderr);
});

const typed = `import { type Doona, type TokenSource, DoonaError, connect, init, memoryStore } from 'doona';
import { type FakeRelay, fakeRelay } from 'doona/testing';
export const tokens: TokenSource = (request, { uri, signal }) => fetch(uri, { method: 'POST', body: request, signal });
export async function work(): Promise<Doona> {
  const relay: FakeRelay = await fakeRelay({ range: [0, 5] });
  const client = init({ task: '', owner: '', budget: { epsilon: 1, delta: 1e-5, days: 1 }, tokens });
  client.report(1);
  if (new DoonaError('closed', '').code === 'closed') client.close();
  return connect({ ...relay.options, store: memoryStore() });
}
`;

for (const [version, program, resolutions] of /** @type {[string, string, [string, string, string][]][]} */ ([
  ['5.0.4', 'typescript-5.0', [['nodenext', 'nodenext', 'ts'], ['nodenext', 'nodenext', 'cts'], ['esnext', 'bundler', 'ts'], ['esnext', 'node', 'ts']]],
  ['5.6.3', 'typescript-5.6', [['nodenext', 'nodenext', 'ts'], ['nodenext', 'nodenext', 'cts'], ['esnext', 'bundler', 'ts'], ['esnext', 'node', 'ts']]],
  [versions.typescript, 'typescript', [['nodenext', 'nodenext', 'ts'], ['nodenext', 'nodenext', 'cts'], ['esnext', 'bundler', 'ts']]],
])) {
  check(`TypeScript ${version}`, async () => {
    for (const [module, moduleResolution, ext] of resolutions) {
      for (const library of ['es2020', 'es2022']) {
        const folder = await makeProject(`${program} ${module} ${moduleResolution} ${ext} ${library}`, {
          'package.json': '{"private": true, "type": "module"}',
          [`typed.${ext}`]: typed,
          'tsconfig.json': JSON.stringify({ files: [`typed.${ext}`], compilerOptions: { noEmit: true, strict: true,
            exactOptionalPropertyTypes: true, target: 'es2022', lib: [library, 'dom'], types: [], module, moduleResolution } }),
        });
        await quietly(folder, [...script(`${program}/bin/tsc`), '-p', '.']);
      }
    }
  });
}

/** The package managers: the command that adds a package to an empty project. */
const managers = {
  npm: () => ['npm', 'install', 'doona', `--registry=${registry.url}`, '--cache=cache', '--no-audit', '--no-fund'],
  [`Yarn ${versions.yarn}`]: () => [...script('yarn/bin/yarn.js'), 'add', 'doona', '--registry', registry.url,
    '--cache-folder', 'cache', '--non-interactive', '--disable-self-update-check'],
  [`pnpm ${versions.pnpm}`]: () => [join(tools, 'node_modules/.bin/pnpm'), 'add', 'doona', `--registry=${registry.url}`,
    '--store-dir=cache'],
};

for (const [name, command] of Object.entries(managers)) {
  check(name, async () => {
    const folder = await mkdtemp(join(tmpdir(), 'doona-manager-')); // outside of the tools, so that it finds only its own
    try {
      await writeFile(join(folder, 'package.json'),
        '{"name": "page", "version": "1.0.0", "license": "MIT", "private": true, "type": "module"}');
      await quietly(folder, command());
      await writeFile(join(folder, 'tested.js'), `import { connect } from 'doona';
import { fakeRelay } from 'doona/testing';
const relay = await fakeRelay();
await (await connect(relay.options)).report(42);
relay.close();
console.log(...relay.values);`);
      assert.equal(await quietly(folder, [process.execPath, 'tested.js']), '42\n');
      const bin = join(folder, 'node_modules/.bin/doona');
      assert.match(await quietly(folder, [bin, 'dev', '--help']), /Dev runs two relays and a verifier/);
      await quietly(folder, [bin, 'copy', 'public/doona']);
      assert.ok((await readdir(join(folder, 'public/doona'))).includes('integrity.json'), basename(folder));
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });
}
