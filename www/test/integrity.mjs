// A site and a CDN that serve the built SDK with changed files, for the tests of integrity in all browsers.
import { once } from 'node:events';
import { readFile, readdir } from 'node:fs/promises';
import { createServer } from 'node:http';
import { extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** @typedef {import('node:http').IncomingMessage} Request */
/** @typedef {import('node:http').ServerResponse} Response */

export const built = fileURLToPath(new URL('../../build/www', import.meta.url));
export const types = /** @type {Record<string, string>} */ ({ '.js': 'text/javascript', '.wasm': 'application/wasm' });

/** Whether pages load a file of the package: neither source maps nor the module for CommonJS. @param {string} name */
export function isLoaded(name) {
  return name.startsWith('doona') && !/\.(map|cjs)$/.test(name);
}

// The page's first script checks all other files. Only integrity in its script tag checks the first script itself.
const first = ['doona.js', 'doona.global.js', 'doona-set.js'];

/** The files that the SDK checks before they run. */
export const checkedFiles = (await readdir(built)).filter((name) => isLoaded(name) && !first.includes(name));

/**
 * Where the SDK comes from, as `from` in Visit: on the site with `modules` on the CDN, or in a script tag from the CDN,
 * or all on the site.
 */
export const sources = /** @type {const} */ ({
  site: "the page's origin", modules: 'the option modules', tag: "the script tag's origin",
});

/** Where a file can come from: sets have no script tag. @param {string} file */
export const sourcesOf = (file) => /** @type {[keyof typeof sources, string][]} */ (Object.entries(sources))
  .filter(([from]) => from !== 'tag' || !/-set-/.test(file));

/**
 * A visit: where the SDK comes from; which directive of the page's policy admits blob: addresses; whether the page
 * calls explain() first; whether no worker may run.
 * @typedef {{from?: keyof typeof sources, blob?: 'worker-src' | 'script-src' | 'none', explains?: boolean,
 *   inPlace?: boolean}} Visit
 */

/**
 * Shows an address in a browser, and calls a function in the page. Resolves to its result.
 * @typedef {(url: string, work: (given: any) => Promise<any>, given: object) => Promise<any>} Browse
 */

/** The value of the page's worker-src, by `blob`. */
const workers = { 'worker-src': 'blob:', 'script-src': "'none'", none: "'none'", site: "'self'" };

/** Starts the site and the CDN. @param {Awaited<ReturnType<typeof import('./harness.mjs').startTestServer>>} server */
export async function startSites(server) {
  /** Which files are changed (`file`), and how often a changed file has run (`ran`). */
  const changed = { file: /^$/, ran: 0 };
  /** The policy and the script tag of the page. */
  const page = { policy: '', script: '' };

  /**
   * Plays a CDN: serves the built files to pages of any origin. A changed script reports that it runs (`/ran`) and then
   * works as built.
   * @param {Request} request @param {Response} response
   */
  const fromCDN = async ({ url = '' }, response) => {
    response.setHeader('Access-Control-Allow-Origin', '*');
    if (url === '/ran') return response.end(String(changed.ran++));
    return serveFile(url, response);
  };

  /**
   * Serves the page and the SDK, and answers as the site's backend.
   * @param {Request} request @param {Response} response
   */
  const fromSite = async (request, response) => {
    const { url = '' } = request;
    if (url.startsWith('/test/')) {
      const parts = [];
      for await (const part of request) parts.push(part);
      const answer = await fetch(server.site + url, { method: 'POST', body: Buffer.concat(parts) });
      const body = Buffer.from(await answer.arrayBuffer());
      return response.writeHead(answer.status).end(body);
    }
    if (url !== '/') return serveFile(url, response);
    return response.writeHead(200, { 'Content-Type': 'text/html', 'Content-Security-Policy': page.policy })
      .end(`<!doctype html>${page.script}`);
  };

  /**
   * Serves a built file, with changes if `changed` names it.
   * @param {string} url @param {Response} response @returns {Promise<unknown>}
   */
  const serveFile = async (url, response) => {
    const body = await readFile(join(built, url), 'latin1');
    const more = changed.file.test(url) ? `;fetch(${JSON.stringify(`${cdn.url}/ran`)}, { mode: 'no-cors' });` : '';
    return response.writeHead(200, { 'Content-Type': types[extname(url)] ?? '' }).end(body + more, 'latin1');
  };

  const [cdn, site] = await Promise.all([serve(fromCDN), serve(fromSite)]);

  /**
   * Loads the SDK in a page and reports 1. Resolves to the outcome. For the name "set", connects to a set instead.
   * @param {Browse} browse @param {string} name of the task @param {Visit} [how]
   * @returns {Promise<{code: string, message: string, ran: number}>}
   */
  const report = async (browse, name, how = {}) => {
    const { from = 'modules', blob = 'worker-src', explains = false, inPlace = false } = how;
    const tag = from === 'tag';
    const integrity = JSON.parse(await readFile(join(built, 'integrity.json'), 'utf8'))['doona.global.js'];
    const { task, owner } = server.tasks[name] ?? { task: '', owner: '' };
    const set = name === 'set' ? server.sets['set'] : undefined;
    const worker = workers[inPlace ? 'none' : from === 'site' ? 'site' : blob];
    page.policy = `default-src 'self'; connect-src *; worker-src ${worker};
      script-src 'self' 'wasm-unsafe-eval' ${tag ? cdn.url : ''} ${blob === 'script-src' ? 'blob:' : ''}`
      .replace('\n', '');
    page.script = tag ? `<script src="${cdn.url}/doona.global.js" integrity="${integrity}" crossorigin></script>` : '';
    const result = await browse(site.url, async ({ offer, set, tag, modules, explains }) => {
      const file = '/doona.js';
      /** @type {import('../sdk/options.js').TokenSource} */
      const tokens = (body, { uri }) => fetch(`/test/token?uri=${encodeURIComponent(uri)}`, { method: 'POST', body });
      try {
        if (set) {
          const script = '/doona-set.js';
          /** @type {typeof import('../sdk/set-index.js')} */
          const { connectSet } = await import(script);
          await connectSet({ ...set, ...(modules && { modules }), when: 'now', spread: 0,
            defaults: { entry: 0, vitals: 0, countries: 0 }, budget: { epsilon: 100, delta: .01, days: 365 } });
          return { code: 'reported', message: '' };
        }
        /** @type {typeof import('../sdk/index.js')} */
        const { connect } = tag ? /** @type {any} */ (globalThis).doona : await import(file);
        const doona = await connect({ ...offer, ...(modules && { modules }), maxEpsilon: 10, maxDelta: 1,
          maxTotalEpsilon: 10, spread: 0, when: 'now', tokens });
        if (explains) await doona.explain();
        await doona.report(1);
        return { code: 'reported', message: '' };
      } catch (error) {
        const { code, message } = /** @type {any} */ (error);
        return { code, message };
      }
    }, { offer: { task, owner }, set: set && { url: set.url, owner: set.owner }, tag, explains,
      modules: from === 'modules' ? `${cdn.url}/` : null });
    return { ...result, ran: changed.ran };
  };

  /**
   * Reports with a changed file, to a task for which the SDK loads it. @param {Browse} browse
   * @param {string} file @param {keyof typeof sources} from
   */
  const reportChanged = async (browse, file, from) => {
    await fetch(`${server.site}/test/login`, { method: 'POST', body: crypto.randomUUID() });
    changed.file = new RegExp(`${file}$`);
    // doona.wasm is loaded only for protocols that doona-small.wasm lacks.
    const task = /-set-/.test(file) ? 'set' : /full/.test(file) ? 'post-quantum' : /tokens/.test(file) ? 'tokens'
      : /small|worker|words|in-place/.test(file) ? 'truthful' : 'shares';
    return report(browse, task, { from, explains: /words/.test(file), inPlace: /in-place/.test(file) });
  };

  return { changed, report, reportChanged, stop: () => (cdn.stop(), site.stop()) };
}

/** Starts a server of an own origin. @param {(request: Request, response: Response) => Promise<unknown>} answer */
export async function serve(answer) {
  const listening = createServer((request, response) => {
    answer(request, response).catch(() => response.writeHead(404).end());
  });
  listening.listen(0, '127.0.0.1');
  await once(listening, 'listening');
  const { port } = /** @type {import('node:net').AddressInfo} */ (listening.address());
  return { url: `http://127.0.0.1:${port}`, stop: () => listening.close() };
}
