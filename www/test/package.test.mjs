// Tests the npm package as a new user gets it: installed from its archive into an empty project. The tests use it in
// Node, with types, in a script tag, in a unit test and with two bundlers.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { SourceMap } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, beforeEach, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { brotliCompressSync } from 'node:zlib';

import { launch, startTestServer } from './harness.mjs';
import { optionsOf, pageReports, serve } from './reporting.mjs';

const run = promisify(execFile);
const root = fileURLToPath(new URL('../..', import.meta.url));
const tools = join(root, 'www/node_modules');

/** @type {Awaited<ReturnType<typeof startTestServer>>} */
let server;
/** @type {import('playwright-core').Browser} */
let browser;
/** @type {string} */
let project;

beforeEach(async () => {
  server ??= await startTestServer();
  browser ??= await launch();
  project ??= await install();
});

/** Creates an empty project and installs the archive into it. Returns the project's folder. */
async function install() {
  const project = await mkdtemp(join(tmpdir(), 'doona-package-'));
  await writeFile(join(project, 'package.json'), '{"private": true, "type": "module"}');
  const archives = (await readdir(join(root, 'build'))).filter((name) => /^doona-\d.*\.tgz$/.test(name));
  assert.equal(archives.length, 1, String(archives));
  await run('npm', ['install', '--offline', '--no-audit', '--no-fund', join(root, 'build', String(archives[0]))],
    { cwd: project });
  return project;
}

after(async () => {
  await browser?.close();
  await server?.stop();
  if (project) await rm(project, { recursive: true, force: true });
});

/**
 * Returns a script that reports 7 and sets the global `result` to 'reported' or to the error.
 * @param {string} more options
 */
const program = (more) => {
  return `connect({ ...${optionsOf(server)}, ${more} }).then((d) => d.report(7)).then(() => 'reported', String)
  .then((result) => { globalThis.result = result; });`;
};

/**
 * Opens index.html of a folder. Fails unless it reports and starts this number of workers.
 * @param {string} folder @param {number} workers
 */
async function reports(folder, workers) {
  const site = await serve(folder, server);
  try {
    await pageReports(browser, server, `${site.url}/index.html`, workers);
  } finally {
    site.stop();
  }
}

test('it has no dependencies and only the files it names', async () => {
  const installed = await readdir(join(project, 'node_modules'));
  assert.deepEqual(installed.filter((name) => !name.startsWith('.')), ['doona']);
  const manifest = JSON.parse(await readFile(join(project, 'node_modules/doona/package.json'), 'utf8'));
  for (const name of ['dependencies', 'scripts', 'devDependencies', 'private']) assert.equal(manifest[name], undefined);
  const files = await readdir(join(project, 'node_modules/doona'));
  assert.deepEqual(files.sort(), [...manifest.files, 'package.json'].sort());
});

