// Runs the lines of docs/recipes.md in Chromium: the code blocks, with only addresses, keys, hashes and the budget
// filled in. Each block must run in some test. The long form also builds projects for Next and Astro, and has more
// variants.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { createServer, request as forward } from 'node:http';
import { tmpdir } from 'node:os';
import { dirname, extname, join } from 'node:path';
import { after, afterEach, beforeEach, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { launch, long, network, open, startTestServer } from './harness.mjs';

const run = promisify(execFile);
const root = fileURLToPath(new URL('../..', import.meta.url));
const built = join(root, 'build/www');
const npm = join(root, 'www/test/recipes/node_modules');

/** The code blocks of the document, by heading and file name; a block without a file name has its language instead. */
const blocks = /** @type {Map<string, string>} */ (new Map());
for (const section of `\n${await readFile(join(root, 'docs/recipes.md'), 'utf8')}`.split(/^##? /m)) {
  const title = section.slice(0, section.indexOf('\n'));
  for (const [, language, code = ''] of section.matchAll(/^```(\w+)\n([^]*?)^```$/gm)) {
    const [, file] = /^(?:---\n)?\/\/ ([\w/.-]+)/.exec(code) ?? [];
    const name = `${title}: ${file ?? language}`;
    assert.ok(!blocks.has(name), `two blocks ${name}`);
    blocks.set(name, code);
  }
}
/** The blocks that no test has used yet; without those that only the long form uses. */
const unused = new Set(blocks.keys());
if (!long) for (const name of ['Next: app/visit.jsx', 'Astro: src/components/Visit.astro',
  'From Privacy Sandbox or DAP: private-aggregation.js']) unused.delete(name);

/** Defines a test of the long form only. */
const longTest = /** @type {(name: string, body: () => Promise<void>) => unknown} */ (long ? test : () => {});

/** @type {Awaited<ReturnType<typeof startTestServer>>} */
let server;
/** @type {import('playwright-core').Browser} */
let browser;
/** @type {import('playwright-core').BrowserContext} */
let context;
/** @type {Awaited<ReturnType<typeof serve>>} */
let site;
/** @type {string} */
let folder;

beforeEach(async () => {
  site ??= await serve();
  server ??= await startTestServer('-proxy', `${site.url}/stats`);
  browser ??= await launch();
  context = await browser.newContext();
  site.pages.clear();
  site.policy = '';
  site.clears = '';
  await server.take();
});
afterEach(() => context.close());
after(async () => {
  await browser?.close();
  await server?.stop();
  site?.stop();
  if (folder) await rm(folder, { recursive: true, force: true });
});

/** Returns the texts that filled() replaces, with what it puts there. @returns {[string, string][]} */
function blanks(name = 'truthful') {
  const { task = '', owner = '' } = server.tasks[name] ?? {};
  return [['https://relay.example/v1/tasks/6d0c…', task], ['ed25519:qM1…', owner], ['https://relay.example', server.relay],
    ['https://www.shop.example', site.url], ['sha256-HASH', site.integrity],
    ['budget: { epsilon: 10, delta: 1e-5, days: 365 }',
      'budget: { epsilon: 10, delta: 1, days: 365 }, maxDelta: 1, spread: 0']];
}

/** Returns a block with its blanks filled in. @param {string} name @param {string} [task] of the test server */
function filled(name, task) {
  let code = blocks.get(name);
  assert.ok(code, `docs/recipes.md has no block ${name}`);
  unused.delete(name);
  for (const [blank, text] of blanks(task)) code = code.replaceAll(blank, text);
  assert.doesNotMatch(code, /…|\.example|HASH/);
  return code;
}

/** Returns the scripts of an HTML block, without their tags. @param {string} block */
const scripts = (block) => [...filled(block).matchAll(/<script[^>]*>([^]*?)<\/script>/g)].map(([, code]) => code);

const types = /** @type {Record<string, string>} */ ({ '.js': 'text/javascript', '.wasm': 'application/wasm',
  '.html': 'text/html; charset=utf-8', '.css': 'text/css' });

/**
 * Serves `pages`, the SDK below any folder with the name of one of its files, npm packages below /npm/, and the relay
 * below /stats/ as the document's lines for nginx say.
 */
async function serve() {
  const files = new Set(await readdir(built));
  const integrity = JSON.parse(await readFile(join(built, 'integrity.json'), 'utf8'))['doona.global.js'];
  const pages = /** @type {Map<string, string | Buffer>} */ (new Map());
  /** @type {{url: string, policy: string, clears: string, pages: typeof pages, integrity: string, stop: () => void}} */
  const out = { url: '', policy: '', clears: '', pages, integrity, stop: () => listening.close() };
  const listening = createServer(async (request, response) => {
    const { pathname } = new URL(String(request.url), 'http://site');
    const [, , name = ''] = /^\/([\w-]+\/)([\w.-]+)$/.exec(pathname) ?? [];
    try {
      if (pathname.startsWith('/stats/')) return proxy(request, response);
      if (pathname === '/logout') return void response.writeHead(200, { 'Clear-Site-Data': out.clears,
        'Content-Type': 'text/html' }).end('<!doctype html><title>out</title><link rel="icon" href="data:,">');
      const body = pages.get(pathname) ?? (pathname.startsWith('/npm/') ? await readFile(join(npm, pathname.slice(5)))
        : files.has(name) ? await readFile(join(built, name)) : undefined);
      if (body === undefined) return void response.writeHead(404).end();
      response.setHeader('Content-Type', types[extname(pathname)] ?? types['.html'] ?? '');
      if (out.policy) response.setHeader('Content-Security-Policy', out.policy);
      response.end(body);
    } catch {
      response.writeHead(404).end();
    }
  });
  listening.listen(0, '127.0.0.1');
  await once(listening, 'listening');
  const { port } = /** @type {import('node:net').AddressInfo} */ (listening.address());
  out.url = `http://127.0.0.1:${port}`;
  return out;
}

/**
 * Passes a request on as the document's block for nginx says: `location`, `proxy_pass` and `proxy_set_header`.
 * @param {import('node:http').IncomingMessage} request @param {import('node:http').ServerResponse} response
 */
function proxy(request, response) {
  const lines = filled('The relay under your own address: nginx');
  const [, at = '', to = ''] = /^location (\S+) {[^]*?\n\tproxy_pass (\S+);/.exec(lines) ?? [];
  assert.ok(request.url?.startsWith(at), `${request.url} is outside of ${at}`);
  const headers = { ...request.headers };
  delete headers.host; // nginx sends the upstream's name.
  for (const [, name = '', value = ''] of lines.matchAll(/\tproxy_set_header (\S+) (\S+);/g)) {
    if (value === '""') delete headers[name.toLowerCase()];
    else headers[name.toLowerCase()] = value.replace('$remote_addr', String(request.socket.remoteAddress));
  }
  const passed = forward(to + String(request.url).slice(at.length), { method: String(request.method), headers },
    (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(response);
    });
  request.pipe(passed);
}

/** An import map for the bare names that the recipes import, as a bundler would resolve them. */
const imports = `<script type="importmap">${JSON.stringify({ imports: {
  doona: '/doona/doona.js',
  vue: '/npm/vue/dist/vue.runtime.esm-browser.prod.js',
  '@hotwired/turbo': '/npm/@hotwired/turbo/dist/turbo.es2017-esm.js',
} })}</script>`;

/** Puts pages and the two files that all recipes import onto the site. @param {Record<string, string>} pages */
function put(pages) {
  for (const file of ['doona-task.js', 'report.js']) site.pages.set(`/${file}`, filled(`Recipes: ${file}`));
  for (const [path, text] of Object.entries(pages)) site.pages.set(path, text);
}

/** @param {string} head @param {string} [body] */
const html = (head, body = '<p>page</p>') => `<!doctype html><html lang="en"><head><title>page</title>
<link rel="icon" href="data:,">${imports}${head}</head><body>${body}</body></html>`;

const visit = (path = '/') => open(context, site.url + path);

/**
 * Waits for a report, and returns the messages of all that have arrived by then and a little later. It counts equal
 * bytes once, as a relay does: two clients may send the same sealed report.
 */
async function messages() {
  const all = [];
  for (const end = Date.now() + 60_000; all.length === 0 && Date.now() < end;) {
    await new Promise((resolve) => setTimeout(resolve, 50));
    all.push(...(await server.take()));
  }
  await new Promise((resolve) => setTimeout(resolve, 300));
  all.push(...(await server.take()));
  return [...new Map(all.map((sent) => [sent.body, sent.messages])).values()];
}

/** @param {string} value @param {string[]} complaints */
async function arrives(value, complaints) {
  assert.deepEqual(await messages(), [[[value]]], complaints.join('\n'));
  assert.deepEqual(complaints.filter((text) => !/React DevTools/.test(text)), []);
}

/** Fails unless nothing arrives for a while. */
async function nothing() {
  await new Promise((resolve) => setTimeout(resolve, 300));
  assert.deepEqual(await server.take(), []);
}

/** Writes the files of a project below a new folder. @param {Record<string, string>} files */
async function project(files) {
  folder ||= await mkdtemp(join(tmpdir(), 'doona-recipes-'));
  const app = await mkdtemp(join(folder, 'app-'));
  for (const [name, text] of Object.entries(files)) {
    await mkdir(dirname(join(app, name)), { recursive: true });
    await writeFile(join(app, name), text);
  }
  return app;
}

const shared = () => ({ 'doona-task.js': filled('Recipes: doona-task.js'), 'report.js': filled('Recipes: report.js') });

test('React, in StrictMode, which runs effects twice', async () => {
  const app = await project({ ...shared(), 'visit.jsx': filled('React: visit.jsx'), 'main.jsx': `
    import { StrictMode } from 'react';
    import { createRoot } from 'react-dom/client';
    import { Visit } from './visit.jsx';
    createRoot(document.getElementById('root')).render(<StrictMode><Visit value={7} /><Visit value={8} /></StrictMode>);` });
  await run(join(root, 'www/node_modules/.bin/esbuild'), ['--bundle', '--format=esm', '--target=es2022', '--external:doona',
    '--jsx=automatic', '--define:process.env.NODE_ENV="development"', '--outfile=out.js', 'main.jsx'],
  { cwd: app, env: { ...process.env, NODE_PATH: npm } });
  put({ '/main.js': await readFile(join(app, 'out.js'), 'utf8'),
    '/': html('<script type="module" src="/main.js"></script>', '<div id="root"></div>') });
  const { complaints } = await visit();
  await arrives('0007', complaints);
});

test('Vue', async () => {
  put({ '/visit.js': filled('Vue: visit.js'), '/main.js': `
    import { createApp, h } from 'vue';
    import { useVisit } from './visit.js';
    createApp({ setup: () => (useVisit(7), () => h('p', 'shown')) }).mount('#root');`,
  '/': html('<script type="module" src="/main.js"></script>', '<div id="root"></div>') });
  const { page, complaints } = await visit();
  await page.getByText('shown').waitFor();
  await arrives('0007', complaints);
});

test('Turbo: the client stays over navigations, and an epoch has one report', async () => {
  const tag = '<script type="module" src="/turbo.js"></script>';
  put({ '/turbo.js': filled('Turbo: turbo.js'),
    '/': html(`${tag}<meta name="doona" data-value="7">`, '<a href="/second">second</a>'),
    '/second': html(`${tag}<meta name="doona" data-value="8">`, '<a href="/third">third</a>'),
    '/third': html(tag, '<p>nothing to report</p>') });
  const { page, complaints } = await visit();
  await arrives('0007', complaints);
  await page.evaluate('globalThis.stays = true');
  await page.getByText('second').click();
  await page.getByText('third').click();
  await page.getByText('nothing to report').waitFor();
  assert.equal(await page.evaluate('stays'), true, 'the page was loaded anew');
  assert.equal(page.workers().length, 1);
  await nothing();
  assert.deepEqual(complaints, []);
});

test('a tag of a tag manager, also if it runs twice, or as a text without an address', async () => {
  put({ '/': html('') });
  const { page, complaints } = await visit();
  const [tag = ''] = scripts('A tag manager: html');
  for (let i = 0; i < 2; i++) await page.evaluate((code) => document.head.append(Object.assign(
    document.createElement('script'), { text: code })), tag);
  await arrives('002a', complaints);
  await context.close();
  context = await browser.newContext();
  const eager = await visit();
  await eager.page.evaluate(async (code) => {
    const text = await (await fetch('/doona/doona.global.js')).text();
    const { append } = document.head;
    document.head.appendChild = /** @type {any} */ ((/** @type {HTMLScriptElement} */ script) => {
      (0, eval)(text);
      /** @type {any} */ (script).onload();
    });
    append.call(document.head, Object.assign(document.createElement('script'), { text: code }));
  }, tag);
  await arrives('002a', eager.complaints);
});

for (const load of ["import('/doona/doona.global.js')", `new Promise((onload) => document.head.append(Object.assign(
  document.createElement('script'), { type: 'module', src: '/doona/doona.global.js', onload })))`]) {
  (load.startsWith('i') ? longTest : test)(`doona.global.js also defines doona as a module: ${load.slice(0, 6)}`, async () => {
    put({ '/': html('') });
    const { page, complaints } = await visit();
    const options = filled('Recipes: doona-task.js').replace(/^[^]*export default/, '').replace(/;\s*$/, '');
    await page.evaluate(`${load}.then(() => doona.init({ ...${options}, modules: '/doona/' }).report(7))`);
    await arrives('0007', complaints);
  });
}

/** Opens a page with a consent recipe. @param {string} name of its block @param {string} before a script */
async function consents(name, before) {
  put({ '/consent.js': filled('Consent: consent.js'), [`/${name}`]: filled(`Consent: ${name}`), '/main.js': `
    import { doona } from './consent.js';
    globalThis.client = doona;
    doona.report(7);
    await import('./${name}');`,
  '/': html(`<script>${before}</script><script type="module" src="/main.js"></script>`) });
  const opened = await visit();
  await opened.page.waitForFunction(() => 'client' in globalThis);
  return opened;
}

/** @param {import('playwright-core').Page} page @param {string} state */
const reaches = (page, state) => page.waitForFunction((want) =>
  /** @type {any} */ (globalThis).client.status.state === want, state);

const gtag = 'window.dataLayer = window.dataLayer || []; function gtag() { dataLayer.push(arguments); }';

test('Consent Mode: the default waits, an update decides, and a later one decides anew', async () => {
  const { page, complaints } = await consents('consent-mode.js',
    `${gtag} gtag('js', new Date()); gtag('consent', 'default', { ad_storage: 'granted', analytics_storage: 'denied' });`);
  await nothing();
  await reaches(page, 'waiting-for-consent');
  await page.evaluate("gtag('event', 'page_view')");
  await page.evaluate("gtag('consent', 'update', { ad_storage: 'denied' })"); // says nothing about analytics
  await reaches(page, 'waiting-for-consent');
  await page.evaluate("gtag('consent', 'update', { analytics_storage: 'granted' })");
  await arrives('0007', complaints);
  await page.evaluate("gtag('consent', 'update', { analytics_storage: 'denied' })");
  await reaches(page, 'opted-out');
  assert.equal(await page.evaluate('dataLayer.length'), 6, 'Google gets all that it got');
});

test('Consent Mode: a choice before the script is read', async () => {
  const { complaints } = await consents('consent-mode.js',
    `${gtag} gtag('consent', 'default', { analytics_storage: 'denied' });
    gtag('consent', 'update', { analytics_storage: 'granted' });`);
  await arrives('0007', complaints);
});

/** A stub of a consent platform, as TCF 2 describes it: a listener that comes late is told at once how things stand. */
const platform = `const listeners = []; let last;
function __tcfapi(command, version, callback) {
  if (command !== 'addEventListener' || version !== 2) return callback(null, false);
  listeners.push(callback);
  if (last) callback({ ...last, listenerId: listeners.length - 1 }, true);
}
function tell(data) {
  last = { purpose: { consents: {} }, ...data };
  listeners.forEach((callback, listenerId) => callback({ purpose: { consents: {} }, ...data, listenerId }, true));
}`;

test('TCF: a shown banner waits, purposes 1 and 9 decide, and where the GDPR does not apply there is no choice', async () => {
  const { page, complaints } = await consents('tcf.js', platform);
  await page.evaluate("tell({ eventStatus: 'cmpuishown', gdprApplies: true })");
  await nothing();
  await reaches(page, 'waiting-for-consent');
  await page.evaluate("tell({ eventStatus: 'useractioncomplete', gdprApplies: true, purpose: { consents: { 1: true } } })");
  await reaches(page, 'opted-out');
  await page.evaluate(`tell({ eventStatus: 'useractioncomplete', gdprApplies: true,
    purpose: { consents: { 1: true, 9: true } } })`);
  await reaches(page, 'ready');
  await page.evaluate('client.report(8)');
  await arrives('0008', complaints);
  await context.close();
  context = await browser.newContext();
  const abroad = await consents('tcf.js', platform);
  await abroad.page.evaluate("tell({ eventStatus: 'tcloaded', gdprApplies: false })");
  await arrives('0007', abroad.complaints);
});

test('a logout with the document\'s header keeps the ledger; one that clears the storage begins anew', async () => {
  const [, header = ''] = /^Clear-Site-Data: (.*)\n$/.exec(filled('Storage and logout: http')) ?? [];
  put({ '/persist.js': filled('Storage and logout: persist.js'),
    '/main.js': `import { init } from 'doona';
      import { persist } from './persist.js';
      import task from './doona-task.js';
      Object.assign(globalThis, { persist, client: init(task) });
      client.report(7);`,
    '/': html('<script type="module" src="/main.js"></script>') });
  const { page, complaints } = await visit();
  await arrives('0007', complaints);
  assert.equal(typeof (await page.evaluate('persist()')), 'boolean');
  for (const [cleared, again] of /** @type {const} */ ([[header, false], ['"storage"', true]])) {
    site.clears = cleared;
    await page.goto(`${site.url}/logout`);
    await page.goto(`${site.url}/`);
    await reaches(page, 'reported');
    assert.equal((await server.take()).length, again ? 1 : 0, cleared);
  }
  assert.deepEqual(complaints.filter((text) => !text.startsWith('Clear-Site-Data header on ')), []);
});

test('a path of the site that leads to the relay: the page asks its own origin alone', async () => {
  const task = filled('Recipes: doona-task.js', 'first party');
  assert.match(task, /\/stats\/v1\/tasks\//);
  site.policy = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'; img-src data:";
  put({ '/doona-task.js': task.replace('export default', 'globalThis.task ='),
    '/main.js': "doona.init(task).report(7); document.cookie = 'session=1';",
    '/': '<!doctype html><title>page</title><link rel="icon" href="data:,"><script src="/doona/doona.global.js"></script>' +
      '<script src="/doona-task.js"></script><script src="/main.js"></script>' });
  await server.requests();
  const { complaints } = await visit();
  await arrives('0007', complaints);
  const id = String(server.tasks['first party']?.task.split('/').at(-1));
  const asked = (await server.requests()).filter(({ path }) => path.includes(id));
  assert.deepEqual(asked.map(({ method }) => method), ['GET', 'POST']);
  for (const { header } of asked) {
    assert.deepEqual([header['X-Forwarded-For'], header['Cookie'], header['Forwarded']], [['127.0.0.1'], undefined, undefined]);
  }
  const caddy = filled('The relay under your own address: caddy');
  assert.match(caddy, new RegExp(`^handle_path /stats/\\* {[^]*\\treverse_proxy ${server.relay} {`));
});

for (const [name, call] of [['dap.js', 'task.sendMeasurement(7)'],
  ['private-aggregation.js', 'contributeToHistogram({ bucket: 7n, value: 1 })']]) {
  (name === 'dap.js' ? test : longTest)(`a page from another interface keeps its calls: ${name}`, async () => {
    put({ [`/${name}`]: filled(`From Privacy Sandbox or DAP: ${name}`),
      '/main.js': `import { ${String(call).split(/[.(]/)[0]} } from './${name}'; await ${call};`,
      '/': html('<script type="module" src="/main.js"></script>') });
    const { complaints } = await visit();
    await arrives('0007', complaints);
  });
}

test('a policy with a nonce and strict-dynamic: a worker, and no violation', async () => {
  site.policy = policyOf('A strict policy: http');
  put({ '/': `<!doctype html><title>page</title>${filled('A strict policy: html')}` });
  const { page, complaints } = await visit();
  assert.deepEqual(await messages(), [[['002a']]], complaints.join('\n'));
  assert.deepEqual(complaints.filter((text) => !/favicon/.test(text)), []);
  assert.equal(page.workers().length, 1);
});

/** Returns a block's policy. @param {string} block */
function policyOf(block) {
  const [, policy = ''] = /^Content-Security-Policy: (.*)\n$/.exec(filled(block)) ?? [];
  assert.ok(policy, block);
  return policy;
}

for (const [names, copies, workers] of /** @type {[string, string[], number][]} */ ([['doona', ['doona'], 1],
  ['other', ['doona'], 0], ["doona 'allow-duplicates'", ['old', 'new'], 2], ['doona', ['old', 'new'], 1]])) {
  const form = workers === 1 && copies.length === 2 ? longTest : test;
  form(`Trusted Types with the names ${names}: ${copies.length} of the SDK, ${workers} in a worker`, async () => {
    site.policy = policyOf('Trusted Types: http').replace(/trusted-types doona$/, `trusted-types ${names}`);
    put({ '/main.js': `globalThis.clients = [${copies.map((name) => `${name}Doona`)}].map((sdk) =>
        sdk.init(task)); clients.forEach((client) => client.report(7));`,
    '/doona-task.js': filled('Recipes: doona-task.js').replace('export default', 'globalThis.task ='),
    ...Object.fromEntries(copies.map((name) => [`/keep-${name}.js`, `var ${name}Doona = doona;`])),
    '/': `<!doctype html><title>page</title><script src="/doona-task.js"></script>${copies.map((name) =>
      `<script src="/${name}/doona.global.js"></script><script src="/keep-${name}.js"></script>`).join('')}
      <script src="/main.js"></script>` });
    const { page, complaints } = await visit();
    assert.deepEqual(await messages(), [[['0007']]], complaints.join('\n'));
    await page.waitForFunction(() => /** @type {any} */ (globalThis).clients.every((/** @type {any} */ { status }) =>
      status.state === 'reported'));
    assert.equal(page.workers().length, workers);
    const violations = complaints.filter((text) => /trusted-types|require-trusted/.test(text));
    assert.equal(violations.length > 0, workers < copies.length, violations.join('\n'));
  });
}

test('two versions on one page: one report, one charge', async () => {
  const block = filled('Two versions on one page: html');
  put({ '/': `<!doctype html><title>page</title><link rel="icon" href="data:,">${block}` });
  const { page, complaints } = await visit();
  await page.evaluate(`Promise.all([oldDoona, newDoona].map((sdk) => new Promise((onReceipt, onError) => sdk.init({
    task: '${server.tasks['truthful']?.task}', owner: '${server.tasks['truthful']?.owner}', maxDelta: 1, spread: 0,
    budget: { epsilon: 10, delta: 1, days: 365 }, onReceipt, onError }).report(7))))`);
  await arrives('0007', complaints);
  assert.equal(await page.evaluate('oldDoona !== newDoona'), true);
  assert.equal(page.workers().length, 2);
  const lines = await page.evaluate(() => new Promise((resolve) => {
    const opening = indexedDB.open('doona');
    opening.onsuccess = () => {
      const all = opening.result.transaction('lines').objectStore('lines').getAll();
      all.onsuccess = () => resolve(all.result.map(({ runs }) => runs.map((/** @type {any} */ { count }) => count)));
    };
  }));
  assert.deepEqual(lines, [[1]]);
});

/** Installs a project with the SDK's archive, builds it, and puts the built files onto the site. @param {string} app */
async function build(app, /** @type {string[]} */ program, /** @type {string} */ out) {
  const archives = (await readdir(join(root, 'build'))).filter((name) => /^doona-.*\.tgz$/.test(name)).sort();
  assert.equal(archives.length, 2, String(archives)); // the SDK, and the program for this platform
  await run('npm', ['install', '--no-audit', '--no-fund', ...archives.map((name) => join(root, 'build', name))],
    { cwd: app });
  const env = { ...process.env, NEXT_TELEMETRY_DISABLED: '1', ASTRO_TELEMETRY_DISABLED: '1' };
  await run(program[0] ?? '', [...program.slice(1), 'build'], { cwd: app, env });
  for (const name of await readdir(join(app, out), { recursive: true })) {
    if (!extname(name)) continue;
    const body = await readFile(join(app, out, name)).catch(() => ''); // a folder whose name has a dot
    site.pages.set(`/${name}`, body);
    if (/(^|\/)index\.html$/.test(name)) site.pages.set(`/${name.replace(/(^|\/)index\.html$/, '$1')}`, body);
    else if (name.endsWith('.html')) site.pages.set(`/${name.slice(0, -5)}`, body);
  }
}

longTest('from an empty project: Next', async () => {
  const app = await project({
    'package.json': '{"private": true, "dependencies": {"next": "^16.4.6", "react": "^19.3.1", "react-dom": "^19.3.1"}}',
    'next.config.mjs': "export default { output: 'export' };",
    'app/layout.jsx': 'export default ({ children }) => <html lang="en"><body>{children}</body></html>;',
    'app/page.jsx': "import Link from 'next/link';\nimport { Visit } from './visit';\n" +
      'export default () => <><Visit value={7} /><Link href="/second">second</Link></>;',
    'app/second/page.jsx': "import { Visit } from '../visit';\nexport default () => <><Visit value={8} /><p>shown</p></>;",
    'app/visit.jsx': filled('Next: app/visit.jsx'),
    ...Object.fromEntries(Object.entries(shared()).map(([name, text]) => [`app/${name}`, text])),
  });
  await build(app, ['npx', '--no-install', 'next'], 'out');
  const { page, complaints } = await visit();
  await arrives('0007', complaints.filter((text) => !network.test(text)));
  await page.getByText('second').click();
  await page.getByText('shown').waitFor();
  await nothing();
  assert.equal(page.workers().length, 1);
});

longTest('from an empty project: Astro', async () => {
  const page1 = (/** @type {number} */ value, /** @type {string} */ body) => `---
import { ClientRouter } from 'astro:transitions';
import Visit from '../components/Visit.astro';
---
<html lang="en"><head><title>page</title><link rel="icon" href="data:,"><ClientRouter /></head>
<body><Visit value={${value}} />${body}</body></html>`;
  const app = await project({
    'package.json': '{"private": true, "type": "module", "dependencies": {"astro": "^7.3.5"}}',
    'src/pages/index.astro': page1(7, '<a href="/second/">second</a>'),
    'src/pages/second.astro': page1(8, '<p>shown</p>'),
    'src/components/Visit.astro': filled('Astro: src/components/Visit.astro'),
    ...Object.fromEntries(Object.entries(shared()).map(([name, text]) => [`src/${name}`, text])),
  });
  await build(app, ['npx', '--no-install', 'astro'], 'dist');
  const { page, complaints } = await visit();
  await arrives('0007', complaints);
  await page.evaluate('globalThis.stays = true');
  await page.getByText('second').click();
  await page.getByText('shown').waitFor();
  assert.equal(await page.evaluate('stays'), true, 'the page was loaded anew');
  await nothing();
  assert.equal(page.workers().length, 1);
});

longTest('from an empty project: Vite, under Trusted Types, with a worker that Vite has renamed', async () => {
  const app = await project({ ...shared(), 'package.json': '{"private": true, "type": "module"}',
    'index.html': '<!doctype html><title>page</title><script type="module" src="./main.js"></script>',
    'main.js': "import { report } from './report.js';\nreport(7);" });
  await build(app, [process.execPath, join(root, 'www/node_modules/vite/bin/vite.js')], 'dist');
  site.policy = policyOf('Trusted Types: http');
  const { page, complaints } = await visit();
  assert.deepEqual(await messages(), [[['0007']]], complaints.join('\n'));
  assert.equal(page.workers().length, 1);
  assert.equal(complaints.filter((text) => /require-trusted/.test(text)).length, 1, complaints.join('\n'));
});

test('every block of the document has run', () => {
  assert.ok(blocks.size > 15);
  assert.deepEqual([...unused], []);
});
