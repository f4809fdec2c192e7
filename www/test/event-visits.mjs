// Visits to a page with a task with events, for events.test.mjs. It runs in the page. There the clock stands still, and
// long timers wait until it is moved, so that a page can live through days at once. Each visitor has an own store.

/** @typedef {import('../sdk/doona.js').Doona} Doona */
/** @typedef {import('../sdk/store.js').Store} Store */
/** @typedef {import('../sdk/store.js').Report} Report */
/** What arrived. @typedef {{path: string, epoch: number, letter: number, body: string, tag: string}} Letter */
/** @typedef {{day: number, event: boolean}} DayVisit */
/** @typedef {{connect: Function, memoryStore: () => Store}} SDK */

export const dayLength = 86_400_000;

/** The shortest timer that waits for the fake clock, in milliseconds: shorter ones limit the wait for an answer. */
const longTimer = 300_000;

/** Lets the page's clock stand still. Returns a function that sets it and ends the long timers. */
export function stopClock() {
  let now = Date.now();
  /** @type {Map<number, () => void>} */
  const waiting = new Map();
  const { setTimeout: set, clearTimeout: clear } = globalThis;
  let last = 1e9; // Larger than the browser's own numbers.
  Date.now = () => now;
  globalThis.setTimeout = /** @type {any} */ ((/** @type {() => void} */ end, /** @type {number} */ wait) => {
    if (!(wait >= longTimer)) return set(end, wait);
    waiting.set(++last, end);
    return last;
  });
  globalThis.clearTimeout = /** @type {any} */ ((/** @type {any} */ timer) => waiting.delete(timer) || clear(timer));
  return (/** @type {number} */ time) => {
    now = time;
    const ended = [...waiting.values()];
    waiting.clear();
    for (const end of ended) end();
  };
}

/** Waits. @param {number} milliseconds @returns {Promise<void>} */
export const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Waits until `holds` returns true. @param {() => unknown} holds @param {() => string} what */
export async function until(holds, what) {
  for (const end = performance.now() + 60_000; !(await holds()); await sleep(2)) {
    if (performance.now() > end) throw new Error(`waited for ${what()}`);
  }
}

/** Dispatches what a browser says when a page is hidden or shown. @param {'hidden' | 'visible'} state */
export function become(state) {
  Object.defineProperty(document, 'visibilityState', { value: state, configurable: true });
  document.dispatchEvent(new Event('visibilitychange', { bubbles: true }));
}

/** The requests with a report that are not answered yet. */
let inFlight = 0;

/** Counts the requests with reports from now on. */
export function watchRequests() {
  const { fetch } = globalThis;
  globalThis.fetch = async (input, init) => {
    if (!String(input).endsWith('/reports')) return fetch(input, init);
    inFlight++;
    try {
      return await fetch(input, init);
    } finally {
      inFlight--;
    }
  };
}

/** Waits until no request with a report is or gets in flight. */
export async function quiet() {
  let still = 0;
  await until(() => (still = inFlight === 0 ? still + 1 : 0) > 5, () => `${inFlight} requests`);
}

/** Lets every page of the document be left. */
export async function leave() {
  become('hidden');
  await sleep(0);
  await quiet();
  become('visible');
}

/** Returns bytes in hexadecimal. @param {Uint8Array} bytes */
const toHex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');

/** Posts to the test server. @param {string} name @param {unknown} [body] */
async function control(name, body = null) {
  const response = await fetch(`/test/${name}`, { method: 'POST', body: JSON.stringify(body) });
  if (!response.ok) throw new Error(`${name}: ${await response.text()}`);
  return response.json();
}

/** Returns what arrived since the last call. @returns {Promise<Letter[]>} */
export const letters = () => control('letters');

/**
 * Returns what the Go client's ledger lets visitors send, by visitor and visit.
 * @param {string} path @param {DayVisit[][]} visitors @returns {Promise<('event' | 'default' | 'none')[][]>}
 */
export const decide = (path, visitors) => control('decide', { path, visitors });