test('without the package of the platform the program says which one it is', async () => {
  const started = run(join(project, 'node_modules/.bin/doona'), ['dev'], { cwd: project });
  await assert.rejects(started, (/** @type {any} */ error) => error.code === 1 &&
    /the package @doona\/\w+-\w+ is missing: .* npm install --no-save @doona\//.test(error.stderr));
});

test('doona/testing in Node', async () => {
  await writeFile(join(project, 'tested.js'), `import { connect } from 'doona';
import { fakeRelay } from 'doona/testing';
const relay = await fakeRelay({ query: 'histogram', bins: 5 });
const doona = await connect(relay.options);
await doona.report(3);
relay.close();
console.log(...relay.values);`);
  const { stdout } = await run(process.execPath, ['tested.js'], { cwd: project });
  assert.equal(stdout.trim(), '3');
});

test('ESM in Node', async () => {
  await server.take();
  const imports = "import { connect, memoryStore } from 'doona';\n";
  await writeFile(join(project, 'node.js'),
    `${imports}${program('store: memoryStore()')}\nconst wait = setInterval(() => globalThis.result && (clearInterval(wait), console.log(result)), 20);`);
  const { stdout } = await run(process.execPath, ['node.js'], { cwd: project });
  assert.equal(stdout.trim(), 'reported');
  assert.deepEqual((await server.take()).map((s) => s.messages), [[['0007']]]);
});

test('types, strictly, for both ways of resolving modules', async () => {
  const source = `import { type Doona, type DoonaClient, type ErrorCode, type Explanation, type Forgotten, type InitOptions,
  type Status, type StreamOptions, type TaskOptions, DoonaError, connect, init } from 'doona';
import { connectSet } from 'doona/set';
import { type FakeRelay, fakeRelay } from 'doona/testing';
const doona: Doona = await connect({ task: '', owner: '', maxEpsilon: 1, maxTotalEpsilon: 1, when: 'now', flush: true });
const { bytes, sampled }: { bytes: number; sampled: boolean } = await doona.report([1, 2], { signal: AbortSignal.timeout(1) });
const words: Explanation = await doona.explain();
export const code: ErrorCode = new DoonaError('task-ended', words.text + bytes).code;
const relay: FakeRelay = await fakeRelay({ range: [0, 5] });
export const values: readonly number[] = await relay.arrived(1);
await connect({ ...relay.options, spread: 5 });
// @ts-expect-error an answer that no relay gives
relay.answer('maybe');
await connect({ stream: '', owner: '', budget: { epsilon: 10, delta: 1e-5, days: 365 } });
const options: InitOptions = { ...relay.options, consent: 'pending', debug: true, sample: 0.1, onReceipt: ({ epoch }) => void epoch,
  onError: (error) => void (error instanceof DoonaError) };
const client: DoonaClient = init(options);
client.report('/page');
client.report(new Float64Array(2));
const { state, reason }: Status = client.status;
export const isWaiting: boolean = state === 'waiting-for-consent' || state === 'budget-exceeded' || state === 'not-sampled' ||
  sampled || reason === '';
const notice: Explanation | undefined = await client.explain({ language: 'de-AT', devices: 3 });
export const language: 'en' | 'de' | 'fr' | 'es' | undefined = notice?.language;
const gone: Forgotten = await client.forget();
await client.optOut();
await client.optIn();
client.close();
doona.close();
export const { reports, text }: Forgotten = gone.reports > 0 ? gone : await doona.forget();
// @ts-expect-error status is read-only
client.status.state = 'ready';
// @ts-expect-error a state that does not exist
export const never: boolean = state === 'asleep';
// @ts-expect-error neither granted nor pending
init({ ...relay.options, consent: 'denied' });
// @ts-expect-error a task or a stream, not both
await connect({ task: '', stream: '', owner: '', budget: { epsilon: 10, delta: 1e-5, days: 365 } });
// @ts-expect-error only a stream has candidates
await connect({ task: '', candidates: [], owner: '', budget: { epsilon: 10, delta: 1e-5, days: 365 } });
// @ts-expect-error a budget or limits, not both
await connect({ task: '', owner: '', budget: { epsilon: 10, delta: 1e-5, days: 365 }, maxTotalEpsilon: 1 });
// @ts-expect-error neither a budget nor limits
await connect({ task: '', owner: '' });
const choice = {} as TaskOptions<0 | 1 | 2>; // as doona task types writes it
const asked = init({ ...choice, budget: { epsilon: 10, delta: 1e-5, days: 365 } });
asked.report(2);
// @ts-expect-error no such category
asked.report(3);
// @ts-expect-error no text
await (await connect({ ...choice, maxEpsilon: 1, maxTotalEpsilon: 1 })).report('2');
await (await connect({ ...({} as StreamOptions<string>), maxEpsilon: 1, maxTotalEpsilon: 1 })).report('/page');
// @ts-expect-error owner is required
await connect({ task: '', maxEpsilon: 1, maxTotalEpsilon: 1 });
const asSet = { url: '', owner: '', defaults: { entry: 0 } };
const set = await connectSet({ ...asSet, budget: { epsilon: 10, delta: 1e-5, days: 365 } });
const outcome: 'kept' | 'not-due' | 'allowance' | 'late' | undefined = (await set.report('entry', 3)).tables['entry'];
// @ts-expect-error a budget is required
await connectSet(asSet);
`;
  await writeFile(join(project, 'typed.ts'), source);
  for (const [module, resolution] of [['nodenext', 'nodenext'], ['esnext', 'bundler']]) {
    const flags = ['--noEmit', '--strict', '--exactOptionalPropertyTypes', '--target', 'es2022', '--lib', 'es2023,dom',
      '--types', '', '--module', String(module), '--moduleResolution', String(resolution)];
    await run(join(tools, '.bin/tsc'), [...flags, 'typed.ts'],
      { cwd: project }).catch(({ stdout }) => assert.fail(stdout));
  }
});

test('a script tag', async () => {
  const page = '<!doctype html><script src="/node_modules/doona/doona.global.js"></script><script src="/app.js"></script>';
  await writeFile(join(project, 'index.html'), page);
  await writeFile(join(project, 'app.js'), `const { connect } = doona;\n${program('')}`);
  await reports(project, 1);
});

test('the four lines with init, in a script tag', async () => {
  const page = '<!doctype html><script src="/node_modules/doona/doona.global.js"></script><script src="/app.js"></script>';
  await writeFile(join(project, 'index.html'), page);
  await writeFile(join(project, 'app.js'), `const client = doona.init({ ...${optionsOf(server)}, onReceipt: () => (globalThis.result = 'reported'),
    onError: (error) => (globalThis.result = String(error)) });
client.report(7);`);
  await reports(project, 1);
});

test('the scripts are as small as they were, and a page that only connects leaves out init', async () => {
  const installed = join(project, 'node_modules/doona');
  for (const [name, most] of /** @type {[string, number][]} */ ([['doona.js', 24_220], ['doona-worker-', 15_830]])) {
    const file = (await readdir(installed)).find((one) => one.startsWith(name) && one.endsWith('.js'));
    const { length } = brotliCompressSync(await readFile(join(installed, String(file))));
    assert.ok(length <= most && length > most * 0.9, `${name} has ${length} bytes, want at most ${most} and not far less`);
  }
  const state = 'waiting-for-consent'; // a text of init
  for (const [name, kept] of /** @type {[string, boolean][]} */ ([['connect', false], ['init', true]])) {
    await writeFile(join(project, 'shaken.js'), `import { ${name} } from 'doona';\nglobalThis.used = ${name};`);
    const { stdout } = await run(join(tools, '.bin/esbuild'), ['--bundle', '--format=esm', '--target=es2022', 'shaken.js'],
      { cwd: project, maxBuffer: 1 << 24 });
    assert.equal(stdout.includes(state), kept, name);
  }
});

test('vite, which finds worker and modules by itself', async () => {
  const folder = join(project, 'with-vite');
  await mkdir(folder);
  await writeFile(join(folder, 'index.html'), '<!doctype html><script type="module" src="./app.js"></script>');
  await writeFile(join(folder, 'app.js'), `import { connect } from 'doona';\n${program('')}`);
  await run(process.execPath, [join(tools, 'vite/bin/vite.js'), 'build', '--logLevel', 'warn'], { cwd: folder });
  await reports(join(folder, 'dist'), 1);
});

test('vite finds worker and module of sets, and not those of tasks', async () => {
  const folder = join(project, 'set-with-vite');
  await mkdir(folder);
  await writeFile(join(folder, 'index.html'), '<!doctype html><script type="module" src="./app.js"></script>');
  await writeFile(join(folder, 'app.js'), "import { connectSet } from 'doona/set';\nglobalThis.used = connectSet;");
  await run(process.execPath, [join(tools, 'vite/bin/vite.js'), 'build', '--logLevel', 'warn'], { cwd: folder });
  const files = await readdir(join(folder, 'dist/assets'));
  for (const name of ['doona-set-worker-', 'doona-set-in-place-']) {
    assert.ok(files.some((file) => file.startsWith(name)), `${name}: ${files}`);
  }
  assert.ok(files.some((file) => /^doona-set-[0-9a-f]{12}.*\.wasm$/.test(file)), String(files));
  assert.ok(!files.some((file) => /^doona-(worker|small|in-place)-/.test(file)), String(files));
});

test('esbuild and doona copy: the bundle finds the files beside it, and contains no script twice', async () => {
  const folder = join(project, 'with-esbuild');
  await mkdir(join(folder, 'dist'), { recursive: true });
  await writeFile(join(folder, 'source.js'), `import { connect } from 'doona';\n${program('')}`);
  await writeFile(join(folder, 'dist/index.html'), '<!doctype html><script type="module" src="./app.js"></script>');
  await run(join(tools, '.bin/esbuild'), ['--bundle', '--format=esm', '--target=es2022', '--minify', '--outfile=dist/app.js',
    '--external:./doona-*', 'source.js'], { cwd: folder });
  const { stdout } = await run(join(project, 'node_modules/.bin/doona'), ['copy', 'dist'], { cwd: folder });
  assert.match(stdout, /^copied \d+ files to dist\n$/);
  const [bundle, script] = await Promise.all(['dist/app.js', '../node_modules/doona/doona.js'].map(async (name) =>
    (await readFile(join(folder, name))).length));
  assert.ok(Number(bundle) < Number(script) * 1.02, `${bundle} bytes from ${script}`);
  await reports(join(folder, 'dist'), 1);
});

test('modules names the folder to which doona copy copied', async () => {
  const folder = join(project, 'with-modules');
  await mkdir(folder);
  await writeFile(join(folder, 'source.js'), `import { connect } from 'doona';\n${program("modules: '/doona/'")}`);
  await writeFile(join(folder, 'index.html'), '<!doctype html><script type="module" src="./app.js"></script>');
  await run(join(tools, '.bin/esbuild'),
    ['--bundle', '--format=esm', '--target=es2022', '--outfile=app.js', 'source.js'], { cwd: folder });
  await run(join(project, 'node_modules/.bin/doona'), ['copy', join(folder, 'doona')], { cwd: project });
  const list = JSON.parse(await readFile(join(folder, 'doona/integrity.json'), 'utf8'));
  assert.deepEqual((await readdir(join(folder, 'doona'))).sort(), [...Object.keys(list), 'integrity.json'].sort());
  await reports(folder, 1);
});

test('doona copy says how it is called, and refuses a file with another hash', async () => {
  const bin = join(project, 'node_modules/doona/bin.mjs');
  const copy = (/** @type {string[]} */ ...args) => run(process.execPath, [bin, 'copy', ...args], { cwd: project });
  assert.match((await copy('--help')).stdout, /doona copy FOLDER/);
  await assert.rejects(copy(), (/** @type {any} */ { code, stderr }) => code === 2 && /doona copy FOLDER/.test(stderr));
  const file = join(project, 'node_modules/doona/doona.global.js');
  const was = await readFile(file);
  await writeFile(file, `${was} `);
  await assert.rejects(copy('refused'), /doona: couldn't copy the files to refused: doona\.global\.js in the package has/)
    .finally(() => writeFile(file, was));
});

test('a server that answers HTML for a missing file is named, and not called another hash', async () => {
  const folder = join(project, 'single-page');
  await mkdir(join(folder, 'doona'), { recursive: true });
  await writeFile(join(folder, 'index.html'), '\ufeff <!doctype html><script src="/app.js"></script>');
  const installed = join(project, 'node_modules/doona');
  for (const name of await readdir(installed)) { // only the scripts, not the WASM modules
    if (/^doona.*\.js$/.test(name)) await writeFile(join(folder, 'doona', name), await readFile(join(installed, name)));
  }
  await writeFile(join(folder, 'app.js'), `addEventListener('load', async () => {
    const tag = document.createElement('script');
    tag.src = '/doona/doona.global.js';
    tag.onload = () => { const { connect } = doona; ${program('')} };
    document.head.append(tag);
  });`);
  const site = await serve(folder, server, { missing: 'index.html' });
  const context = await browser.newContext();
  try {
    const page = await context.newPage();
    await page.goto(`${site.url}/index.html`);
    const result = await page.waitForFunction(() => /** @type {any} */ (globalThis).result);
    assert.match(String(await result.jsonValue()),
      /doona-(small-)?[0-9a-f]+\.wasm: the server answered HTML, so the file is not there; .*modules/);
  } finally {
    await context.close();
    site.stop();
  }
});

test('CommonJS in Node', async () => {
  await writeFile(join(project, 'tested.cjs'), `const { connect } = require('doona');
const { fakeRelay } = require('doona/testing');
(async () => {
  const relay = await fakeRelay({ query: 'count' });
  await (await connect(relay.options)).report(1);
  relay.close();
  console.log(...relay.values);
})();`);
  const { stdout, stderr } = await run(process.execPath, ['tested.cjs'], { cwd: project });
  assert.deepEqual([stdout, stderr], ['1\n', '']);
});

test('www/sdk/API.md records the public types', async () => {
  const { stdout } = await run(process.execPath, ['www/npm/types.mjs', 'build/types', '--report'], { cwd: root });
  assert.equal(stdout, await readFile(join(root, 'www/sdk/API.md'), 'utf8'),
    'the API changed: renew www/sdk/API.md, and add a line to www/sdk/CHANGELOG.md');
});

test('source maps name lines of the source', async () => {
  for (const name of ['doona.js', 'doona.global.js']) {
    const folder = join(project, 'node_modules/doona');
    const script = await readFile(join(folder, name), 'utf8');
    assert.match(script, new RegExp(`\n//# sourceMappingURL=${name.replaceAll('.', '\\.')}\\.map\\s*$`));
    assert.match(script, /import\(\/\* webpackIgnore: true \*\/ +\/\* @vite-ignore \*\//);
    const map = new SourceMap(JSON.parse(await readFile(join(folder, `${name}.map`), 'utf8')));
    const lines = script.split('\n');
    const text = 'WebCrypto is missing';
    const line = lines.findIndex((one) => one.includes(text));
    const entry = /** @type {import('node:module').SourceMapping} */ (map.findEntry(line, Number(lines[line]?.indexOf(text)) - 1));
    const source = await readFile(join(root, 'www/sdk/connect.ts'), 'utf8');
    assert.match(entry.originalSource, /www\/sdk\/connect\.ts$/);
    assert.ok(source.split('\n')[entry.originalLine]?.includes(text));
  }
});
