// Visits of one-time visitors: an event of a task with rare events happens, and the visitor never comes back. So the
// event arrives only if the one leaving delivers it. Each visitor has a site of an own origin, with its own storage.
// Those without an event do come back, and then have one: it must not replace the default that has left.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { extname, join } from 'node:path';
import { after, describe, test } from 'node:test';

import { seeded } from './event-visits.mjs';
import { patience, startTestServer } from './harness.mjs';
import { built, serve, types } from './integrity.mjs';

/** @typedef {import('./engines/browsers.mjs').Browser} Browser */

/** How long a page of the visitor's site, or of another site, takes to answer, in milliseconds. */
const latency = 50;

/** How long after the visitor has left a report may arrive, in milliseconds. */
const grace = 3000;

/** The moment of an event that is reported in the click that leaves the page. */
const inClick = 'in a click';

/** What visitors do on the page of the event. The event may come with the click that leaves the page. */
const moments = { 'as a page loads': ['event', 'read'], 'in a page': ['read', 'event', 'read'],
  [inClick]: ['read', 'event'] };

/** Where they go from there within the site: nowhere, to a next page, or back, perhaps from the back-forward cache. */
const ways = ['', 'next', 'back', 'reload'];

/** How they leave: to another site, by closing the page, or by hiding it, for example on a phone. */
const leaves = /** @type {const} */ (['out', 'close', 'hide']);

/** Whether a click with an event may go this way: to another page or site, and not by a button of the browser. */
const mayClick = (/** @type {string} */ way, /** @type {string} */ leave) =>
  ['next', 'reload'].includes(way) || (way === '' && leave === 'out');

/** All visits. Nobody has published what real visits with events look like, so all of them count alike. */
const visits = Object.entries(moments).flatMap(([moment, acts]) => ways.flatMap((way) => leaves
  .filter((leave) => moment !== inClick || mayClick(way, leave)).map((leave) => (
    { name: [`event ${moment}`, way, leave].filter(Boolean).join(', '), moment, leave,
      acts: ['read', 'next', ...acts, ...(way ? [way, 'read'] : []), leave] }))));

/** The acts that load another document. In a single page, links and the back button do not. */
const loads = { 'multi-page': ['next', 'back', 'reload'], 'single-page': ['reload'] };

/** Splits acts into those of each document. @param {string[]} acts @param {keyof typeof loads} site */
function documentsOf(acts, site) {
  const documents = [/** @type {string[]} */ ([])];
  for (const act of acts) {
    documents.at(-1)?.push(act);
    if (loads[site].includes(act)) documents.push([]);
  }
  return documents;
}

