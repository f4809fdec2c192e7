// Lives a year with a set in Chromium, under a fake clock: days at random, tabs, crashes, lost notes and lost answers.
// What the relay receives must keep every limit of the tables, and cost at most what the ledger charges.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { seeded } from './event-visits.mjs';
import { closeTab, hide, launch, long, open, startTestServer } from './harness.mjs';

/** @typedef {import('playwright-core').Page} Page */
/** @typedef {import('./harness.mjs').Submission} Submission */
/** By table. @typedef {Record<string, number>} Values @typedef {Record<string, string>} Messages */

const dayLength = 86_400_000;

/** At most `most` in any `window` epochs. @typedef {{most: number, window: number}} Limit */
/**
 * A table of the set "year" of www/testserver: its number of cells, its limits, and what a visit reports by default.
 * `at` returns the number and the first day of the epoch that contains a day; undefined if the table is not open.
 * @typedef {{name: string, cells: number, usual: number, cap?: Limit, events?: Limit,
 *   at: (day: number) => readonly [epoch: number, begin: number] | undefined}} Table
 */

/** The day of the year on which a month begins. @param {number} month */
const monthBegin = (month) => (Date.UTC(2026, month) - Date.UTC(2026, 0)) / dayLength;

/** @type {readonly Table[]} */
const tables = [
  { name: 'entry', cells: 20, usual: 0, cap: { most: 4, window: 10 }, at: (day) => [day, day] },
  { name: 'goals', cells: 5, usual: 3, events: { most: 2, window: 12 }, at: (day) => [day, day] },
  { name: 'vitals', cells: 6, usual: 0, at: (day) => {
    const week = Math.floor((day - 4) / 7);
    return week < 0 || week >= 51 ? undefined : [week, 4 + 7 * week];
  } },
  { name: 'countries', cells: 30, usual: 0, at: (day) => {
    const month = new Date(Date.UTC(2026, 0) + day * dayLength).getUTCMonth();
    return [month, monthBegin(month)];
  } },
];
const totalDays = 30;

/** The message of a value. @param {number} value */
const messageOf = (value) => value.toString(16).padStart(2, '0');

/** How the answer to a submission fails: it never comes, it is an attack, it is "later", or it is final. */
const failures = ['stall', 'hostile-name', 'overloaded', 'malformed'];

/**
 * A tab: its time, what it reports, whether it goes on to another page of the site, and how it ends.
 * @typedef {object} Tab
 * @property {number} day of its clock
 * @property {number} time in milliseconds since the day began
 * @property {boolean} inPlace whether it has no worker
 * @property {boolean} loses whether its store never learns that the submission has left
 * @property {Values[][]} pages what each of its pages reports
 * @property {'hides' | 'leaves' | 'closes' | 'crashes' | 'crashes while it leaves' | 'is left a day later'} end
 * @property {number | undefined} wait after how many milliseconds it ends, whatever it does then
 * @property {number} lingers for how many milliseconds a hidden page lives on
 */
/** Tabs open at once, and how the relay's next answers fail. @typedef {{tabs: Tab[], fails: string[]}} Round */

/** Draws the rounds of each day. @param {number} seed @param {number} days @returns {Round[][]} */
function plan(seed, days) {
  const random = seeded(seed);
  const chance = (/** @type {number} */ p) => random() < p;
  const below = (/** @type {number} */ n) => Math.floor(n * random());
  const values = () => Object.fromEntries(tables.filter(() => chance(.5))
    .map(({ name, cells }) => [name, below(cells)]));
  const page = () => Array.from({ length: below(4) }, values);
  const tab = (/** @type {number} */ day) => /** @type {Tab} */ ({
    day: chance(.1) ? Math.max(0, day - 1 - below(6)) : day, // The clock may be turned back.
    time: chance(.1) ? dayLength - 60_000 * (1 + below(25)) : 3_600_000 * below(23),
    inPlace: chance(.2), loses: chance(.25), pages: chance(.2) ? [page(), page()] : [page()],
    end: ['hides', 'leaves', 'closes', 'crashes', 'crashes while it leaves', 'is left a day later'][
      chance(.6) ? below(3) : below(6)],
    wait: chance(.3) ? below(400) : undefined, lingers: chance(.5) ? 200 : 0,
  });
  const round = (/** @type {number} */ day) => ({ tabs: Array.from({ length: chance(.45) ? 2 : 1 }, () => tab(day)),
    fails: chance(.15) ? [String(failures[below(failures.length)])] : [] });
  return Array.from({ length: days }, (_, day) =>
    (chance(.25) ? [] : Array.from({ length: chance(.3) ? 2 : 1 }, () => round(day))));
}

