// Pages that break web libraries: old libraries, frozen builtins, service workers, blockers, strict policies, frames,
// and servers that never answer. Each visit has a server of its own, and so an origin with its own storage.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { extname, join } from 'node:path';
import { after, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { launch, patience, startTestServer } from './harness.mjs';

/** @typedef {import('node:http').IncomingMessage} Request */
/** @typedef {import('node:http').ServerResponse} Response */
/** @typedef {import('./harness.mjs').Offer} Offer */

const built = fileURLToPath(new URL('../../build/www', import.meta.url));
const types = /** @type {Record<string, string>} */ ({ '.js': 'text/javascript', '.wasm': 'application/wasm' });

/** Old libraries that replace builtins: Debian's packages, and one of npm. www/setup.sh installs them. */
export const libraries = /** @type {Record<string, string>} */ ({
  'Prototype 1.7.3': process.env['PROTOTYPEJS'] ?? '/usr/share/javascript/prototype/prototype.js',
  'MooTools 1.4.5': process.env['MOOTOOLS'] ?? '/usr/share/javascript/mootools/mootools-core-nc.js',
  'MooTools 1.5.2': fileURLToPath(new URL('libraries/node_modules/mootools/lib/mootools-core-1.5.2-server.js',
    import.meta.url)),
});

/**
 * @typedef {object} HostilePage
 * @property {string} [begins] a script of the page that runs before the SDK
 * @property {string} [library] the path of a library that the page loads before the SDK
 * @property {string} [policy] the page's content security policy
 * @property {string} [html] more HTML
 * @property {string} [worker] the script of a service worker, which controls the page before the SDK starts
 * @property {boolean} [twice] whether the page loads and visits a second time before its outcome counts
 * @property {string} [first] the HTML of another page at the address `/`; the page itself is then at `/page`
 * @property {string} [waits] an expression: the promise that the page waits for after connect and before report
 * @property {RegExp} [hangs] requests to the page's server that are never answered
 * @property {Record<string, string>} [answers] bodies that the page's server sends for other files
 * @property {string} [relay] the origin that the addresses of tasks name instead of the relay's; '' is the page's
 * @property {string} [global] an expression: the promise of the SDK that `init` is taken from
 * @property {boolean} [same] whether `connect` and `init` report to the same task, so that one report must arrive
 * @property {boolean} [six] whether the page reports to six tasks instead of two
 * @property {number} [epsilon] the ε of the budget; default 10, or 1.5 for six tasks
 * @property {boolean} [frames] the option of that name
 * @property {boolean} [slow] whether a visit takes more than five seconds
 */

/** A service worker that takes over the page at once. `answer` is its answer to a request. */
const worker = (/** @type {string} */ answer) => `
addEventListener('install', () => skipWaiting());
addEventListener('activate', (event) => event.waitUntil(clients.claim()));
addEventListener('fetch', (event) => {
  const { request } = event;
  if (new URL(request.url).pathname === '/result') return;
  event.respondWith((async () => { ${answer} })());
});`;

const offline = `new Response('<!doctype html><title>offline</title>', { headers: { 'Content-Type': 'text/html' } })`;

/** A policy under which the SDK works, with the given directives for scripts and others. */
const policy = (scripts = "'self' 'wasm-unsafe-eval'", more = '') =>
  `default-src 'self'; connect-src *; script-src ${scripts}; ${more}`;

/** Deletes functions, by paths from the global object. */
const deleted = (/** @type {string[]} */ ...paths) => paths.map((path) => `delete ${path};`).join('\n');

/** Evaluates the SDK's script for script tags as a loader does. `document.currentScript` is then null. */
const evaluated = `fetch('/doona.global.js').then((got) => got.text())
  .then((code) => new Function(code + ';return doona')())`;

/** @type {Record<string, HostilePage>} */
export const pages = {
  'Nothing in the way': {},
  ...Object.fromEntries(Object.entries(libraries).map(([name, library]) => [name, { library, six: true }])),
  'Every builtin is frozen': {
    begins: `for (const name of Object.getOwnPropertyNames(globalThis)) {
      const value = Object.getOwnPropertyDescriptor(globalThis, name).value;
      if (typeof value !== 'function' && !/^(JSON|Math|Reflect|Atomics|WebAssembly)$/.test(name)) continue;
      if (/^(finish|visit)$/.test(name)) continue;
      Object.freeze(value);
      if (value.prototype) Object.freeze(value.prototype);
    }`,
  },
  'A script without its tag': { global: evaluated },
  'Two copies of the SDK': { global: evaluated, same: true },
  'Service worker: cache first': {
    worker: worker(`
      if (request.method !== 'GET') return fetch(request);
      const cache = await caches.open('all');
      const old = await cache.match(request);
      if (old) return old;
      const fresh = await fetch(request);
      event.waitUntil(cache.put(request, fresh.clone()));
      return fresh;`),
    twice: true,
  },
  'Service worker: passes all on': { worker: worker('return fetch(request);') },
  'Service worker: offline page for reports': {
    worker: worker(`return request.url.endsWith('/reports') ? ${offline} : fetch(request);`),
  },
  'Service worker: offline page for all': {
    worker: worker(`return request.url.includes('/v1/') ? ${offline} : fetch(request);`),
  },
  'Blocker: refuses the relay': { relay: 'http://127.0.0.1:9' },
  'Blocker: empty 200 for the task': { relay: '', answers: { '/v1/': '' } },
  'Blocker: empty 200 for reports': {
    worker: worker(`return request.url.endsWith('/reports') ? new Response('') : fetch(request);`),
  },
  "Blocker: empty 200 for the SDK's worker": { answers: { '/doona-worker-': '' } },
  "Blocker: empty 200 for the SDK's module": { answers: { '/doona-': '' } },
  "Policy: worker-src 'none'": { policy: policy(undefined, "worker-src 'none'") },
  'Policy: nonce and strict-dynamic': { policy: policy("'nonce-test' 'strict-dynamic' 'wasm-unsafe-eval'") },
  'Policy: no wasm-unsafe-eval': { policy: policy("'self'") },
  'Policy: Trusted Types': { policy: policy(undefined, "require-trusted-types-for 'script'; trusted-types 'none'") },
  'Storage: IndexedDB is denied': {
    begins: `Object.defineProperty(globalThis, 'indexedDB', {
      get() { throw new DOMException('denied', 'SecurityError'); } });`,
  },
  'Storage: IndexedDB is missing': { begins: `Object.defineProperty(globalThis, 'indexedDB', { value: undefined });` },
  'Frame of another site': { first: '<iframe src="ELSEWHERE/page"></iframe>' },
  'Frame of another site, frames: true': { first: '<iframe src="ELSEWHERE/page"></iframe>', frames: true },
  'Sandboxed frame, frames: true': {
    first: '<iframe sandbox="allow-scripts" src="/page"></iframe>', frames: true,
  },
  'Prerendered for a second': {
    begins: `{
      const shows = () => delete document.prerendering && document.dispatchEvent(new Event('prerenderingchange'));
      Object.defineProperty(document, 'prerendering', { value: true, configurable: true });
      setTimeout(shows, 1000);
    }`,
  },
  'Left, then back': {
    waits: `new Promise((resolve) => {
      addEventListener('pageshow', resolve);
      if (sessionStorage.left) return resolve(); // not from the back-forward cache
      sessionStorage.left = 'yes';
      setTimeout(() => (location.href = '/away'), 100);
    })`,
    answers: { '/away': `<!doctype html><script>onpageshow = () => setTimeout(() => history.back(), 100);</script>` },
  },
  'The relay never answers': { relay: '', hangs: /\/v1\//, slow: true },
  "The SDK's worker never arrives": { hangs: /doona-worker-/, slow: true },
  "The SDK's module never arrives": { hangs: /\.wasm/, slow: true },
  'An image never arrives': { html: '<img src="/endless.png" alt="">', hangs: /endless/, slow: true },
  'IndexedDB never answers': { begins: 'IDBFactory.prototype.open = () => new EventTarget();', slow: true },
  'The worker never answers': { begins: 'Worker.prototype.postMessage = () => {};', slow: true },
  'Old browser: before 2022': {
    begins: deleted('AbortSignal.timeout', 'AbortSignal.any', 'AbortSignal.prototype.throwIfAborted',
      'AbortSignal.prototype.reason', 'globalThis.structuredClone', 'globalThis.requestIdleCallback',
      'globalThis.BroadcastChannel', 'Navigator.prototype.locks', 'Object.hasOwn', 'Array.prototype.findLast'),
  },
  'Old browser: no Array.prototype.at': { begins: deleted('Array.prototype.at') },
  'Old browser: no String.prototype.replaceAll': { begins: deleted('String.prototype.replaceAll') },
  'Old browser: no workers': { begins: deleted('globalThis.Worker') },
  'Old browser: no X25519 in WebCrypto': {
    begins: `{
      const { generateKey, importKey } = SubtleCrypto.prototype;
      const without = (native) => function (...args) {
        if (args.some((arg) => arg === 'X25519' || arg?.name === 'X25519')) {
          return Promise.reject(new DOMException('unknown', 'NotSupportedError'));
        }
        return native.apply(this, args);
      };
      SubtleCrypto.prototype.generateKey = without(generateKey);
      SubtleCrypto.prototype.importKey = without(importKey);
    }`,
  },
  'Lockdown Mode: no WebAssembly': { begins: deleted('globalThis.WebAssembly', 'globalThis.Worker') },
  'Not HTTPS: no WebCrypto': { begins: deleted('Crypto.prototype.subtle') },
};

/** The names of tasks of ε = 1 whose reports of the value 1 arrive. The first two are exact. */
export const tasks = ['one relay', 'three relays', 'a day', 'histogram', 'mean', 'rappor'];

/**
 * Reports to the tasks and calls `finish` with the outcomes, separated by commas. It runs in the page, so it uses no
 * builtin that a library replaces.
 */
async function visit() {
  const { offers, frames, six, epsilon, isLast, waits, note, global } = /** @type {any} */ (globalThis).visit;
  const given = { budget: { epsilon, delta: 1, days: 1 }, maxDelta: 1, spread: 0, frames };
  const load = (/** @type {string} */ file) => import(file);
  const codeOf = (/** @type {any} */ error) => error?.code ?? `${error}`;
  /** @type {(index: number) => Promise<string>} */
  const strictly = async (index) => {
    try {
      const { connect } = await load('/doona.js');
      const doona = await connect({ ...offers[index], ...given });
      if (waits) await waits();
      await doona.report(1);
      return 'reported';
    } catch (error) {
      return codeOf(error);
    }
  };
  /** @type {(index: number) => Promise<string>} */
  const easily = async (index) => {
    try {
      const { init } = await (global ? global() : load('/doona.js'));
      const client = init({ ...offers[index], ...given });
      client.report(1);
      for (;;) {
        const { state } = client.status;
        if (state !== 'connecting' && state !== 'ready' && state !== 'sending') return state;
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    } catch (error) {
      return codeOf(error);
    }
  };
  let text = '';
  if (six) for (let i = 0; i < 6; i++) text += (i ? ',' : '') + await strictly(i);
  else {
    const [one, other] = [strictly(0), easily(1)];
    text = `${await one},${await other}`;
  }
  if (!isLast) return void (location.search = '?again');
  /** @type {any} */ (globalThis).finish(`${text} ${note()}`);
}

/**
 * Shows an address in a browser, and returns a function that closes the page.
 * @typedef {(url: string) => Promise<() => Promise<unknown>>} Open
 */

/**
 * Serves a hostile page until it has sent its outcomes. Returns them, and the port of its server.
 * @param {HostilePage} page
 * @param {Record<string, Offer>} offers
 * @param {Open} open
 */
export async function visitPage(page, offers, open) {
  /** @type {(text: string) => void} */
  let finish = () => {};
  const finished = new Promise((resolve) => (finish = resolve));
  /** @type {Set<string>} */
  const late = new Set();
  const server = createServer((request, response) => {
    answer(request, response).catch(() => response.writeHead(404).end());
  });
  /** @param {Request} request @param {Response} response */
  const answer = async (request, response) => {
    const { pathname, search } = new URL(request.url ?? '/', 'http://a');
    response.setHeader('Cache-Control', 'no-cache');
    if (pathname === '/result') {
      let text = '';
      for await (const part of request) text += part;
      response.setHeader('Access-Control-Allow-Origin', '*'); // A sandboxed frame has no origin.
      response.end();
      return finish(text);
    }
    if (page.hangs?.test(pathname)) return void late.add(pathname);
    response.setHeader('Access-Control-Allow-Origin', '*');
    if (page.policy) response.setHeader('Content-Security-Policy', page.policy); // for the worker's script, too
    const [, body] = Object.entries(page.answers ?? {}).find(([start]) => pathname.startsWith(start)) ?? [];
    const found = body ?? files[pathname]?.(search);
    if (found === undefined) {
      response.setHeader('Content-Type', types[extname(pathname)] ?? 'text/plain');
      return response.end(await readFile(join(built, pathname)));
    }
    response.setHeader('Content-Type', types[extname(pathname)] ?? 'text/html');
    return response.end(found);
  };
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  const origin = `http://127.0.0.1:${port}`;
  const given = (page.same ? tasks.map(() => tasks[0]) : tasks).map((name = '') => {
    const { task, ...more } = /** @type {Partial<Offer>} */ (offers[name] ?? {}); // A stream has no task.
    return task === undefined || page.relay === undefined ? offers[name]
      : { ...more, task: task.replace(/^http:\/\/[^/]*/, page.relay || origin) };
  });
  const library = page.library ? await readFile(page.library, 'utf8') : '';
  const html = `<!doctype html><html lang="en"><title>page</title>
    <script nonce="test" src="/begin.js"></script>${library && '<script nonce="test" src="/library.js"></script>'}
    <script nonce="test" src="/hostile.js"></script><script nonce="test" type="module" src="/visit.js"></script>
    ${page.html ?? ''}</html>`;
  const first = page.first?.replace('ELSEWHERE', `http://localhost:${port}`);
  const files = /** @type {Record<string, (search: string) => string>} */ ({
    '/': () => (first ? `<!doctype html><html lang="en"><title>first</title>${first}</html>` : html),
    '/page': () => html,
    '/begin.js': () => `{
      const { fetch, location } = globalThis;
      const [address, isFirst] = [location.href, location.search === ''];
      const send = fetch.bind(globalThis);
      let note = '';
      addEventListener('pageshow', ({ persisted }) => persisted && (note = 'restored'));
      Object.defineProperty(globalThis, 'finish', { value: (text) =>
        send(new URL('/result', address).href, { method: 'POST', body: text }) });
      globalThis.visit = { offers: ${JSON.stringify(given)}, frames: ${page.frames ?? false},
        six: ${page.six ?? false}, epsilon: ${page.epsilon ?? (page.six ? 1.5 : 10)}, isLast: ${!page.twice} || !isFirst,
        note: () => note, global: ${page.global ? `() => ${page.global}` : 'undefined'},
        waits: ${page.waits ? `() => ${page.waits}` : 'undefined'} };
    }`,
    '/library.js': () => library,
    '/hostile.js': () => page.begins ?? '',
    '/worker.js': () => page.worker ?? '',
    '/visit.js': () => `${page.worker ? `
      const claimed = new Promise((resolve) => (navigator.serviceWorker.oncontrollerchange = resolve));
      await navigator.serviceWorker.register('/worker.js');
      if (!navigator.serviceWorker.controller) await claimed;` : ''}
      (${visit})();`,
  });
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const timeout = new Promise((resolve) => (timer = setTimeout(resolve, patience, 'No-outcome')));
  const opened = open(`${origin}/`);
  opened.catch(() => {}); // The outcome says more.
  try {
    const text = /** @type {string} */ (await Promise.race([finished, timeout]));
    return { text, port };
  } finally {
    clearTimeout(timer);
    server.close();
    server.closeAllConnections();
    await opened.then((leave) => leave(), () => {});
  }
}

const document = new URL('../../docs/browsers.md', import.meta.url);
const engines = ['Chromium', 'Firefox', 'WebKitGTK'];

/** Reads the table of docs/browsers.md: the outcomes of each page, in the order of `engines`. */
async function readTable() {
  const rows = [...(await readFile(document, 'utf8')).matchAll(/^\| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$/gm)];
  return new Map(rows.map(([, name = '', ...outcomes]) => [name, outcomes]));
}

/** Writes an outcome to the table. @param {string} engine @param {string} page @param {string} outcome */
async function writeOutcome(engine, page, outcome) {
  const table = await readTable();
  const rows = Object.keys(pages).map((name) => {
    const cells = table.get(name) ?? engines.map(() => '?');
    if (name === page) cells[engines.indexOf(engine)] = outcome;
    return `| ${name} | ${cells.join(' | ')} |`;
  });
  const text = await readFile(document, 'utf8');
  const ruler = text.indexOf('\n', text.indexOf('|---')); // the end of the line below the table's head
  const end = ruler + Number(/\n(?!\|)/.exec(text.slice(ruler))?.index);
  await writeFile(document, `${text.slice(0, ruler)}\n${rows.join('\n')}${text.slice(end)}`);
}

/**
 * Returns a page's outcome in words, from the outcome of each call and a note of how the page was shown.
 * @param {HostilePage} page @param {string[]} outcomes @param {string} [note]
 */
function inWords(page, outcomes, note) {
  const [one = '', other] = outcomes;
  if (outcomes.every((outcome) => outcome === one)) return note ? `${one}, ${note}` : one;
  if (!page.six) return `${one}; with init ${other}`;
  const reported = outcomes.filter((outcome) => outcome === 'reported').length;
  const refused = [...new Set(outcomes.filter((outcome) => outcome !== 'reported'))];
  return `${reported} of 6 reported, others ${refused.join(', ')}`;
}

/**
 * Leaves out reports that were sent again because an answer was late. Their bytes are the same: a relay counts one.
 * @template {{body: unknown}} T @param {T[]} reports
 */
export const distinct = (reports) => [...new Map(reports.map((report) => [String(report.body), report])).values()];

/**
 * Defines a test for each hostile page in an engine: its outcome is what docs/browsers.md says. With
 * DOONA_BROWSERS=write the tests write their outcomes to docs/browsers.md instead.
 * @param {string} engine
 * @param {() => Promise<{open: Open, stop: () => Promise<unknown>}>} start
 * @param {{slow: boolean, concurrency: number}} how slow: whether to test the pages that take long, too
 */
export function testPages(engine, start, { slow, concurrency }) {
  describe(`hostile pages in ${engine}`, { concurrency }, () => {
    /** @type {Awaited<ReturnType<typeof startTestServer>> | undefined} */
    let server;
    /** @type {ReturnType<typeof start> | undefined} */
    let browser;
    /** All submissions so far. @type {import('./harness.mjs').Submission[]} */
    const sent = [];
    let taken = Promise.resolve();
    /** @type {ReturnType<typeof startTestServer> | undefined} */
    let starting;
    const writes = process.env['DOONA_BROWSERS'] === 'write';
    after(async () => {
      await (await browser)?.stop();
      await server?.stop();
    });
    for (const [name, page] of Object.entries(pages)) {
      if (page.slow && !slow) continue;
      test(name, async (t) => {
        starting ??= startTestServer();
        server = await starting;
        browser ??= start();
        const { text: said, port } = await visitPage(page, server.tasks, (await browser).open);
        const [text = '', note] = said.split(' ');
        const codes = text.split(',');
        const outcome = inWords(page, codes, note);
        t.diagnostic(`${name}: ${outcome}`);
        for (const code of codes) assert.match(code, /^(?!failed)[a-z0-9-]+$/);
        taken = taken.then(async () => void sent.push(...await /** @type {any} */ (server).take()));
        await taken;
        const got = distinct(sent.filter(({ header }) => header['Origin']?.[0]?.endsWith(`:${port}`)));
        const reported = codes.filter((code) => code === 'reported').length;
        assert.equal(got.length, page.same ? Math.min(1, reported) : reported);
        for (const { error, messages } of page.six ? [] : got) assert.deepEqual([messages, error], [[['0001']], '']);
        for (const { error } of got) assert.equal(error, '');
        if (writes) await writeOutcome(engine, name, outcome);
        else assert.equal(outcome, (await readTable()).get(name)?.[engines.indexOf(engine)]);
      });
    }
  });
}

/**
 * Starts one of Playwright's browsers for testPages.
 * @param {Promise<import('playwright-core').Browser>} launched
 * @param {(page: import('playwright-core').Page) => void} [onPage] called before a page loads
 */
export async function started(launched, onPage) {
  const browser = await launched;
  return {
    /** @type {Open} */
    open: async (url) => {
      const context = await browser.newContext();
      const page = await context.newPage();
      onPage?.(page);
      await page.goto(url, { waitUntil: 'commit' });
      return () => context.close();
    },
    stop: () => browser.close(),
  };
}

/**
 * Starts Chromium as people use it: with the back-forward cache, and with a storage of its own for each frame of
 * another site. Playwright disables both.
 * @param {(page: import('playwright-core').Page) => void} [onPage] called before a page loads
 */
export function startChromium(onPage) {
  return started(launch({ ignoreDefaultArgs: ['--disable-back-forward-cache'] },
    '--disable-features=Translate,OptimizationHints,MediaRouter'), onPage);
}