/** What all visitors of a page share. */
export class Site {
  /**
   * @param {SDK} sdk @param {{task: string, owner: string}} offer
   * @param {number} event the value of an event @param {number} usual the default
   */
  constructor(sdk, offer, event, usual) {
    this.sdk = sdk;
    this.options = { ...offer, maxEpsilon: 100, maxDelta: 1, maxTotalEpsilon: 100, spread: 0, when: 'now' };
    this.event = event;
    this.usual = usual;
    this.path = new URL(offer.task).pathname;
    this.id = String(offer.task.split('/').at(-1));
    /** Who sealed which body. @type {Map<string, Visitor>} */
    this.sealed = new Map();
  }
}

/** The page's methods that change a store. */
const writes = /** @type {const} */ (['claim', 'release', 'update', 'put']);

/** A browser that may open several tabs. */
export class Visitor {
  /** @param {Site} site */
  constructor(site) {
    this.site = site;
    this.store = site.sdk.memoryStore();
  }

  /** Opens a tab. @param {number} [lives] after how many writes about reports its store never answers again */
  async open(lives = Infinity) {
    const tab = new Tab(this, lives);
    tab.doona = await this.site.sdk.connect({ ...this.site.options, store: tab.store });
    return tab;
  }
}

/** A tab with a connection. Its store notes every body that is sealed, and dies after a number of writes. */
export class Tab {
  /** @param {Visitor} visitor @param {number} lives */
  constructor(visitor, lives) {
    this.visitor = visitor;
    /** @type {Doona} */
    this.doona = /** @type {any} */ (undefined);
    /** The epochs whose claim was answered or refused. @type {Set<number>} */
    this.claims = new Set();
    this.written = 0;
    this.lives = lives;
    const { store } = visitor;
    const own = /** @type {any} */ ({ ...store });
    for (const name of writes) own[name] = (/** @type {any[]} */ ...args) => this.#write(name, args);
    /** @type {Store} */
    this.store = own;
  }

  get isDead() {
    return this.written > this.lives;
  }

  /** @param {typeof writes[number]} name @param {any[]} args */
  async #write(name, args) {
    const { site, store } = this.visitor;
    const id = name === 'put' ? args[0].task : args[0];
    if (id !== site.id && id !== `event of ${site.id}`) return Reflect.apply(store[name], store, args);
    if (++this.written > this.lives) return new Promise(() => {});
    const note = (/** @type {Report | undefined} */ report) => {
      if (report?.body) site.sealed.set(toHex(report.body), this.visitor);
      return report;
    };
    const [task, epoch, change, report] = args;
    if (name === 'claim') note(report);
    const noted = name === 'update' ? [task, epoch, (/** @type {Report} */ old) => note(change(old))] : args;
    try {
      return await Reflect.apply(store[name], store, noted);
    } finally {
      if (name === 'claim' && id === site.id) this.claims.add(epoch);
    }
  }

  /** Reports a value. Returns the error's code, or '' if a draft or a repeated receipt came. @param {unknown} value */
  report(value, final = true) {
    return this.doona.report(/** @type {any} */ (value), { final }).then(() => '',
      (error) => String(error.code ?? error));
  }

  /** Waits until the connection by itself has claimed an epoch, or was refused. @param {number} epoch */
  decided(epoch) {
    return until(() => this.claims.has(epoch), () => `the default of epoch ${epoch}`);
  }
}

/** Returns what happens on six days: 0 no visit, 1 a visit without an event, 2 with one. @param {number} pattern */
const daysOf = (pattern) => Array.from({ length: 6 }, (_, day) => Math.floor(pattern / 3 ** day) % 3);

/** The order of the days if the clock leaps. */
const leaping = [1, 4, 0, 5, 2, 3];

/**
 * Lives through the six days of many visitors at once. A visitor may open a page on each day, or leave one open. A page
 * without an event says so, reports an invalid value, or says nothing. All leave a day at the same time.
 * @param {Site} site @param {(time: number) => void} setTime
 * @param {number} start when the task begins, in milliseconds
 * @param {number[]} patterns @param {boolean} [leaps] whether the clock leaps; then no page stays open
 */
