// Serves the SDK so that any one of its awaits can hang. It parses the SDK's source, so it covers each new await.
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { readFile, readdir } from 'node:fs/promises';
import { createServer } from 'node:http';
import { stripTypeScriptTypes } from 'node:module';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';

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
 * Returns the SDK's scripts by file name. In each script every `await X` is `await hangs(N, X)`, where N is the index
 * in `awaits`. hangs.js, beside the scripts, defines hangs().
 */
export async function hangingScripts() {
  const awaits = /** @type {Await[]} */ ([]);
  const scripts = /** @type {Map<string, string>} */ (new Map());
  let limited = 0;
  const sources = (await readdir(join(www, 'sdk'))).filter((file) => /^(?!script-tag|testing)[a-z-]+\.ts$/.test(file));
  for (const file of sources.sort()) {
    const code = stripTypeScriptTypes(await readFile(join(www, 'sdk', file), 'utf8'), { mode: 'transform' });
    /** @type {{at: number, text: string}[]} */
    const insertions = [];
    const visit = (/** @type {any} */ node) => {
      if (node.type === 'ForOfStatement' && node.await) throw new Error(`${file}: this test cannot hang "for await"`);
      if (node.type === 'AwaitExpression') {
        const { start, end } = node.argument;
        const awaited = code.slice(start, end);
        if (limits.test(awaited)) limited++;
        else {
          insertions.push({ at: start, text: `hangs(${awaits.length}, ` }, { at: end, text: ')' });
          awaits.push({ file, code: awaited.replace(/\s+/g, ' ').slice(0, 70) });
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
  return { awaits, limited, scripts: await withFiles(scripts) };
}

/** Marks imports whose addresses bundlers must leave as they are. */
const mark = /addressThatBundlersMustLeaveToTheBrowserItself\(/g;

/**
 * Replaces the constants DOONA.… in scripts and removes the marks, as www/build does.
 * @param {Map<string, string>} scripts
 */
async function withFiles(scripts) {
  const integrity = JSON.parse(await readFile(join(built, 'integrity.json'), 'utf8'));
  const module = (/** @type {RegExp} */ pattern) => {
    const file = String(Object.keys(integrity).find((name) => pattern.test(name)));
    return { file: `./${file}`, integrity: integrity[file] };
  };
  const files = /** @type {Record<string, {file: string, integrity: string}>} */ ({
    browser: module(/^doona-[0-9a-f]+\.wasm$/), small: module(/^doona-small-.*\.wasm$/),
    full: module(/^doona-full-.*\.wasm$/) });
  const replaced = () => {
    for (const [name, text] of scripts) {
      scripts.set(name, text.replace(mark, '(').replace(/DOONA\.(\w+)\.(file|integrity)/g, (all, asset, key) => {
        const value = files[asset]?.[/** @type {'file' | 'integrity'} */ (key)];
        return value ? JSON.stringify(value) : all;
      }));
    }
  };
  replaced();
  for (const [asset, name] of /** @type {const} */ ([['worker', 'worker.js'], ['tokens', 'blind.js']])) {
    const hash = createHash('sha256').update(String(scripts.get(name))).digest('base64');
    files[asset] = { file: `./${name}`, integrity: `sha256-${hash}` };
  }
  replaced();
  return scripts;
}

/**
 * hangs.js. Its address, /hang-N-ON/sdk/hangs.js, says which await hangs, and whether from the start. Otherwise it
 * begins to hang in the page when `hanging.isOn` is set, and in the worker at the page's message. The page hears which awaits
 * ran, and when one hangs.
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

/**
 * Serves a blank page and the scripts. Passes requests for tasks on to the relay, and requests for /test/ to the test
 * server's site.
 * @param {Map<string, string>} scripts @param {{site: string, relay: string}} testServer
 */
export async function serveHanging(scripts, { site, relay }) {
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
      const parts = [];
      for await (const part of request) parts.push(part);
      const { status, ...passed } = await fetch(site + url, { method: 'POST', body: Buffer.concat(parts) }).then(
        async (got) => ({ status: got.status, body: Buffer.from(await got.arrayBuffer()) }));
      return response.writeHead(status).end(passed.body);
    }
    if (url === '/') {
      return response.writeHead(200, { 'Content-Type': 'text/html' }).end('<!doctype html><title>hang</title>');
    }
    const name = basename(url);
    if (name.endsWith('.wasm')) {
      return response.writeHead(200, { 'Content-Type': 'application/wasm' }).end(await readFile(join(built, name)));
    }
    const vendored = /\/vendor\/.*$/.exec(url)?.[0];
    const text = name === 'hangs.js' ? hangs : vendored ? await readFile(join(www, vendored)) : scripts.get(name);
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
 * Runs the steps of a flow in a page. Returns the outcome of each step, which awaits ran in it, and whether one hung.
 * Time passes twenty times faster for long timers once an await hangs; before, a slow machine needs the real time. The
 * tests send this function to the page as text.
 * @param {Visit} visit
 */
export async function visitHanging({ flow, index, from, tasks }) {
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
  const { connect, init, memoryStore } = await load(`/hang-${index}-${from === 0 ? 1 : 0}/sdk/index.js`);
  const tokens = (/** @type {any} */ body, /** @type {any} */ { uri }) =>
    fetch(`/test/token?uri=${encodeURIComponent(uri)}`, { method: 'POST', body });
  const options = { budget: { epsilon: 1e9, delta: 1, days: 1 }, maxEpsilon: 1e9, maxDelta: 1, spread: 0, tokens };
  /** @type {any} */
  let doona;
  /** Makes the relay refuse reports with a problem. @param {string} problem @param {number} status */
  const refuse = (problem, status) => {
    const { fetch } = globalThis;
    globalThis.fetch = (to, how) => String(to).endsWith('/reports')
      ? Promise.resolve(new Response(`{"type":"urn:doona:error:${problem}"}`,
        { status, headers: { 'Content-Type': 'application/problem+json' } })) : fetch(to, how);
  };
  const own = (/** @type {{task: string}} */ offer) =>
    ({ ...offer, task: offer.task.replace(/^http:\/\/[^/]*/, location.origin) });
  const strict = (/** @type {string} */ task, /** @type {object} */ more = {}) => [
    ['connect', async () => (doona = await connect({ ...tasks[task], ...options, ...more }))],
    ['report', () => doona.report(1)],
    ['report again', () => doona.report(1)],
    ['flush', () => doona.flush()],
    ['forget', () => doona.forget()],
  ];
  /** Waits as long as init is busy, but its calls return at once, so it may remain busy. */
  const until = async (/** @type {string[]} */ states) => {
    const begin = clock();
    while (states.includes(doona.status.state) && (reachedAt === Infinity || clock() - begin < 34_000)) await pause(20);
    if (doona.status.state === 'failed') throw new Error(doona.status.reason);
  };
  const easy = (/** @type {object} */ more = {}) => [
    ['init', async () => void (doona = init({ ...tasks.truthful, ...options, ...more }))],
    ['explain', () => doona.explain()],
    ['optIn', () => doona.optIn()],
    ['report', () => (doona.report(1), until(['connecting', 'ready', 'sending']))],
    ['forget', () => doona.forget()],
    ['optOut', () => doona.optOut()],
    ['optIn again', () => (doona.optIn())],
    ['report again', () => (doona.report(1), until(['connecting', 'ready', 'sending']))],
  ];
  const flows = /** @type {Record<string, any[]>} */ ({
    task: strict('truthful'), 'task in place': strict('truthful', { when: 'now' }),
    'task with its own store': strict('truthful', { store: memoryStore() }),
    tokens: strict('tokens'), stream: strict('stream', { when: 'now' }), 'post-quantum': strict('post-quantum'),
    'no value of the task': [...strict('truthful').slice(0, 1), ['report', () => doona.report(1000)]],
    'sealing in doona-full.wasm': strict('truthful', { sealing: 'wasm' }),
    undelivered: [['refuse', async () => refuse('overloaded', 503)], ...strict('truthful')],
    limited: [['refuse', async () => refuse('limit', 429)], ...strict('truthful')],
    'too late': [['refuse', async () => refuse('epoch-closed', 409)], ...strict('truthful')],
    'token refused': [['refuse', async () => refuse('limit', 429)], ...strict('tokens')],
    "init on the relay's origin": easy({ ...own(tasks.truthful), consent: 'pending' }),
    init: easy(), 'init, consent pending': easy({ consent: 'pending', store: memoryStore() }),
  });
  /** @type {{step: string, outcome: string, ran: number[]}[]} */
  const steps = [];
  for (const [step, call] of flows[flow] ?? []) {
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
    steps.push({ step, outcome: outcome || 'pending', ran: [...ran] });
    if (!outcome || (step === 'connect' && !doona)) break;
  }
  return { steps, isReached: reachedAt < Infinity };
}