/**
 * Prepares a page, which runs this: its clock, and how it notes that its submission has left. With `loses` it never
 * does: its worker gets no such call, as if the page had ended before. In place, the transaction is aborted.
 * @param {{now: number, inPlace: boolean, loses: boolean}} given
 */
function prepare({ now, inPlace, loses }) {
  const { now: real } = Date;
  const by = now - real();
  Date.now = () => real() + by;
  if (loses && !inPlace) {
    const { postMessage } = Worker.prototype;
    Worker.prototype.postMessage = function (/** @type {any[]} */ ...call) {
      if (call[0].method !== 'left' && call[0].method !== 'closed') Reflect.apply(postMessage, this, call);
    };
  }
  if (inPlace) Object.assign(globalThis, { Worker: undefined });
  if (!loses || !inPlace) return;
  const { put } = IDBObjectStore.prototype;
  IDBObjectStore.prototype.put = function (record, ...more) {
    const request = Reflect.apply(put, this, [record, ...more]);
    if ('day' in record && !record.tags) this.transaction.abort();
    return request;
  };
}

/**
 * Connects a page to the set, as the global `set`. Returns its state or the error's code, and the tables that are due.
 * @param {any} options @returns {Promise<{said: string, due: Readonly<Record<string, boolean>>}>}
 */
async function connect(options) {
  const file = '/doona-set.js';
  /** @type {typeof import('../sdk/set-index.js')} */
  const { connectSet } = await import(file);
  try {
    const set = await connectSet(options);
    Object.assign(globalThis, { set });
    return { said: set.status.state, due: set.status.due };
  } catch (error) {
    return { said: /** @type {any} */ (error).code ?? String(error), due: {} };
  }
}

/** Reports values. Returns what became of them, by table, or the error's code. @param {Values} values */
const report = (values) => /** @type {any} */ (globalThis).set.report(values).then(
  (/** @type {any} */ receipt) => receipt.tables, (/** @type {any} */ error) => ({ error: error.code }));