export async function livePatterns(site, setTime, start, patterns, leaps = false) {
  const order = leaps ? leaping : [...leaping].sort();
  const all = patterns.map((pattern) => {
    const days = daysOf(pattern);
    const visits = order.flatMap((day) => (days[day] ? [{ day, event: days[day] === 2 }] : []));
    return { pattern, visits, visitor: new Visitor(site), tab: /** @type {Tab | undefined} */ (undefined),
      codes: /** @type {string[]} */ ([]), left: /** @type {string[]} */ ([]) };
  });
  for (const day of order) {
    for (const one of all) {
      if (one.tab && !leaps && (one.pattern + day) % 3 && one.visits.some((visit) => visit.day === day)) continue;
      one.tab?.doona.close();
      one.tab = undefined;
    }
    setTime(start + (day + 0.5) * dayLength);
    await Promise.all(all.map(async (one) => {
      const visit = one.visits.find((visit) => visit.day === day);
      if (!visit) return;
      const tab = (one.tab ??= await one.visitor.open());
      const values = [site.usual, NaN, undefined];
      const value = visit.event ? site.event : values[(one.pattern + day) % 3];
      // An epoch counts once, however often its page reports an event.
      if (visit.event && (one.pattern + day) % 5 < 2) await tab.report(value, false);
      one.codes.push(value === undefined ? 'silent' : await tab.report(value));
      await tab.decided(day);
    }));
    await leave();
    for (const { tab, pattern } of all) if ((pattern + day) % 4 === 0) await tab?.report(site.event); // the day again
  }
  for (const { tab } of all) tab?.doona.close();
  const bodies = new Set();
  for (const { body, epoch, letter } of await letters()) {
    if (bodies.has(body)) continue; // A request that was not answered in time is made again.
    bodies.add(body);
    const one = all.find(({ visitor }) => visitor === site.sealed.get(body));
    if (!one) throw new Error(`nobody sealed the report ${body}`);
    const at = one.visits.findIndex(({ day }) => day === epoch);
    const what = letter === site.usual ? 'default' : letter === site.event ? 'event' : `letter ${letter}`;
    one.left[at] = one.left[at] ? `${one.left[at]} and ${what}` : what;
  }
  const decided = await decide(site.path, all.map(({ visits }) => visits));
  return all.map(({ pattern, visits, codes, left }, i) => ({ pattern, visits, codes,
    left: visits.map((_, at) => left[at] ?? 'none'), decided: decided[i] ?? [] }));
}

/** Returns pseudo-random numbers in [0, 1) (mulberry32). @param {number} seed */
export function seeded(seed) {
  return () => {
    seed = seed + 0x6d2b79f5 | 0;
    let t = Math.imul(seed ^ seed >>> 15, 1 | seed);
    t = t + Math.imul(t ^ t >>> 7, 61 | t) ^ t;
    return ((t ^ t >>> 14) >>> 0) / 2 ** 32;
  };
}

/** How visitors live: with one tab, with two, or in tabs that close at any moment and whose stores die. */
const lives = /** @type {const} */ (['one tab', 'two tabs', 'mortal tabs', 'mortal tabs']);

/** A visitor who lives at random. */
class Random {
  /** @param {Site} site @param {number} seed @param {typeof lives[number]} life */
  constructor(site, seed, life) {
    this.visitor = new Visitor(site);
    this.life = life;
    this.random = seeded(seed);
    /** The open tabs. @type {Tab[]} */
    this.tabs = [];
    /** By the number of writes after which a tab's store died. @type {number[]} */
    this.deaths = [];
    this.refused = 0;
    /** What arrived, first come first. @type {Letter[]} */
    this.left = [];
  }

  /** @param {number} p */
  chance(p) {
    return this.random() < p;
  }