const pause = (/** @type {number} */ milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/**
 * Plays the acts of a document; the pages run this function. A number is a time to read in milliseconds, 0 is until all
 * is sealed.
 */
async function play(/** @type {any} */ init,
  /** @type {{options: object, letter: number | null, away: string, loads: string[], acts: (string | number)[]}} */
  { options, letter, away, loads, acts }) {
  const client = init(options);
  const sleep = (/** @type {number} */ ms) => new Promise((resolve) => setTimeout(resolve, ms));
  const end = () => void fetch('/end', { method: 'POST' });
  /** @type {Record<string, () => unknown>} */
  const does = {
    event: () => letter !== null && client.report(letter),
    late: () => client.report(1),
    next: () => {
      const url = `/${crypto.randomUUID()}`;
      if (loads.includes('next')) location.href = url;
      else history.pushState(null, '', url);
    },
    back: () => history.back(),
    reload: () => location.reload(),
    out: () => (location.href = away),
    close: end,
    hide: end,
  };
  const run = async (/** @type {(string | number)[]} */ acts) => {
    for (const act of acts) {
      if (typeof act === 'string') does[act]?.();
      else await sleep(act || 200); // A page that is back from the back-forward cache asks the store.
      while (act === 0 && !['draft', 'reported'].includes(client.status.state)) await sleep(20);
    }
  };
  addEventListener('pageshow', async ({ persisted }) => {
    if (persisted) await run(await (await fetch('/acts', { method: 'POST' })).json());
  });
  await run(acts);
}

/** The reports that have arrived: for each origin the letters of a count, by their bodies. */
class Arrived {
  /** @type {Map<string, Map<string, string>>} */
  #letters = new Map();

  /** @param {Awaited<ReturnType<typeof startTestServer>>} server */
  constructor(server) {
    this.server = server;
  }

  /** Returns the letters of an origin. @param {string} origin */
  async from(origin) {
    for (const { header, body, messages, error } of await this.server.take()) {
      assert.equal(error, '');
      const at = String(header['Origin']);
      this.#letters.set(at, (this.#letters.get(at) ?? new Map()).set(body, messages.join()));
    }
    return [...this.#letters.get(origin)?.values() ?? []];
  }
}

/**
 * Plays the visit of a visitor in a tab. Returns the visitor's origin, what has arrived since the visitor left, and
 * whether something had arrived before.
 * @param {Browser} browser @param {Arrived} arrived @param {(typeof visits)[number]} visit
 * @param {keyof typeof loads} site @param {() => number} read a time to read @param {boolean} eventful
 */
async function playVisit({ newTab }, arrived, visit, site, read, eventful) {
  const documents = documentsOf(visit.acts, site).map((acts) => acts.map((act) => (act === 'read' ? read() : act)));
  let [early, isBack] = [false, false];
  let leave = () => {};
  const willLeave = () => {
    const gone = new Promise((/** @type {(value?: undefined) => void} */ resolve, reject) => {
      const fail = () => reject(new Error(`${visit.name} hangs before ${JSON.stringify(documents)}`));
      const timer = setTimeout(fail, patience);
      leave = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    gone.catch(() => {}); // It may fail while the page opens.
    return gone;
  };
  const other = await serve(async (_, response) => {
    leave();
    setTimeout(() => response.writeHead(200, { 'Content-Type': 'text/html' }).end('Another site.'), latency);
  });
  const own = await serve(async ({ url = '', method }, response) => {
    if (extname(url)) {
      const body = await readFile(join(built, url));
      return response.writeHead(200, { 'Content-Type': types[extname(url)] ?? '' }).end(body);
    }
    early ||= !isBack && (await arrived.from(own.url)).length > 0;
    if (url === '/end') leave();
    const acts = url === '/end' ? [] : documents.shift() ?? [];
    if (method === 'POST') return response.writeHead(200).end(JSON.stringify(acts));
    const { task, owner } = /** @type {import('./harness.mjs').Offer} */ (arrived.server.tasks['events']);
    const options = { task, owner, budget: { epsilon: 10, delta: 1e-5, days: 365 } };
    const given = JSON.stringify({ options, letter: eventful ? 1 : null, loads: loads[site], acts,
      away: other.url.replace('127.0.0.1', 'localhost') });
    return setTimeout(() => response.writeHead(200, { 'Content-Type': 'text/html', 'Cache-Control': 'no-cache' })
      .end(`<!doctype html><link rel="icon" href="data:,"><p>A page.<script type="module">
        import { init } from '/doona.js';
        (${play})(init, ${given});</script>`), latency);
  });
  try {
    const { open, hide, close, another } = await newTab();
    const gone = willLeave();
    await open(own.url);
    await gone;
    if (visit.leave !== 'out') await { hide, close }[visit.leave]();
    let letters = await arrived.from(own.url);
    for (const end = Date.now() + grace; letters.length === 0 && Date.now() < end; await pause(50)) {
      letters = await arrived.from(own.url);
    }
    if (!eventful && letters.length > 0) {
      isBack = true;
      documents.splice(0, Infinity, [read(), 'late', read(), 'out']);
      const tab = await another();
      const goneAgain = willLeave();
      await tab.open(own.url);
      await goneAgain;
      await tab.close();
    }
    if (visit.leave !== 'close') await close();
    return { name: visit.name, eventful, origin: own.url, early, letters };
  } finally {
    own.stop();
    other.stop();
  }
}

/**
 * Defines a test for each kind of site: at least 90 % of the events arrive. Every third visitor has no event and sends
 * the default. Nothing arrives before a visitor has left, and nobody sends two reports, also not after coming back.
 * @param {string} engine @param {() => Promise<Browser>} start
 * @param {{every?: number, most?: number, concurrency?: number}} [how] every: plays every nth visit; most: the longest
 * time to read, in milliseconds, 0 to go on as soon as all is sealed, and without clicks that leave the page
 */
export function testVisitors(engine, start, { every = 1, most = 2000, concurrency = 4 } = {}) {
  describe(`one-time visitors in ${engine}`, () => {
    /** @type {Awaited<ReturnType<typeof startTestServer>> | undefined} */
    let server;
    /** @type {Browser | undefined} */
    let browser;
    after(async () => {
      await browser?.stop();
      await server?.stop();
    });
    for (const site of /** @type {(keyof typeof loads)[]} */ (Object.keys(loads))) {
      test(`${site}: at least 90 % of the events arrive`, async (t) => {
        server ??= await startTestServer();
        browser ??= await start();
        const [arrived, opened, random] = [new Arrived(server), browser, seeded(46)];
        const read = () => Math.ceil(most * (0.25 + 0.75 * random()));
        const some = visits.filter(({ moment }, i) => i % every === 0 && (most > 0 || moment !== inClick));
        const waiting = some.flatMap((visit, i) => [true, ...(i % 3 ? [] : [false])].map((eventful) => () =>
          playVisit(opened, arrived, visit, site, read, eventful)));
        /** @type {Awaited<ReturnType<typeof playVisit>>[]} */
        const played = [];
        await Promise.all(Array.from({ length: concurrency }, async () => {
          for (let next = waiting.shift(); next; next = waiting.shift()) played.push(await next());
        }));
        for (const { name, origin } of played) {
          assert.ok((await arrived.from(origin)).length <= 1, `${name}: two reports`);
        }
        const has = (/** @type {boolean} */ wanted) => played.filter(({ eventful }) => eventful === wanted);
        for (const [eventful, letter] of /** @type {const} */ ([[true, '01'], [false, '00']])) {
          const lost = has(eventful).filter(({ letters }) => letters.join() !== letter);
          t.diagnostic(`${engine}, ${site}: ${has(eventful).length - lost.length} of ${has(eventful).length} ` +
            `${eventful ? 'events' : 'defaults'} arrive; not: ` +
            (lost.map(({ name, letters }) => `${name}: ${letters.join() || 'nothing'}`).join('; ') || 'none'));
          assert.ok(lost.length <= 0.1 * has(eventful).length);
        }
        assert.deepEqual(played.filter(({ early }) => early).map(({ name }) => name), [], 'reports before the end');
      });
    }
  });
}