const sleep = (/** @type {number} */ milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** The life of a browser: what its tabs were given and told, and what left. */
class Life {
  /** What tabs gave, by day and table. @type {Map<number, Map<string, Set<number>>>} */
  given = new Map();
  /** What arrived. @type {Submission[]} */
  received = [];
  /** Of each day, the bodies of the first round in which something arrived. @type {Map<number, Set<string>>} */
  first = new Map();
  /** How often each outcome of a value, or state of a connection, was told. @type {Record<string, number>} */
  told = {};
  /** What a day's submission must have, if its only tab ended without a fault. @type {Map<number, Messages>} */
  expected = new Map();

  /**
   * @param {Awaited<ReturnType<typeof startTestServer>>} server
   * @param {import('playwright-core').BrowserContext} context
   */
  constructor(server, context) {
    this.server = server;
    this.context = context;
    this.set = /** @type {import('./harness.mjs').SetOffer} */ (server.sets['year']);
  }

  /** Takes what has arrived. Other bytes than those of the first round may not follow. */
  async take() {
    const before = new Set(this.first.keys());
    for (const submission of await this.server.take()) {
      const { epoch, body } = submission;
      if (!this.first.has(epoch)) this.first.set(epoch, new Set());
      const bodies = /** @type {Set<string>} */ (this.first.get(epoch));
      assert.ok(!before.has(epoch) || bodies.has(body), `day ${epoch}: other bytes follow`);
      bodies.add(body);
      this.received.push(submission);
    }
  }

  /** @param {Round[]} rounds */
  async liveDay(rounds) {
    for (const [i, { tabs, fails }] of rounds.entries()) {
      if (i > 0) {
        await sleep(1000); // What the first round has sent arrives.
        await this.take();
      }
      if (fails.length > 0) await this.server.fail(...fails);
      const lived = await Promise.all(tabs.map((tab) => this.liveTab(tab)));
      const [tab] = tabs;
      const isCalm = rounds.length === 1 && tabs.length === 1 && tab?.wait === undefined &&
        ['hides', 'leaves', 'closes'].includes(String(tab?.end));
      if (isCalm && tab && lived[0]?.began) this.expected.set(tab.day, lived[0].values);
    }
  }

  /** Returns whether a tab found a draft, and what must be in it when the tab ends. @param {Tab} tab */
  async liveTab(tab) {
    const { page } = await open(this.context, `${this.server.site}/blank.html`);
    let isOver = false;
    /** Another tab that crashes may take this one with it. @type {Promise<void>} */
    const crashed = new Promise((resolve) => page.on('crash', () => {
      isOver = true;
      resolve();
    }));
    const state = { began: false, values: /** @type {Messages} */ ({}) };
    const work = this.work(page, tab, state).catch((/** @type {unknown} */ error) => {
      if (!isOver) throw error;
    });
    const isLate = tab.end === 'is left a day later'; // A value would then wait for the next day.
    await (tab.wait === undefined || isLate ? work : Promise.race([work, sleep(tab.wait)]));
    if (!isOver) {
      isOver = true;
      await this.end(page, tab, crashed);
    }
    await page.close();
    await work;
    return state;
  }

  /** @param {Page} page @param {Tab} tab @param {{began: boolean, values: Messages}} state */
  async work(page, { day, time, inPlace, loses, pages }, state) {
    const { own, owner, start } = this.set;
    const now = 1000 * start + day * dayLength + time;
    const defaults = { entry: 0, vitals: 0, countries: 0 };
    for (const [i, reports] of pages.entries()) {
      if (i > 0) {
        const loaded = page.waitForEvent('load');
        await page.evaluate((name) => (location.href = `/blank.html?${name}`), String(Math.random()));
        await loaded;
      }
      await page.evaluate(prepare, { now, inPlace, loses });
      const budget = { epsilon: 100, delta: .01, days: totalDays };
      const { said, due } = await page.evaluate(connect, { url: own, owner, defaults, budget, when: 'now', spread: 0 });
      this.told[said] = (this.told[said] ?? 0) + 1;
      const isLost = loses && said === 'storage-unavailable'; // It could not store that an earlier page had left.
      if (said === 'cap-reached' || isLost) return;
      assert.match(said, /^(draft|sending|waiting|reported|dropped)$/);
      state.began = said === 'draft';
      for (const { name, usual } of i === 0 ? tables : []) state.values[name] = due[name] ? messageOf(usual) : '';
      for (const values of reports) {
        for (const [name, value] of Object.entries(values)) this.give(day, name, value);
        const outcomes = await page.evaluate(report, values);
        for (const [name, outcome] of Object.entries(outcomes)) {
          this.told[outcome] = (this.told[outcome] ?? 0) + 1;
          const usual = Number(tables.find((table) => table.name === name)?.usual);
          if (outcome === 'kept') state.values[name] = messageOf(Number(values[name]));
          if (outcome === 'allowance') state.values[name] = messageOf(usual);
        }
      }
    }
  }

  /** @param {number} day @param {string} table @param {number} value */
  give(day, table, value) {
    if (!this.given.has(day)) this.given.set(day, new Map(tables.map(({ name, usual }) => [name, new Set([usual])])));
    this.given.get(day)?.get(table)?.add(value);
  }

  /** Ends a page. @param {Page} page @param {Tab} tab @param {Promise<void>} crashed */
  async end(page, { end, lingers }, crashed) {
    if (end === 'is left a day later') {
      await page.evaluate((by) => {
        const { now } = Date;
        Date.now = () => now() + by;
      }, dayLength);
    }
    if (end === 'hides' || end === 'is left a day later') {
      await page.evaluate(hide);
      await sleep(lingers);
    } else if (end === 'leaves') await page.goto('about:blank').catch(() => {}); // It may be going on.
    else if (end === 'closes') await closeTab(page);
    else {
      if (end === 'crashes while it leaves') void page.evaluate(hide).catch(() => {});
      do void this.context.newCDPSession(page).then((client) => client.send('Page.crash')).catch(() => {});
      while (await Promise.race([crashed, sleep(500).then(() => true)])); // A page that is going on forgets it.
    }
  }
}

/** Returns the most of some numbers that lie in a window. @param {number[]} all @param {number} window */
const mostIn = (all, window) =>
  Math.max(0, ...all.map((from) => all.filter((at) => at >= from && at < from + window).length));

/** Whether a message has a value. @param {string | undefined} message */
const hasValue = (message) => message !== '';

/** Checks the submissions of one day. @param {Life} life @param {number} day @param {Submission[]} all */
async function checkDay(life, day, all) {
  const [first] = /** @type {[Submission]} */ (all);
  for (const { tags, messages } of all) {
    assert.deepEqual(tags, first.tags, `day ${day}: one set of tags`);
    for (const [i, { name, usual }] of tables.entries()) {
      const [[message] = [], [before] = []] = [messages[i], first.messages[i]];
      assert.equal(hasValue(message), hasValue(before), `day ${day}: whether ${name} is reported`);
      const given = life.given.get(day)?.get(name) ?? new Set([usual]);
      if (!hasValue(message)) continue;
      assert.ok([...given].map(messageOf).includes(String(message)), `day ${day}: ${name} ${message}`);
    }
  }
  const bodies = [...new Set(all.map(({ body }) => body))];
  /** @type {string[]} */
  const ciphertexts = [];
  for (const body of bodies.length > 1 ? bodies : []) {
    const url = `${life.server.site}/test/openset/year/${day}`;
    const opened = await (await fetch(url, { method: 'POST', body: Buffer.from(body, 'hex') })).json();
    ciphertexts.push(.../** @type {any} */ (opened).ciphertexts);
  }
  assert.equal(new Set(ciphertexts).size, ciphertexts.length, `day ${day}: ciphertexts in common`);
  return bodies.length;
}

/** Checks all that has arrived. @param {Life} life */
async function check(life) {
  /** @type {Map<number, Submission[]>} */
  const days = new Map();
  for (const one of life.received) days.set(one.epoch, [...days.get(one.epoch) ?? [], one]);
  assert.ok(life.received.every(({ error }) => error === ''));
  assert.equal(new Set(life.received.map(({ body }) => body.length)).size, 1, 'one size');
  let several = 0;
  for (const [day, all] of days) several += Number((await checkDay(life, day, all)) > 1);
  const tags = [...days.values()].flatMap(([one]) => one?.tags ?? []);
  assert.equal(tags.length, days.size * (1 + 2 * tables.length));
  assert.equal(new Set(tags).size, tags.length, 'no tag occurs twice');

  /** @type {Record<string, number>} */
  const counts = { submissions: life.received.length, days: days.size, several };
  for (const [i, { name, usual, cap, events, at }] of tables.entries()) {
    const reported = [...days].filter(([, [one]]) => hasValue(one?.messages[i]?.[0])).map(([day]) => day);
    const epochs = reported.map((day) => {
      const epoch = at(day);
      assert.ok(epoch, `${name} is not open on day ${day}`);
      return epoch;
    });
    assert.equal(new Set(epochs.map(([epoch]) => epoch)).size, epochs.length, `${name}: an epoch twice`);
    if (cap) assert.ok(mostIn(epochs.map(([epoch]) => epoch), cap.window) <= cap.most, `${name}: the cap`);
    const rare = [...days].filter(([, all]) => all.some(({ messages }) =>
      hasValue(messages[i]?.[0]) && messages[i]?.[0] !== messageOf(usual))).map(([day]) => day);
    if (events) assert.ok(mostIn(rare, events.window) <= events.most, `${name}: the allowance`);
    // Of a table with events only those cost, each twice: on its day here, and on its day if the answers were others.
    const copies = events ? 2 * mostIn(rare, totalDays) : mostIn(epochs.map(([, begin]) => begin), totalDays);
    assert.ok(copies <= Number(life.set.copies[i]), `${name}: ${copies} copies of ${life.set.copies[i]}`);
    counts[name] = reported.length;
    if (events) counts['events'] = rare.length;
    if (cap) assert.equal(mostIn(epochs.map(([epoch]) => epoch), cap.window), cap.most, `${name}: the cap is reached`);
    if (events) assert.equal(mostIn(rare, events.window), events.most, `${name}: the allowance is used up`);
  }
  for (const [day, values] of life.expected) {
    const [one] = days.get(day) ?? assert.fail(`day ${day} has no submission`);
    assert.deepEqual(one?.messages, tables.map(({ name }) => [values[name]]), `day ${day}`);
  }
  return { ...counts, calm: life.expected.size, ...life.told };
}

test('a year of days at random: what leaves keeps all limits and costs at most the claim', async () => {
  const [days, seed] = long ? [365, Date.now()] : [60, 46];
  const [server, browser] = [await startTestServer('-set', 'year'), await launch()];
  try {
    const life = new Life(server, await browser.newContext());
    for (const rounds of plan(seed, days)) await life.liveDay(rounds);
    await sleep(1000);
    await life.take();
    const counts = await check(life);
    console.log(`seed ${seed}, ${days} days: ${JSON.stringify(counts)}`);
  } catch (cause) {
    throw new Error(`seed ${seed}`, { cause });
  } finally {
    await browser.close();
    await server.stop();
  }
});