  /** Opens tabs, reports up to three values, and may close or die meanwhile. */
  async visit() {
    const { site } = this.visitor;
    for (const tab of this.tabs.splice(0)) {
      if (tab.isDead || this.chance(0.6)) tab.doona.close();
      else this.tabs.push(tab);
    }
    const isMortal = this.life === 'mortal tabs' && this.chance(0.7);
    const most = this.life === 'one tab' ? 1 : 2;
    while (this.tabs.length < most) {
      const lives = isMortal ? Math.floor(this.random() * 7) : Infinity;
      this.tabs.push(await this.visitor.open(lives));
    }
    const reporting = this.tabs.flatMap((tab) => Array.from({ length: Math.floor(this.random() * 4) }, () => {
      const value = this.chance(0.7) ? site.event : this.chance(0.5) ? site.usual : NaN;
      return tab.report(value, this.chance(0.3)).then((code) => {
        if (code === 'cap-reached') this.refused++;
        else if (!['', 'invalid-value', 'closed'].includes(code)) throw new Error(code);
      });
    }));
    const all = Promise.all(reporting);
    const dying = this.tabs.filter((tab) => tab.lives < Infinity);
    if (dying.length === 0) return void (await all);
    all.catch(() => {});
    const end = performance.now() + 300 * this.random();
    const isOver = () => dying.every((tab) => tab.isDead) || performance.now() > end;
    await Promise.race([all, until(isOver, () => 'a death')]);
    for (const tab of dying) {
      if (tab.isDead) this.deaths[tab.lives] = (this.deaths[tab.lives] ?? 0) + 1;
      if (this.chance(0.5)) tab.doona.close(); // Otherwise the page goes on, and leaves later.
    }
  }
}

/**
 * Lives through random visits at random times of six days, forward and back. Some pages stay open, others leave.
 * @param {Site} site @param {(time: number) => void} setTime
 * @param {number} start when the task begins, in milliseconds
 * @param {number} seed @param {number} count of the visitors @param {number} rounds
 */
export async function liveAtRandom(site, setTime, start, seed, count, rounds) {
  const random = seeded(seed);
  const all = Array.from({ length: count }, (_, i) =>
    new Random(site, Math.floor(random() * 2 ** 31), lives[i % lives.length] ?? 'one tab'));
  for (let round = 0; round < rounds; round++) {
    setTime(start + 6 * random() * dayLength);
    await quiet(); // Otherwise a tab may close before it knows that its report arrived.
    await Promise.all(all.map((one) => one.chance(0.7) && one.visit()));
    if (random() < 0.6) await leave();
  }
  await leave();
  for (const { tabs } of all) for (const tab of tabs) tab.doona.close();
  for (const letter of await letters()) {
    const one = all.find(({ visitor }) => visitor === site.sealed.get(letter.body));
    if (!one) throw new Error(`nobody sealed the report ${letter.body}`);
    one.left.push(letter);
  }
  return all.map(({ life, deaths, refused, left }) => ({ life, deaths, refused, left }));
}

/**
 * Lives through four days with an event on each. On each day a tab's store dies after a number of writes. The tab then
 * closes or goes on, and another tab opens, which may report the event again.
 * @param {Site} site @param {(time: number) => void} setTime
 * @param {number} start when the task begins, in milliseconds
 */
export async function liveAndDie(site, setTime, start) {
  const all = [];
  for (let writes = 0; writes <= 5; writes++) {
    for (const closes of [true, false]) {
      for (const again of [true, false]) {
        all.push({ writes, closes, again, visitor: new Visitor(site), tabs: /** @type {Tab[]} */ ([]),
          left: /** @type {Letter[]} */ ([]) });
      }
    }
  }
  const days = [0, 1, 2, 3];
  for (const day of days) {
    setTime(start + (day + 0.5) * dayLength);
    await Promise.all(all.map(async (one) => {
      const { visitor, writes } = one;
      const dying = await visitor.open(writes);
      const reporting = dying.report(site.event);
      await Promise.race([reporting, until(() => dying.isDead, () => `write ${writes + 1}`)]);
      if (one.closes) dying.doona.close();
      const tab = await visitor.open();
      if (one.again) await tab.report(site.event);
      else await until(async () => (await visitor.store.sealed(site.id)).length > 0, () => `a draft of epoch ${day}`);
      await tab.doona.flush(); // It takes the draft over.
      one.tabs.push(dying, tab);
    }));
    await leave();
    for (const { tabs } of all) for (const tab of tabs.splice(0)) tab.doona.close();
  }
  for (const letter of await letters()) {
    all.find(({ visitor }) => visitor === site.sealed.get(letter.body))?.left.push(letter);
  }
  const [decided] = await decide(site.path, [days.map((day) => ({ day, event: true }))]);
  return all.map(({ writes, closes, again, left }) => ({ writes, closes, again, left, decided: decided ?? [] }));
}
