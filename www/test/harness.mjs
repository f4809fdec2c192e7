// The shared parts of the browser tests: the test server, browsers, and pages that record violations of the content
// security policy and all console messages. Tests start servers in beforeEach with ??=, not in before. The reason: if
// no test matches --test-name-pattern, node runs before() without after() and then waits for the servers forever.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFile, mkdir, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { chromium, firefox } from 'playwright-core';

/** @typedef {{task: string, owner: string}} Offer */
/** @typedef {{url: string, own: string, owner: string, id: string, start: number, copies: number[]}} SetOffer */
/**
 * @typedef {{path: string, epoch: number, body: string, answer: string, messages: string[][],
 *   tags: string[], error: string, header: Record<string, string[]>}} Submission
 */

const root = fileURLToPath(new URL('../..', import.meta.url));

/** Whether tests run in their long form. */
export const long = /** @type {any} */ (globalThis).doonaLong === true;

/** The time limit for each step in a browser, in milliseconds. It is long enough for a busy machine. */
export const patience = 120_000;

/** The options to start Debian's Chromium. The environment variable CHROMIUM may name another program. */
const start = {
  timeout: patience,
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
    '--disable-background-networking', '--disable-component-update', '--disable-sync'],
};

/** Launches Chromium. @param {import('playwright-core').LaunchOptions} [more] @param {...string} args more arguments */
export function launch(more, ...args) {
  return chromium.launch({ ...more, ...start, args: [...start.args, ...args] });
}

/**
 * Launches Firefox ESR over WebDriver BiDi. Playwright's own Firefox is patched, so this uses the channel moz-firefox.
 * Playwright 1.64 is locked: 1.65 needs emulation.setMediaFeaturesOverride, which ESR 153 does not have.
 */
export function launchFirefox() {
  return firefox.launch({ channel: 'moz-firefox', timeout: patience,
    executablePath: process.env.FIREFOX ?? '/usr/bin/firefox-esr' });
}

/** Launches Chromium with the profile in a folder, which an earlier launch may have filled. @param {string} folder */
export function launchAgain(folder) {
  return chromium.launchPersistentContext(folder, start);
}

/**
 * Starts a program and waits until its output matches `ready`. Rejects if it exits before.
 * @param {string} file
 * @param {string[]} args
 * @param {'stdout' | 'stderr'} stream
 * @param {RegExp} ready
 */
export async function startServer(file, args, stream, ready) {
  const child = spawn(file, args, { cwd: root, stdio: ['ignore', 'pipe', 'pipe'] });
  const said = { stdout: '', stderr: '' };
  /** @type {Promise<RegExpExecArray>} */
  const match = new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', () => reject(new Error(`${file} ended before it was ready: ${said.stdout}${said.stderr}`)));
    for (const name of /** @type {const} */ (['stdout', 'stderr'])) {
      child[name].on('data', (chunk) => {
        said[name] += chunk;
        const found = ready.exec(said[stream]);
        if (found) resolve(found);
      });
    }
  });
  const ended = once(child, 'exit');
  const stop = async () => {
    child.kill('SIGTERM');
    await ended;
  };
  return { match: await match, stop };
}

/** Starts www/testserver. @param {...string} flags */
export async function startTestServer(...flags) {
  const { match, stop } = await startServer('build/testserver', flags, 'stdout', /^.*\n/);
  /** @type {{site: string, relay: string, tasks: Record<string, Offer>, sets: Record<string, SetOffer>}} */
  const offers = JSON.parse(match[0]);
  const control = (/** @type {string} */ name, /** @type {unknown} */ body) =>
    fetch(`${offers.site}/test/${name}`, { method: 'POST', body: JSON.stringify(body) });
  return {
    ...offers,
    stop,
    /** @returns {Promise<Submission[]>} the submissions since the last call */
    take: async () => (await control('take', null)).json(),
    /**
     * Returns the requests that reached relays and the issuer since the last call.
     * @returns {Promise<{method: string, path: string, header: Record<string, string[]>}[]>}
     */
    requests: async () => (await control('requests', null)).json(),
    /** Makes the relay answer the next submissions with these problems, one each. @param {string[]} names */
    fail: (...names) => control('fail', names),
  };
}

/** Starts www/testserver -pages, which serves the verifier's pages in many states. */
export async function startTestPages() {
  const { match, stop } = await startServer('build/testserver', ['-pages'], 'stdout', /^.*\n/);
  /** @type {{url: string, tasks: Record<string, string>}} */
  const offer = JSON.parse(match[0]);
  return { ...offer, stop };
}

