// Serves the SDK so that any one of its awaits can hang. It parses the SDK's source, so it covers each new await.
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { readFile, readdir } from 'node:fs/promises';
import { createServer } from 'node:http';
import { stripTypeScriptTypes } from 'node:module';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { build } from 'esbuild';
import { parseAst } from 'vite';

const www = fileURLToPath(new URL('..', import.meta.url));
const built = join(www, '../build/www');

/** @typedef {{file: string, code: string}} Await an await: its file, and the awaited expression */

/**
 * Matches the functions that limit a wait. An await of one of them does not hang in the tests, because it is the limit
 * itself; every await below it hangs. An await of no promise cannot hang.
 */
const limits = /^((abortable|answered|within|withTimeout|Promise\.race)\(|undefined$)/;

/**
 * The awaits that cannot hang on a page: the reason for each, and what matches its file and code.
 * @type {Record<string, RegExp>}
 */
const elsewhere = {
  'Node alone reads local files': /^load\.ts: (readFile\(url\)|globalThis\.process\.)/,
  'only the fake relay of doona/testing opens reports': /^hpke\.ts: suite\.(GenerateKeyPair|SerializePublicKey|Open)\(/,
  'the limit counts from the end of prerendering': /^timing\.ts: new Promise\(.*prerenderingchange/,
};

/**
 * Returns the SDK's scripts by file name. In each script every `await X` is `await hangs(N, X)`, where N is the index
 * in `awaits`. hangs.js, beside the scripts, defines hangs(). Leaves out the awaits in `elsewhere`.
 */
export async function hangingScripts() {
  const awaits = /** @type {Await[]} */ ([]);
  const scripts = /** @type {Map<string, string>} */ (new Map());
  let limited = 0;
  const left = new Set(Object.keys(elsewhere));
  // No flow has a set, so the scripts of sets are left out.
  const sources = (await readdir(join(www, 'sdk'))).filter((file) =>
    /^(?!script-tag|testing|set\b)[a-z-]+\.ts$/.test(file));
  for (const file of sources.sort()) {
    const code = stripTypeScriptTypes(await readFile(join(www, 'sdk', file), 'utf8'), { mode: 'transform' });
    /** @type {{at: number, text: string}[]} */
    const insertions = [];
    const visit = (/** @type {any} */ node) => {
      if (node.type === 'ForOfStatement' && node.await) throw new Error(`${file}: this test cannot hang "for await"`);
      if (node.type === 'AwaitExpression') {
        const { start, end } = node.argument;
        const awaited = code.slice(start, end).replace(/\s+/g, ' ');
        const reason = Object.keys(elsewhere).find((why) => elsewhere[why]?.test(`${file}: ${awaited}`));
        if (reason) left.delete(reason);
        else if (limits.test(awaited)) limited++;
        else {
          insertions.push({ at: start, text: `hangs(${awaits.length}, ` }, { at: end, text: ')' });
          awaits.push({ file, code: awaited.slice(0, 70) });
        }
      }
      for (const child of Object.values(node)) {
        for (const one of Array.isArray(child) ? child : [child]) if (typeof one?.type === 'string') visit(one);
      }
    };
    visit(parseAst(code));
    let text = code;
    for (const { at, text: added } of insertions.sort((a, b) => b.at - a.at || a.text.length - b.text.length)) {
      text = text.slice(0, at) + added + text.slice(at);
    }
    scripts.set(file.replace('.ts', '.js'), `import { hangs } from './hangs.js';\n${text}`);
  }
  if (left.size > 0) throw new Error(`no await: ${[...left].join('; ')}`);
  return { awaits, limited, scripts: await bundled(scripts) };
}

/** Marks imports whose addresses bundlers must leave as they are. */
const mark = /addressThatBundlersMustLeaveToTheBrowserItself\(/g;

/** The scripts that pages load by themselves, and their names in the constant DOONA. */
const entries = Object.entries({ 'worker.js': 'worker', 'in-place.js': 'inPlace', 'blind.js': 'tokens',
  'explain.js': 'words', 'index.js': '' });

/**
 * Bundles the scripts, as www/build does: with the constants DOONA.… replaced and the marks removed.
 * @param {Map<string, string>} modules
 */
async function bundled(modules) {
  const integrity = JSON.parse(await readFile(join(built, 'integrity.json'), 'utf8'));
  const module = (/** @type {RegExp} */ pattern) => {
    const file = String(Object.keys(integrity).find((name) => pattern.test(name)));
    return { file: `./${file}`, integrity: integrity[file] };
  };
  const files = /** @type {Record<string, {file: string, integrity: string}>} */ ({
    browser: module(/^doona-[0-9a-f]+\.wasm$/), small: module(/^doona-small-.*\.wasm$/),
    full: module(/^doona-full-.*\.wasm$/) });
  const replaced = (/** @type {string} */ text) =>
    text.replace(mark, '(').replace(/DOONA\.(\w+)\.(file|integrity)/g, (_, asset, key) =>
      JSON.stringify(files[asset]?.[/** @type {'file' | 'integrity'} */ (key)]));
  /** @type {import('esbuild').Plugin} */
  const plugin = { name: 'scripts', setup({ onResolve, onLoad }) {
    onResolve({ filter: /.*/ }, ({ path, kind, namespace }) => {
      const name = basename(path);
      if (kind === 'entry-point') return { path: name, namespace: 'sdk' };
      if (namespace !== 'sdk') return undefined; // a vendored file
      if (path.includes('/vendor/')) return { path: join(www, path.slice(path.indexOf('vendor/'))) };
      const isScript = /^(hangs|worker|in-place|blind|explain)\.js$/.test(name);
      return isScript ? { path, external: true } : { path: name, namespace: 'sdk' };
    });
    onLoad({ filter: /.*/, namespace: 'sdk' }, ({ path }) => ({ contents: replaced(String(modules.get(path))) }));
  } };
  const scripts = /** @type {Map<string, string>} */ (new Map());
  for (const [entry, asset] of entries) { // The last one contains the hashes of the others.
    const { outputFiles } = await build({ entryPoints: [entry], bundle: true, write: false, format: 'esm',
      target: 'esnext', logLevel: 'error', plugins: [plugin] });
    const text = String(outputFiles[0]?.text);
    scripts.set(entry, text);
    files[asset] = { file: `./${entry}`,
      integrity: `sha256-${createHash('sha256').update(text).digest('base64')}` };
  }
  return scripts;
}

/**
 * hangs.js. Its address, /hang-N-ON/sdk/hangs.js, says which await hangs, and whether from the start. Otherwise it
 * begins to hang in the page when `hanging.isOn` is set, and in the worker at the page's message. The page hears which
 * awaits ran, and when one hangs.
 */
const hangs = `
const [, n, on] = /\\/hang-(-?\\d+)-(\\d)\\//.exec(import.meta.url);
const target = Number(n);
const channel = new BroadcastChannel('hangs');
const isPage = typeof document !== 'undefined';
const state = (globalThis.hanging ??= { isOn: on === '1' });
if (!isPage) channel.onmessage = ({ data }) => {
  if (data !== 'on') return;
  state.isOn = true;
  channel.postMessage('is on');
};
export function hangs(index, value) {
  if (target < 0) isPage ? state.ran(index) : channel.postMessage(['ran', index]);
  if (index !== target || !state.isOn) return value;
  isPage ? state.reached() : channel.postMessage('reached');
  Promise.resolve(value).catch(() => {});
  return new Promise(() => {});
}
`;

/** The variants of the test server's stream that flows ask for. */
const variants = ['rescued', 'rolled', 'good']; // The last one stays.

/**
 * Serves a blank page, the scripts, and variants of the stream under /variant/. Passes requests for tasks on to the
 * relay, and requests for tokens to the test server's site.
 * @param {Map<string, string>} scripts @param {{site: string, relay: string, tasks: Record<string, any>}} testServer
 */
export async function serveHanging(scripts, { site, relay, tasks }) {
  /** @type {Map<string, Buffer>} */
  const streams = new Map();
  for (const variant of variants) {
    await fetch(`${site}/test/stream`, { method: 'POST', body: JSON.stringify(variant) });
    streams.set(`/variant/${variant}`, Buffer.from(await (await fetch(tasks['stream'].stream)).arrayBuffer()));
  }
  let last = /** @type {Promise<unknown>} */ (Promise.resolve());
  const server = createServer((request, response) => {
    answer(request, response).catch(() => response.writeHead(404).end());
  });
  /** @param {import('node:http').IncomingMessage} request @param {import('node:http').ServerResponse} response */
  const answer = async (request, response) => {
    const { url = '/' } = request;
    if (url.startsWith('/v1/')) { // a task at the page's own origin
      return response.end(Buffer.from(await (await fetch(relay + url)).arrayBuffer()));
    }
    if (url.startsWith('/test/')) {
      const parts = /** @type {Buffer[]} */ ([]);
      for await (const part of request) parts.push(part);
      const passing = last.then(async () => { // The test server knows one person at a time. Each token is of a new one.
        await fetch(`${site}/test/login`, { method: 'POST', body: crypto.randomUUID() });
        const got = await fetch(site + url, { method: 'POST', body: Buffer.concat(parts) });
        return { status: got.status, body: Buffer.from(await got.arrayBuffer()) };
      });
      last = passing.catch(() => {});
      const { status, body } = await passing;
      return response.writeHead(status).end(body);
    }
    if (url === '/') {
      return response.writeHead(200, { 'Content-Type': 'text/html' }).end('<!doctype html><title>hang</title>');
    }
    const stream = streams.get(url);
    if (stream) return response.writeHead(200).end(stream);
    const name = basename(url);
    if (name.endsWith('.wasm')) {
      return response.writeHead(200, { 'Content-Type': 'application/wasm' }).end(await readFile(join(built, name)));
    }
    const text = name === 'hangs.js' ? hangs : scripts.get(name);
    if (text === undefined) return response.writeHead(404).end();
    return response.writeHead(200, { 'Content-Type': 'text/javascript' }).end(text);
  };
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  return { url: `http://127.0.0.1:${port}`, stop: () => server.close() };
}

/**
 * @typedef {object} Visit
 * @property {string} flow
 * @property {number} index of the await that hangs; -1: none
 * @property {number} from the step at which it begins to hang
 * @property {Record<string, any>} tasks
 */

/**
 * Runs the steps of a flow in a page. Returns the outcome of each step and the one that it has if nothing hangs, which
 * awaits ran in it, and whether one hung. Time passes twenty times faster for long timers once an await hangs; before,
 * a slow machine needs the real time. The tests send this function to the page as text.
 * @param {Visit} visit @param {typeof import('./await-flows.mjs').flowsOf} flowsOf
 */
export async function visitHanging({ flow, index, from, tasks }, flowsOf) {
  const all = /** @type {any} */ (globalThis);
  const { setTimeout: wait, clearTimeout: clear, performance } = globalThis;
  const speed = 20;
  let reachedAt = Infinity;
  /** The time in milliseconds, as the SDK's long timers feel it. */
  const clock = () => {
    const now = performance.now();
    return now < reachedAt ? now : reachedAt + (now - reachedAt) * speed;
  };
  /** @type {Map<number, {due: number, call: () => void, id: any}>} */
  const timers = new Map();
  let lastTimer = 1e9;
  const schedule = (/** @type {number} */ id) => {
    const timer = /** @type {any} */ (timers.get(id));
    clear(timer.id);
    const left = timer.due - clock();
    timer.id = wait(() => (timers.delete(id), timer.call()), reachedAt < Infinity ? left / speed : left);
  };
  all.setTimeout = (/** @type {() => void} */ call, milliseconds = 0) => {
    if (milliseconds < 2000) return wait(call, milliseconds);
    timers.set(++lastTimer, { due: clock() + milliseconds, call, id: 0 });
    schedule(lastTimer);
    return lastTimer;
  };
  all.clearTimeout = (/** @type {number} */ id) => {
    clear(timers.get(id)?.id ?? id);
    timers.delete(id);
  };
  const reached = () => {
    if (reachedAt < Infinity) return;
    reachedAt = performance.now();
    for (const id of timers.keys()) schedule(id);
  };
  let ran = /** @type {Set<number>} */ (new Set());
  const state = (all.hanging = { isOn: from === 0, reached, ran: (/** @type {number} */ one) => ran.add(one) });
  const channel = new BroadcastChannel('hangs');
  let isOn = () => {};
  channel.onmessage = ({ data }) => {
    if (data === 'reached') reached();
    else if (data === 'is on') isOn();
    else ran.add(data[1]);
  };
  const pause = (/** @type {number} */ milliseconds) => new Promise((resolve) => wait(resolve, milliseconds));

  if (flow.endsWith('in place')) delete all.Worker;
  const load = (/** @type {string} */ file) => import(file);
  const sdk = await load(`/hang-${index}-${from === 0 ? 1 : 0}/sdk/index.js`);
  const tokens = (/** @type {any} */ body, /** @type {any} */ { uri }) =>
    fetch(`/test/token?uri=${encodeURIComponent(uri)}`, { method: 'POST', body });
  const options = { budget: { epsilon: 1e9, delta: 1, days: 1 }, maxEpsilon: 1e9, maxDelta: 1, spread: 0, tokens };
  const it = /** @type {{doona: any}} */ ({ doona: undefined });
  /** Waits as long as init is busy, but its calls return at once, so it may remain busy. */
  const until = async (/** @type {string[]} */ states) => {
    const begin = clock();
    while (states.includes(it.doona.status.state) && (reachedAt === Infinity || clock() - begin < 34_000)) {
      await pause(20);
    }
    if (it.doona.status.state === 'failed') throw new Error(it.doona.status.reason);
  };
  const flows = flowsOf({ it, sdk, tasks, options, pause, until });
  /** @type {{step: string, outcome: string, want: string, ran: number[]}[]} */
  const steps = [];
  for (const [step, call, want = 'done'] of flows[flow]?.() ?? []) {
    if (steps.length === from && from > 0) {
      state.isOn = true;
      const answered = new Promise((resolve) => (isOn = () => resolve(undefined)));
      channel.postMessage('on');
      await Promise.race([answered, pause(300)]);
    }
    ran = new Set();
    const begin = clock();
    let outcome = '';
    (async () => {
      try {
        await call();
        outcome = 'done';
      } catch (error) {
        outcome = /** @type {any} */ (error)?.code ?? `unnamed: ${error}`;
      }
    })();
    const limit = 35_000 + 2000 * speed; // and two seconds for a slow machine
    while (!outcome && (reachedAt === Infinity || clock() - Math.max(begin, reachedAt) < limit)) {
      if (reachedAt === Infinity && clock() - begin > 100_000) break;
      await pause(10);
    }
    if (index < 0) await pause(100);
    steps.push({ step, outcome: outcome || 'pending', want, ran: [...ran] });
    if (!outcome || (step === 'connect' && !it.doona)) break;
  }
  return { steps, isReached: reachedAt < Infinity };
}