/**
 * Starts cmd/demo, with real relays and a verifier, and by default only 1,000 clients.
 * @param {string[]} args flags, each followed by its value; if a flag appears twice, the last value counts
 */
export async function startDemo(...args) {
  const all = ['--users', '1000', '--batch', '1000', '--listen', '127.0.0.1:0', '--www', 'build/www', ...args];
  /** @type {Map<string | undefined, string | undefined>} */
  const flags = new Map();
  for (let i = 0; i < all.length; i += 2) flags.set(all[i], all[i + 1]);
  const words = [...flags].flat().map(String);
  const { match, stop } = await startServer('build/demo', words, 'stderr', /(http:\/\/127\.0\.0\.1:\d+) /);
  return { url: String(match[1]), stop };
}

/**
 * Copies workerd.mjs, the cases and the built SDK to a folder of their own and starts workerd there. Workers in it may
 * only send requests to this machine.
 */
export async function startWorkerd() {
  const folder = join(root, 'build/workerd');
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  const built = await readdir(join(root, 'build/www'));
  const find = (/** @type {RegExp} */ pattern) => join('build/www', String(built.find((name) => pattern.test(name))));
  const modules = [];
  for (const [name, source] of [
    ['workerd.mjs', 'www/test/workerd.mjs'], ['answer.mjs', 'www/test/answer.mjs'],
      ['cases.mjs', 'www/test/cases.mjs'], ['doona.js', 'build/www/doona.js'],
    ...[/^doona-in-place-/, /^doona-tokens-/, /^doona-words-/].map(find).map((file) => [basename(file), file]),
      ['doona.wasm', find(/^doona-[0-9a-f]+\.wasm$/)], ['doona-full.wasm', find(/^doona-full-.*\.wasm$/)],
  ]) {
    await copyFile(join(root, String(source)), join(folder, String(name)));
    modules.push(`(name = "${name}", ${String(name).endsWith('.wasm') ? 'wasm' : 'esModule'} = embed "${name}")`);
  }
  const config = `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "main", worker = .main), (name = "internet", network = (allow = ["local"]))],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")],
);
const main :Workerd.Worker = (compatibilityDate = "2026-11-01", modules = [${modules.join(', ')}]);
`;
  await writeFile(join(folder, 'config.capnp'), config);
  const installed = join(root, 'www/node_modules/@cloudflare',
    `workerd-linux-${process.arch === 'x64' ? '64' : process.arch}`);
  const { version } = JSON.parse(await readFile(join(installed, 'package.json'), 'utf8'));
  const { match, stop } = await startServer(join(installed, 'bin/workerd'),
    ['serve', '--control-fd=1', join(folder, 'config.capnp')], 'stdout', /"port":(\d+)/);
  return { url: `http://127.0.0.1:${match[1]}/`, version: String(version), stop };
}

/**
 * Closes a page as a visitor does, so that it gets its events. A page that is going on forgets the request.
 * @param {import('playwright-core').Page} page
 */
export async function closeTab(page) {
  const closed = page.waitForEvent('close').then(() => true);
  do await page.close({ runBeforeUnload: true });
  while (!(await Promise.race([closed, new Promise((resolve) => setTimeout(resolve, 2000, false))])));
}

/** Hides a page, which runs this. A browser without a screen never hides one, so the page dispatches the event. */
export function hide() {
  Object.defineProperty(document, 'visibilityState', { value: 'hidden', configurable: true });
  document.dispatchEvent(new Event('visibilitychange', { bubbles: true }));
}

/** Matches the console messages that the browser itself writes for HTTP errors. The SDK writes no messages. */
export const network = /^Failed to load resource/;

/**
 * Opens a page in a context. Lists in `complaints` policy violations, console messages and requests to other machines.
 * @param {import('playwright-core').BrowserContext} context
 * @param {string} url
 */
export async function open(context, url) {
  context.setDefaultTimeout(patience);
  const page = await context.newPage();
  /** @type {string[]} */
  const complaints = [];
  page.on('console', (message) => complaints.push(message.text()));
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('request', (request) => {
    if (!['127.0.0.1', ''].includes(new URL(request.url()).hostname)) complaints.push(`asked for ${request.url()}`);
  });
  await page.addInitScript(() => {
    addEventListener('securitypolicyviolation', (event) => {
      console.error(`violated ${event.violatedDirective}: ${event.blockedURI}`);
    });
  });
  await page.goto(url);
  return { page, complaints };
}

/** Returns a free port. @returns {Promise<number>} */
export async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  server.close();
  await once(server, 'close');
  return port;
}
