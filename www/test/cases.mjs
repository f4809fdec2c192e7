// The test cases that the SDK must pass in every runtime. chromium.test.mjs, node.test.mjs and workerd.test.mjs run
// them in Chromium, Node 22 and workerd; engines/engines.test.mjs runs them in all other engines. This file has no
// imports: whoever runs a case passes the SDK and the test server's address.

/** @typedef {typeof import('../sdk/index.js')} SDK */
/** @typedef {import('../sdk/options.js').AllOptions} AllOptions */
/** @typedef {import('../sdk/options.js').TokenSource} TokenSource */
/** @typedef {import('../sdk/bytes.js').Bytes} Bytes */
/** @typedef {import('./harness.mjs').Submission} Submission */
/**
 * @typedef {object} Host
 * @property {SDK} sdk
 * @property {string} site address of www/testserver
 * @property {Record<string, {task: string, stream?: string, owner: string, stride?: number}>} tasks
 * @property {Omit<Partial<AllOptions>, 'task' | 'stream' | 'allow' | 'recovery' | 'candidates' | 'budget' | 'maxEpsilon' |
 *   'maxTotalEpsilon'>} options options that this runtime needs; all connections of a case use the same
 * store
 */

const paths = /** @type {const} */ (['webcrypto', 'wasm']);

/** @type {Record<string, (host: Host) => Promise<unknown>>} */
export const cases = {};

/**
 * Controls the test server: posts `body` to /test/`what`.
 * @param {Host} host @param {string} what @param {unknown} body
 */
async function control({ site }, what, body) {
  const response = await fetch(`${site}/test/${what}`, { method: 'POST', body: JSON.stringify(body) });
  if (!response.ok) throw new Error(`/test/${what} answers ${response.status}: ${await response.text()}`);
  return response;
}

/**
 * Returns the submissions that the relay received since the last call.
 * @param {Host} host @returns {Promise<Submission[]>}
 */
async function take(host) {
  return (await control(host, 'take', null)).json();
}

/**
 * Makes the relay answer the next submissions with these problems, one each.
 * @param {Host} host @param {...string} names
 */
function fail(host, ...names) {
  return control(host, 'fail', names);
}

/**
 * Waits until at least one submission has arrived, and returns those that have.
 * @param {Host} host @returns {Promise<Submission[]>}
 */
async function arrived(host) {
  for (;;) {
    const got = await take(host);
    if (got.length > 0) return got;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/**
 * Runs `body` while every random time of sending is the middle of the spread.
 * @template T @param {() => Promise<T>} body
 */
async function halfway(body) {
  const { getRandomValues } = crypto;
  crypto.getRandomValues = /** @type {any} */ ((/** @type {any} */ out) =>
    out instanceof Uint32Array ? out.fill(2 ** 31) : Reflect.apply(getRandomValues, crypto, [out]));
  try {
    return await body();
  } finally {
    crypto.getRandomValues = getRandomValues;
  }
}

/** @typedef {{milliseconds: number, end: () => void}} Timeout */

/**
 * Runs `body` while no timer of five seconds or more fires by itself. `timeouts` lists these timers; a timer's `end`
 * fires it.
 * @param {(timeouts: Timeout[]) => Promise<void>} body
 */
async function patient(body) {
  /** @type {Timeout[]} */
  const timeouts = [];
  const wait = globalThis.setTimeout;
  const endless = 2 ** 31 - 1;
  /** @param {() => void} end @param {number} milliseconds */
  const record = (end, milliseconds) => {
    if (!(milliseconds >= 5000)) return wait(end, milliseconds);
    timeouts.push({ milliseconds, end });
    return wait(() => {}, endless);
  };
  globalThis.setTimeout = /** @type {typeof setTimeout} */ (record);
  try {
    await body(timeouts);
  } finally {
    globalThis.setTimeout = wait;
  }
}

/** Returns the timers that limit requests to a relay, an issuer or the site. @param {Timeout[]} timeouts */
function requests(timeouts) {
  return timeouts.filter(({ milliseconds }) => milliseconds === 10_100 || milliseconds === 30_000);
}

/** @param {Host} host @param {string} name @param {Partial<AllOptions>} [options] */
function connect(host, name, options = {}) {
  const offer = host.tasks[name];
  if (!offer) throw new Error(`no task ${name}`);
  const generous = { maxEpsilon: 10, maxDelta: 1, maxTotalEpsilon: 10, spread: 0, flush: false };
  return host.sdk.connect(/** @type {any} */ ({ ...offer, ...generous, ...host.options, ...options }));
}

/** @param {unknown} got @param {unknown} want @param {string} [what] */
function same(got, want, what = 'value') {
  const [a, b] = [JSON.stringify(got), JSON.stringify(want)];
  if (a !== b) throw new Error(`${what} ${a}, want ${b}`);
}

/**
 * Posts a token request to the site's backend. The request counts for the account that logged in last.
 * @param {Host} host @param {Bytes} request @param {string} uri
 */
function backend(host, request, uri) {
  return fetch(`${host.site}/test/token?uri=${encodeURIComponent(uri)}`, { method: 'POST', body: request });
}

/**
 * Fails unless `promise` rejects with a DoonaError of this code, and of this field if one is given. Returns the error.
 * @param {Host} host @param {Promise<unknown>} promise @param {string} code @param {string} [field]
 */
async function refused(host, promise, code, field) {
  try {
    await promise;
  } catch (error) {
    if (!(error instanceof host.sdk.DoonaError)) throw error;
    same(error.code, code, 'code');
    if (field) same(error.field, field, 'field');
    return error;
  }
  throw new Error(`no error, want ${code}`);
}

for (const sealing of paths) {
  for (const name of ['truthful', 'one relay', 'three relays']) {
    cases[`${sealing}: what is sealed for "${name}" opens in Go`] = async (host) => {
      const doona = await connect(host, name, { sealing });
      const receipt = await doona.report(258);
      const [got] = await take(host);
      same(got?.error, '');
      same(got?.messages, [['0102']]);
      same(receipt.bytes, (got?.body.length ?? 0) / 2);
      same(receipt.repeated, false);
      same(got?.header['Cookie'], undefined);
      same(got?.header['Referer'], undefined);
      same(got?.header['Accept-Language'], ['*']);
    };
  }

  for (const [name, code, field] of [
    ['tampered', 'task-refused'],
    ['unsigned', 'task-refused'],
    ['other keys', 'task-refused'],
    ['trailing', 'task-refused'],
    ['lie', 'claim-refused', 'claim.delta'],
  ]) {
    cases[`${sealing}: the "${name}" task is refused`] = (host) =>
      refused(host, connect(host, String(name), { sealing }), String(code), field);
  }

  cases[`${sealing}: a key whose shared secret is all zeros is refused`] = async (host) => {
    const report = async () => (await connect(host, 'low order', { sealing })).report(1);
    await refused(host, report(), 'task-refused');
    same(await take(host), []);
  };

  cases[`${sealing}: another owner's task is refused`] = (host) =>
    refused(host, connect(host, 'truthful', { sealing, owner: String(host.tasks['mean']?.owner) }), 'task-refused');

  cases[`${sealing}: another task under this id is refused`] = async (host) => {
    const { task } = host.tasks['one relay'] ?? { task: '' };
    const other = `${task.slice(0, -64)}${'0'.repeat(64)}`;
    await refused(host, connect(host, 'one relay', { sealing, task: other }), 'task-unreachable', 'task');
    await refused(host, connect(host, 'swapped', { sealing }), 'task-refused');
  };

  cases[`${sealing}: a report of many messages fills its slots`] = async (host) => {
    const receipt = await (await connect(host, 'shares', { sealing })).report(0.5);
    const [got] = await take(host);
    same(got?.error, '');
    const messages = got?.messages[0] ?? [];
    same(messages.length > 2 && messages.every((message) => message !== ''), true, 'several shares and no cover');
    same(receipt.bytes, Number(got?.body.length) / 2);
  };

  cases[`${sealing}: a vector is reported, and one of another length refused`] = async (host) => {
    const doona = await connect(host, 'vector', { sealing });
    await refused(host, doona.report([1, 2]), 'invalid-value', 'value');
    same((await doona.report(Array(20).fill(0.5))).repeated, false);
    same((await take(host))[0]?.error, '');
  };
}

for (const sealing of paths) {
  cases[`${sealing}: a report with a token is taken, and the site's quota ends at two`] = async (host) => {
    const { importKey } = crypto.subtle;
    // doona-full.wasm checks signatures itself, so it must work if WebCrypto lacks Ed25519.
    if (sealing === 'wasm') crypto.subtle.importKey = /** @type {any} */ ((/** @type {any[]} */ ...args) =>
      args[2] === 'Ed25519' ? Promise.reject(new DOMException('as the test asked',
        'NotSupportedError')) : Reflect.apply(importKey, crypto.subtle, args));
    const visit = async () => {
      const doona = await connect(host, 'tokens', {
        sealing,
        store: host.sdk.memoryStore(),
        tokens: (request, { uri }) => backend(host, request, uri),
      });
      return (await doona.report(1)).repeated;
    };
    try {
      await control(host, 'login', crypto.randomUUID());
      same([await visit(), await visit()], [false, false]);
      await refused(host, visit(), 'limit-reached');
      await control(host, 'login', crypto.randomUUID());
      same(await visit(), false, 'another person at the same address');
    } finally {
      crypto.subtle.importKey = importKey;
    }
  };
}

cases['both paths derive the same guarantee'] = async (host) => {
  const [a, b] = await Promise.all(paths.map((sealing) => connect(host, 'histogram', { sealing })));
  same(a?.guarantee, b?.guarantee);
  same(a?.guarantee.epsilon, 1);
  same(Number(a?.guarantee.localEpsilon) > 1, true, 'local epsilon above 1');
};

cases['a post-quantum task is sealed by doona-full.wasm'] = async (host) => {
  await (await connect(host, 'post-quantum')).report(7);
  const [got] = await take(host);
  same(got?.error, '');
  same(got?.messages, [['0007']]);
  await refused(host, connect(host, 'post-quantum', { sealing: 'webcrypto' }), 'invalid-option', 'sealing');
};

// Compares 600 reports with the exact probabilities by Pearson's chi-squared statistic. With 3 degrees of freedom it
// exceeds 33.4 by chance once in 3 million runs.
cases['reports are randomized with the probabilities of the task'] = async (host) => {
  const n = 600;
  /** @type {string | undefined} */
  let exact;
  for (let done = 0; done < n; done += 20) {
    const clients = Array.from({ length: 20 }, async () => {
      const doona = await connect(host, 'histogram', { store: host.sdk.memoryStore() });
      exact = doona.task.params.get('gamma');
      await doona.report(2);
    });
    await Promise.all(clients);
  }
  // Counts equal bytes once: the SDK sends them again if the relay is slow.
  const got = [...new Map((await take(host)).map((sent) => [sent.body, sent])).values()];
  same(got.length, n, 'reports');
  const counts = [0, 0, 0, 0];
  for (const { messages } of got) {
    const y = parseInt(messages[0]?.[0] ?? '', 16);
    counts[y] = (counts[y] ?? 0) + 1;
  }
  const [num, den] = String(exact).split('/').map(Number);
  const gamma = Number(num) / Number(den);
  const statistic = counts.reduce((sum, count, y) => {
    const want = n * (gamma / counts.length + (y === 2 ? 1 - gamma : 0));
    return sum + (count - want) ** 2 / want;
  }, 0);
  if (!(statistic < 33.4)) throw new Error(`counts ${counts} at gamma ${gamma}`);
};

cases['values outside the domain are refused and use up nothing'] = async (host) => {
  const doona = await connect(host, 'truthful');
  const wrong = /** @type {any[]} */ ([300, NaN, 1.5, 'x', undefined, [1, 2], ['1'], {}, new Array(3)]);
  for (const value of wrong) await refused(host, doona.report(value), 'invalid-value', 'value');
  same((await doona.report(5)).repeated, false);
  same((await take(host)).map((s) => s.messages), [[['0005']]]);
  for (const value of wrong) await refused(host, doona.report(value), 'invalid-value', 'value');
};

cases['a mean is clipped and reported'] = async (host) => {
  same((await (await connect(host, 'mean')).report(1e9)).repeated, false);
  same((await take(host))[0]?.error, '');
};

cases['an epsilon above maxEpsilon is refused'] = (host) =>
  refused(host, connect(host, 'truthful', { maxEpsilon: 2.9 }), 'epsilon-too-large', 'maxEpsilon');

cases['a claim that is worthless for its delta is refused unless the page asks for it'] = (host) =>
  refused(host, connect(host, 'truthful', { maxDelta: 0.001 }), 'delta-too-large', 'maxDelta');

cases['a task may cost exactly maxEpsilon and maxDelta, and no more'] = async (host) => {
  const { totalEpsilon, totalDelta } = (await connect(host, 'histogram')).guarantee;
  await connect(host, 'histogram', { maxEpsilon: totalEpsilon, maxDelta: totalDelta });
  const less = 1 - 1e-12;
  await refused(host, connect(host, 'histogram', { maxEpsilon: less * totalEpsilon }), 'epsilon-too-large',
    'maxEpsilon');
  await refused(host, connect(host, 'histogram', { maxDelta: less * totalDelta }), 'delta-too-large', 'maxDelta');
};

cases['several tasks share one ledger, which stops at maxTotalEpsilon'] = async (host) => {
  const limits = { maxEpsilon: 1, maxTotalEpsilon: 2 };
  const [a, b, c] = await Promise.all(['one relay', 'three relays',
    'histogram'].map((name) => connect(host, name, limits)));
  same((await a?.report(1))?.repeated, false);
  same((await b?.report(1))?.repeated, false);
  await refused(host, /** @type {any} */ (c).report(1), 'budget-exceeded', 'maxTotalEpsilon');
  same((await take(host)).length, 2);
};

/**
 * Connects with a budget instead of maxEpsilon and maxTotalEpsilon. @param {Host} host @param {string} name
 * @param {import('../sdk/budget.js').Budget} budget
 */
function within(host, name, budget) {
  const { task = '', owner = '' } = host.tasks[name] ?? {};
  return host.sdk.connect({ ...host.options, task, owner, budget, maxDelta: 1, spread: 0, flush: false });
}

cases['a task of calendar months takes one report a month'] = async (host) => {
  const doona = await connect(host, 'months');
  const { epoch, next } = await doona.report(7);
  const now = new Date();
  same([epoch, next?.getTime()], [0, Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 1)]);
  await later((Number(next) - Date.now()) / 3_600_000 + 1, async () => same((await doona.report(8)).epoch, 1));
  same((await doona.report(9)).repeated, true);
  same((await take(host)).map((s) => s.messages), [[['0007']], [['0008']]]);
};

cases['a budget holds for all tasks of a site, and is held against a task at once'] = async (host) => {
  const { epsilon, totalEpsilon, totalDelta } = (await connect(host, 'one relay')).guarantee;
  const budget = { epsilon: totalEpsilon, delta: totalDelta, days: 365 };
  const a = await within(host, 'one relay', budget);
  await a.report(1);
  await refused(host, (await within(host, 'three relays', budget)).report(1), 'budget-exceeded', 'budget');
  same((await a.report(1)).repeated, true);
  const less = { ...budget, epsilon: totalEpsilon * (1 - 1e-12) };
  await refused(host, within(host, 'one relay', less), 'epsilon-too-large', 'budget');
  const brief = { epsilon: 2 * epsilon, delta: 1, days: 1 / 86_400 };
  same((await (await within(host, 'three relays', brief)).report(1)).repeated, false);
  same((await take(host)).length, 2);
};

/**
 * Runs `body` with a clock that it can set with `set`. Reports do not leave the device: `arrived` lists them by task
 * and epoch.
 * @param {(set: (time: number) => void, arrived: string[]) => Promise<void>} body
 */
async function onAFakeClock(body) {
  const { now } = Date;
  const { fetch } = globalThis;
  let ahead = 0;
  /** @type {string[]} */
  const arrived = [];
  Date.now = () => now.call(Date) + ahead;
  globalThis.fetch = async (input, init) => {
    const path = /v1\/tasks\/(.*)\/reports$/.exec(String(input));
    if (!path) return Reflect.apply(fetch, globalThis, [input, init]);
    arrived.push(String(path[1]));
    return new Response(null, { status: 201 });
  };
  try {
    await body((days) => (ahead = days * 86_400_000), arrived);
  } finally {
    Date.now = now;
    globalThis.fetch = fetch;
  }
}

for (const name of ['year', 'year, noise by relays']) {
  cases[`"${name}": whoever comes every day reports every day, within (10, 1e-5)`] = (host) =>
    onAFakeClock(async (set, arrived) => {
      const visit = () => within(host, name, { epsilon: 10, delta: 1e-5, days: 365 });
      const { guarantee } = await visit();
      same(guarantee.totalEpsilon <= 10 && guarantee.totalDelta <= 1e-5, true);
      // Every day in long runs outside browsers; otherwise every 14th day.
      const step = /** @type {any} */ (globalThis).doonaLong ? 1 : 14;
      const days = Array.from({ length: Math.ceil(365 / step) }, (_, i) => i * step);
      for (const day of days) {
        set(day);
        const doona = await visit();
        same((await doona.report(day % 16)).repeated, false);
        if (day % 50 === 0) same((await doona.report(3)).repeated, true);
        doona.close();
      }
      const task = host.tasks[name]?.task.split('/').at(-1);
      same(arrived, days.map((day) => `${task}/epochs/${day}`));
      set(-3650);
      await refused(host, (await visit()).report(1), 'epoch-not-open');
      set(3650);
      await refused(host, (await visit()).report(1), 'task-ended');
      set(7); // The ledger still has the earlier reports.
      const other = await within(host, name === 'year' ? 'year, noise by relays' : 'year',
        { epsilon: 10, delta: 1e-5, days: 365 });
      await refused(host, other.report(1), 'budget-exceeded', 'budget');
    });
}

cases['bad options are named'] = async (host) => {
  for (const options of [
    { owner: 'ed25519:x' }, { task: 'https://relay.example/v1/tasks/12' }, { task: 'data:,x' }, { maxEpsilon: 0 },
      { maxDelta: 0 },
    { maxTotalEpsilon: 1 }, { spread: -1 }, { when: 'soon' }, { modules: 'data:,x' },
      { modules: 'https://site.example/doona' }, { owner: undefined }, { sealing: 'none' },
    { maxEpsilon: '5' }, { spread: NaN }, { budget: 7, maxTotalEpsilon: undefined },
      { budget: { epsilon: 1, delta: 0, days: 1 }, maxTotalEpsilon: undefined },
      { maxTotalEpsilon: 9, budget: { epsilon: 1, delta: 1, days: 1 } },
  ]) {
    await refused(host, connect(host, 'truthful', /** @type {any} */ (options)), 'invalid-option',
      Object.keys(options)[0]);
  }
};

cases['tasks that are not running accept nothing'] = async (host) => {
  await refused(host, (await connect(host, 'future')).report(1), 'epoch-not-open');
  await refused(host, (await connect(host, 'ended')).report(1), 'task-ended');
  same(await take(host), []);
};

cases['an epoch is reported once, in ten connections at a time'] = async (host) => {
  const ten = await Promise.all(Array.from({ length: 10 }, () => connect(host, 'truthful')));
  const receipts = await Promise.all(ten.map((doona, i) => doona.report(i)));
  same(receipts.filter((receipt) => !receipt.repeated).length, 1);
  // Several connections may send the report before it is delivered, but all must send the same bytes.
  same(new Set((await take(host)).map((s) => s.body)).size, 1);
};

cases['a retry sends the same bytes'] = async (host) => {
  await fail(host, 'overloaded', 'internal');
  same((await (await connect(host, 'truthful')).report(7)).repeated, false);
  const got = await take(host);
  same(got.length, 3);
  same(new Set(got.map((s) => s.body)).size, 1);
};

cases['an undelivered report waits and is sent at the next visit, without being asked'] = async (host) => {
  const stop = new AbortController();
  const doona = await connect(host, 'truthful', { spread: 3_600_000 });
  setTimeout(() => stop.abort(), 300);
  const reason = await halfway(() => doona.report(7,
    { signal: stop.signal }).catch((/** @type {Error} */ e) => e.name));
  same(reason, 'AbortError');
  same(await take(host), [], 'nothing has left');

  const next = await connect(host, 'truthful', { flush: true });
  const got = await arrived(host);
  same(got.map((s) => s.messages), [[['0007']]]);
  same((await next.report(8)).repeated, true);
  same(await take(host), [], 'and not sent again');
};

cases['a report leaves before its epoch ends, however long the spread'] = async (host) => {
  const doona = await connect(host, 'truthful', { spread: 3_600_000 });
  const { start, length } = doona.task.epochs;
  const { now } = Date;
  Date.now = () => 1000 * (start + length) - 500;
  try {
    same((await halfway(() => doona.report(7, { signal: AbortSignal.timeout(60_000) }))).epoch, 0);
  } finally {
    Date.now = now;
  }
  same((await take(host)).map((s) => s.messages), [[['0007']]]);
};

cases['aborting one wait for a delivery does not end other waits'] = (host) => patient(async (timeouts) => {
  await fail(host, 'stall');
  const doona = await connect(host, 'truthful');
  const stop = new AbortController();
  const report = doona.report(7, { signal: stop.signal }).catch((/** @type {Error} */ e) => e.name);
  await arrived(host);
  const flushed = doona.flush();
  stop.abort();
  same(await report, 'AbortError');
  requests(timeouts)[0]?.end();
  same(await flushed, { delivered: 1, dropped: 0, waiting: 0 });
  same((await take(host)).map((s) => s.messages), [[['0007']]]);
});

for (const answer of ['stall', 'stall-body']) {
  cases[`a relay's "${answer}" ends after ten seconds, and the report is sent again`] = (host) => patient(async (timeouts) => {
    await fail(host, answer);
    const report = (await connect(host, 'truthful')).report(7);
    await arrived(host);
    await new Promise((resolve) => setTimeout(resolve, 100)); // gives the answer's header time to arrive
    requests(timeouts)[0]?.end();
    same((await report).repeated, false);
    same((await take(host)).map((s) => s.messages), [[['0007']]]);
    same(requests(timeouts).map(({ milliseconds }) => milliseconds), [10_100, 10_100]);
  });
}

cases["a site's answer about tokens that never comes ends after 30 seconds, and is asked for again"] = (host) => patient(async (timeouts) => {
  await control(host, 'login', crypto.randomUUID());
  let calls = 0;
  /** @type {TokenSource} */
  const tokens = (request, { uri }) => {
    if (calls++ > 0) return backend(host, request, uri);
    setTimeout(() => requests(timeouts).at(-1)?.end());
    return new Promise(() => {});
  };
  const doona = await connect(host, 'tokens', { tokens });
  same((await doona.report(1)).repeated, false);
  same(calls, 2);
  // requests: issuer's directory, twice the site, relay
  const first = requests(timeouts).slice(0, 4).map(({ milliseconds }) => milliseconds); // a busy relay gets more
  same(first, [30_000, 30_000, 30_000, 10_100]);
});

cases['a repeated report gets its token at once and waits; flush does not send it earlier'] = async (host) => {
  await control(host, 'login', crypto.randomUUID());
  const store = host.sdk.memoryStore();
  let calls = 0;
  /** @type {TokenSource} */
  const tokens = async (request, { uri }) => (calls++ === 0 ? new Response(null, { status: 400 }) : backend(host,
    request, uri));
  const doona = await connect(host, 'tokens', { store, tokens, spread: 3_600_000 });
  await refused(host, doona.report(1), 'not-delivered');
  const stop = new AbortController();
  const again = halfway(() => doona.report(1, { signal: stop.signal }).catch((/** @type {Error} */ e) => e.name));
  const id = String(host.tasks['tokens']?.task.slice(-64));
  while (!(await store.sealed(id))[0]?.token) await new Promise((resolve) => setTimeout(resolve, 20));
  same(await doona.flush(), { delivered: 0, dropped: 0, waiting: 1 });
  stop.abort();
  same(await again, 'AbortError');
  same(await doona.flush(), { delivered: 1, dropped: 0, waiting: 0 });
  same(calls, 2);
};

cases['two calls at the same time ask for one token'] = async (host) => {
  await control(host, 'login', crypto.randomUUID());
  let calls = 0;
  let second = Promise.resolve(/** @type {any} */ (null));
  /** @type {TokenSource} */
  const tokens = async (request, { uri }) => {
    if (calls++ === 0) {
      second = doona.report(2);
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
    return backend(host, request, uri);
  };
  const doona = await connect(host, 'tokens', { tokens });
  same([(await doona.report(1)).repeated, (await second).repeated], [false, true]);
  same(calls, 1);
};

cases['a flush whose signal is already aborted sends nothing'] = async (host) => {
  await fail(host, 'hostile-name');
  const doona = await connect(host, 'truthful');
  await refused(host, doona.report(7), 'not-delivered');
  await take(host);
  same(await doona.flush({ signal: AbortSignal.abort() }).catch((e) => e.name), 'AbortError');
  await new Promise((resolve) => setTimeout(resolve, 200));
  same(await take(host), []);
  same(await doona.flush(), { delivered: 1, dropped: 0, waiting: 0 });
};

cases['a connection or report that is aborted before it starts stores nothing'] = async (host) => {
  const signal = AbortSignal.abort();
  same(await connect(host, 'truthful', { signal }).catch((e) => e.name), 'AbortError');
  const doona = await connect(host, 'truthful');
  same(await doona.report(1, { signal }).catch((e) => e.name), 'AbortError');
  same((await doona.report(2)).repeated, false);
  same((await take(host)).map((s) => s.messages), [[['0002']]]);
};

cases['a report that the relay has from another network counts as delivered'] = async (host) => {
  await fail(host, 'replayed');
  const doona = await connect(host, 'truthful');
  same((await doona.report(7)).repeated, false);
  same((await doona.report(7)).repeated, true);
  same(doona.dropped, 0);
  same((await take(host)).length, 1);
};

cases['a browser that the draw leaves out sends nothing and spends nothing, and its epoch is not drawn again'] =
  async (host) => {
    const own = host.sdk.memoryStore();
    for (const options of [{}, { store: own }]) { // The worker draws, then the page.
      const doona = await connect(host, 'truthful', { ...options, sample: 0 });
      const { repeated, sampled, bytes } = await doona.report(7);
      same([repeated, sampled, bytes], [true, false, 0]);
      await refused(host, doona.report(987), 'invalid-value');
      const again = await connect(host, 'truthful', options);
      same((await again.report(8)).sampled, false, 'another draw');
      same(await again.flush(), { delivered: 0, dropped: 0, waiting: 0 });
    }
    same(await take(host), []);
    same((await own.lines()).map(({ runs }) => runs), [[]], 'the ledger');
    await later(1, async () => {
      const { sampled } = await (await connect(host, 'truthful', { store: own, sample: 0.999_999 })).report(9);
      same(sampled, true);
    });
    same((await take(host)).map(({ epoch }) => epoch), [1]);
    same((await own.lines()).map(({ runs }) => runs.length), [1]);
    for (const sample of [-0.1, 1.1, NaN, '0.5', null]) {
      await refused(host, connect(host, 'truthful', { sample: /** @type {any} */ (sample) }), 'invalid-option', 'sample');
    }
  };

cases['a draw in favour stands, whatever a later page view says'] = async (host) => {
  const store = host.sdk.memoryStore();
  same((await (await connect(host, 'truthful', { store, sample: 1 - 2 ** -40 })).report(7)).sampled, true);
  same((await (await connect(host, 'truthful', { store, sample: 0 })).report(7)).sampled, true);
  same((await take(host)).length, 1);
};

cases['a report that finds the quota used up is tried again at two later visits, an hour apart'] = async (host) => {
  const store = host.sdk.memoryStore();
  /** @type {string[]} */
  const bodies = [];
  for (const left of [2, 1, 0]) {
    await later(2 - left, async () => {
      await fail(host, 'limit', 'limit', 'limit');
      const doona = await connect(host, 'a day', { store });
      await refused(host, doona.report(7), 'limit-reached');
      for (let reload = 0; left > 0 && reload < 3; reload++) {
        const again = await connect(host, 'a day', { store });
        await refused(host, again.report(8), 'limit-reached');
        same(await again.flush(), { delivered: 0, dropped: 0, waiting: 1 });
        same(again.dropped, 0);
      }
      if (left === 0) same((await doona.report(8)).repeated, true);
      same(await doona.flush(), { delivered: 0, dropped: 0, waiting: left > 0 ? 1 : 0 });
      same(doona.dropped, left > 0 ? 0 : 1);
      bodies.push(...(await take(host)).map(({ body }) => body));
    });
  }
  same(bodies, Array(3).fill(bodies[0]), 'what was sent');
};

cases['a report refused for a used-up quota is accepted an hour later'] = async (host) => {
  const store = host.sdk.memoryStore();
  await fail(host, 'limit');
  await refused(host, (await connect(host, 'a day', { store })).report(7), 'limit-reached');
  same((await take(host)).length, 1);
  await later(0.99, async () => {
    same(await (await connect(host, 'a day', { store })).flush(), { delivered: 0, dropped: 0, waiting: 1 });
  });
  same(await take(host), []);
  await later(1, async () => {
    const doona = await connect(host, 'a day', { store });
    same(await doona.flush(), { delivered: 1, dropped: 0, waiting: 0 });
    same((await doona.report(8)).repeated, true);
  });
  same((await take(host)).length, 1);
};

cases['a connection that stays open also retries, and finally drops the report'] = async (host) => {
  await fail(host, 'limit', 'limit', 'limit');
  const doona = await connect(host, 'a day', { store: host.sdk.memoryStore() });
  await refused(host, doona.report(7), 'limit-reached');
  same(await later(1, () => doona.flush()), { delivered: 0, dropped: 0, waiting: 1 });
  same(await later(2, () => doona.flush()), { delivered: 0, dropped: 1, waiting: 0 });
  same([doona.dropped, (await take(host)).length], [1, 3]);
};

cases['a clock that is turned back holds a report for an hour at most'] = async (host) => {
  const store = host.sdk.memoryStore();
  await fail(host, 'limit');
  const wait = { delivered: 0, dropped: 0, waiting: 1 };
  const visit = (/** @type {number} */ hours) =>
    later(hours, async () => (await connect(host, 'a day', { store })).flush());
  await later(20, async () => refused(host, (await connect(host, 'a day', { store })).report(7), 'limit-reached'));
  same(await visit(2), wait);
  same(await visit(2.9), wait);
  same((await take(host)).length, 1);
  same(await visit(3.01), { delivered: 1, dropped: 0, waiting: 0 });
  same((await take(host)).length, 1);
};

cases['a report for which the issuer has no token left asks for one again an hour later'] = async (host) => {
  const store = host.sdk.memoryStore();
  let asked = 0;
  const headers = { 'Content-Type': 'application/problem+json' };
  const visit = () => connect(host, 'tokens', { store, tokens: async (request, { uri }) =>
    (++asked > 1 ? backend(host, request, uri)
      : new Response('{"type":"urn:doona:error:limit"}', { status: 429, headers })) });
  const flush = async () => (await visit()).flush();
  await control(host, 'login', crypto.randomUUID());
  await refused(host, (await visit()).report(1), 'limit-reached');
  const wait = { delivered: 0, dropped: 0, waiting: 1 };
  same(await flush(), wait);
  same(await later(0.9, flush), wait);
  same(asked, 1);
  same(await later(1, flush), { delivered: 1, dropped: 0, waiting: 0 });
  same(asked, 2, 'an hour later');
};

cases['pages of origins that the task does not list are refused before they report, programs never'] = async (host) => {
  same((await (await connect(host, 'its own pages')).report(7)).repeated, false);
  same((await take(host)).length, 1);
  const other = () => connect(host, 'other pages');
  if (globalThis.location) {
    await refused(host, other(), 'origin-refused', 'clients.origins');
    const error = await other().catch((/** @type {any} */ e) => e);
    same(error.message.endsWith(`it takes no reports of ${location.origin}, only of https://*.shop.example`), true);
  } else same((await (await other()).report(7)).repeated, false);
  same((await take(host)).length, globalThis.location ? 0 : 1);
};

for (const [answer, code] of [['epoch-closed', 'epoch-closed'], ['malformed', 'report-refused'],
  ['foreign-origin', 'origin-refused']]) {
  cases[`a relay's "${answer}" drops the report`] = async (host) => {
    await fail(host, String(answer));
    const doona = await connect(host, 'truthful');
    await refused(host, doona.report(7), String(code));
    same((await doona.report(7)).repeated, true);
    same(doona.dropped, 1);
    same(await doona.flush(), { delivered: 0, dropped: 0, waiting: 0 });
    same((await take(host)).length, 1);
  };
}

for (const answer of ['hostile-name', 'long-answer']) {
  cases[`a relay's "${answer}" is no relay's answer, and no error repeats it`] = async (host) => {
    await fail(host, answer);
    const doona = await connect(host, 'truthful');
    const error = await doona.report(7).catch((/** @type {any} */ e) => e);
    same([error.code, error.message], ['not-delivered', "couldn't deliver the report yet: the relay answered 400"]);
    await take(host);
    same(await doona.flush(), { delivered: 1, dropped: 0, waiting: 0 });
    same((await take(host)).map((s) => s.messages), [[['0007']]]);
  };
}

cases['an endless task is not read to its end'] = (host) => refused(host, connect(host, 'endless'), 'task-unreachable',
  'task');

/**
 * Returns ε₀ of randomized response over k symbols with the task's γ.
 * @param {number} k @param {import('../sdk/index.js').Task} task
 */
function krr(k, task) {
  const [num, den] = String(task.params.get('gamma')).split('/').map(Number);
  const gamma = Number(num) / Number(den);
  return Math.log(1 + (k * (1 - gamma)) / gamma);
}

/** ε₀ by protocol, computed from the task's parameters independently of the SDK. */
const left = /** @type {Record<string, (task: import('../sdk/index.js').Task) => number | null>} */ ({
  histogram: (task) => krr(task.input.bins, task),
  mean: (task) => krr(Number(task.params.get('k')) + 1, task),
  vector: (task) => Number(task.params.get('t')) * krr(Number(task.params.get('k')) + 1, task),
  vectorgrid: (task) => krr((Number(task.params.get('r')) + 1) ** task.input.bins, task),
  rappor: (task) => {
    const [num, den] = String(task.params.get('f')).split('/').map(Number);
    return Math.log(Number(den) / Number(num) - 1);
  },
  shares: () => null,
  correlated: () => null,
  vectormean: () => null,
});

for (const [name, epsilon0] of Object.entries(left)) {
  cases[`explain() states the facts of "${name}"`] = async (host) => {
    const doona = await connect(host, name);
    const { task } = doona;
    const { text, guarantee, promise, worstCase, unverified } = await doona.explain({ language: 'en' });
    const want = epsilon0(task);
    if (want === null) same(guarantee.localEpsilon, null);
    else same(Math.abs(Number(guarantee.localEpsilon) / want - 1) < 1e-6, true, `${guarantee.localEpsilon} is ${want}`);
    same([guarantee.epsilon, guarantee.delta, guarantee.batch, guarantee.minimumHonest], [1, 1e-6, 5000, 4500]);
    same(guarantee.epochs, name === 'correlated' ? 2 : 1);
    const { totalEpsilon } = guarantee; // Composition: two epochs cost at most twice as much as one.
    same(totalEpsilon === 1 || (guarantee.epochs === 2 && totalEpsilon > 1 && totalEpsilon <= 2), true,
      `total ${totalEpsilon}`);

    // The promise must name these numbers, rounded up.
    same(promise.includes('2.72 times') && promise.includes('epsilon 1,') && promise.includes('delta 0.000001'), true,
      promise);
    same(/together: epsilon (1\.\d+|2), delta 0\.000002/.test(promise), guarantee.epochs === 2, promise);
    const said = /epsilon ([0-9.]+) remains/.exec(worstCase)?.[1];
    same(said === undefined, want === null, worstCase);
    if (want !== null) same(Number(said) >= want * (1 - 1e-9) && Number(said) < want + 0.011, true,
      `${said} for ${want}`);
    same(worstCase.includes('no protection remains'), want === null, worstCase);

    const first = task.slots.padding === 'none' || ['correlated', 'vectormean'].includes(task.protocol);
    const several = !first && task.slots.perLane > 1;
    const names = ['honest-clients', 'relays', 'participation', 'no-flooding', ...(several ? ['whole-clients'] : []),
      'addresses', 'origins', ...(host.options.store ? ['page'] : []), 'storage'];
    same(unverified.map((assumption) => assumption.name), names);
    const words = Object.fromEntries(unverified.map((assumption) => [assumption.name, assumption.text]));
    same(words['honest-clients']?.includes('4,500 of the 5,000'), true);
    same(words['relays'], first
      ? 'that the first relay does not collude with the verifier'
      : 'that at least one of the 2 relays does not collude with the verifier');
    if (several) same(words['whole-clients']?.includes('first relay') && words['whole-clients'].includes('one batch'),
      true);
    same(words['no-flooding']?.includes('nothing protects'), want === null);
    for (const part of [promise, worstCase,
      ...unverified.map((assumption) => assumption.text)]) same(text.includes(part), true, part);
  };
}

/**
 * Makes the relay serve a variant of the stream. Returns how often the previous variant was fetched.
 * @param {Host} host @param {string} name
 */
async function serve(host, name) {
  return /** @type {number} */ (await (await control(host, 'stream', name)).json());
}

/** Runs `body` with the clock set some hours ahead. @template T @param {number} hours @param {() => Promise<T>} body */
async function later(hours, body) {
  const { now } = Date;
  Date.now = () => now() + hours * 3_600_000;
  try {
    return await body();
  } finally {
    Date.now = now;
  }
}

for (const sealing of paths) {
  cases[`${sealing}: a page that names a stream goes on from task to task, and asks once in an epoch`] = async (host) => {
    await serve(host, 'good');
    const store = host.sdk.memoryStore();
    /** @type {import('../sdk/store.js').Line[]} */
    const lines = [];
    const { claim } = store;
    store.claim = (task, epoch, permit) => claim.call(store, task, epoch, (spent) => {
      const line = permit(spent);
      lines.push(line);
      return line;
    });
    const doona = await connect(host, 'stream', { sealing, store });
    const paths = [];
    for (const hours of [0, 1, 2, 3]) {
      await later(hours, async () => {
        const receipt = await doona.report(hours);
        same(receipt.repeated, false);
        same((await doona.report(9)).repeated, true);
        const left = Number(receipt.next) - Date.now();
        same(left > 0 && left <= 3_600_000, true, 'the next epoch comes within the hour');
      });
      const [got, ...more] = await take(host);
      same(got?.error, '');
      same(got?.messages, [[`000${hours}`]]);
      same(more, []);
      paths.push(got?.path);
    }
    same(new Set(paths).size, 4, 'tasks');
    same(lines.map(({ runs }) => runs.map(({ count }) => count)), [[1], [2], [3], [4]], 'one line, without a gap');
    same(await serve(host, 'good'), 4, 'fetches');
    await later(4, () => refused(host, doona.report(1), 'task-ended'));
  };
}

/**
 * Returns the option `store` with an empty store. In a browser it returns no option: the case's IndexedDB is empty.
 * @param {Host} host
 */
function ownStore(host) {
  return host.options.store ? { store: host.sdk.memoryStore() } : {};
}

cases["a stream's task has ended: the next visit sends its last report, and later ones forget it"] = async (host) => {
  const options = ownStore(host);
  await serve(host, 'good');
  await fail(host, 'limit');
  await refused(host, (await connect(host, 'stream', options)).report(1), 'limit-reached');
  await take(host); // discards the refused submissions
  await later(1, async () => {
    const doona = await connect(host, 'stream', options);
    same(await doona.flush(), { delivered: 1, dropped: 0, waiting: 0 });
    same((await doona.report(2)).repeated, false);
    same(await doona.flush(), { delivered: 0, dropped: 0, waiting: 0 });
  });
  const got = await take(host);
  same(got.map((s) => [s.messages, s.error]), [[[['0001']], ''], [[['0002']], '']]);
  same(new Set(got.map(({ path }) => path)).size, 2, 'tasks');
  await fail(host, 'limit');
  await later(2, async () => refused(host, (await connect(host, 'stream', options)).report(3), 'limit-reached'));
  await later(9, async () => {
    const doona = await connect(host, 'stream', options).catch((/** @type {any} */ error) => error.code);
    if (doona !== 'task-ended') same([await doona.flush(), doona.dropped], [{ delivered: 0, dropped: 1, waiting: 0 }, 1]);
  });
  await take(host);
};

cases['a later visit finds the next task, and one in the same epoch asks nobody'] = async (host) => {
  const options = ownStore(host);
  await serve(host, 'good');
  same((await (await connect(host, 'stream', options)).report(1)).repeated, false);
  same((await (await connect(host, 'stream', options)).report(2)).repeated, true);
  same(await serve(host, 'good'), 1, 'fetches');
  same(await later(1, async () => (await (await connect(host, 'stream', options)).report(3)).repeated), false);
  same(await serve(host, 'good'), 1, 'fetches');
  await take(host);
};

for (const variant of ['headless', 'left out', 'out of order', 'twice', 'none', 'overlap', 'position', 'before',
  'renamed', 'stream.allow', 'stream.name', 'epochs.length', 'batch.min', 'claim.epsilon', 'clients.quota',
  'clients.origins', 'relays', 'relays.url', 'verifier.signKey', 'rotation forged', 'rotation of no party',
  'rotation unsaid', 'rolled back', 'replaced', 'replaced by a stranger']) {
  cases[`the "${variant}" stream is refused`] = async (host) => {
    await serve(host, variant);
    const visit = () => connect(host, 'stream',
      { store: host.sdk.memoryStore(), allow: ['relays.url', 'clients.quota'],
        ...variant === 'replaced' && { candidates: [] } });
    await refused(host, later(1, visit), 'stream-broken');
  };
}

for (const [variant, code] of [['junk lists', 'stream-broken'], ['junk tasks', 'stream-broken'],
  ['junk sizes', 'task-refused'], ['endless', 'task-unreachable']]) {
  cases[`the "${variant}" stream is refused`] = async (host) => {
    await serve(host, String(variant));
    await refused(host, connect(host, 'stream', ownStore(host)), String(code));
  };
}

cases['what page and first task both allow may change'] = async (host) => {
  await serve(host, 'renamed');
  const doona = await later(1, () => connect(host, 'stream', { store: host.sdk.memoryStore(), allow: ['name'] }));
  same(doona.task.name, 'renamed');
};

cases['a relay may replace its key, or be replaced by a relay that the page lists'] = async (host) => {
  for (const variant of ['rolled', 'replaced']) {
    await serve(host, variant);
    const doona = await later(1, () => connect(host, 'stream', { store: host.sdk.memoryStore() }));
    same(doona.task.stream?.position, 1, variant);
    same(doona.task.stream?.rotations.length, variant === 'rolled' ? 1 : 0);
    same(doona.task.relays[1]?.url, variant === 'rolled' ? 'https://second.example' : 'https://third.example');
  }
};

cases['a task that nobody signed is not kept, where WebCrypto has no Ed25519'] = async (host) => {
  const { importKey } = crypto.subtle;
  crypto.subtle.importKey = /** @type {any} */ ((/** @type {any[]} */ ...args) =>
    args[2] === 'Ed25519' ? Promise.reject(new DOMException('as the test asked',
      'NotSupportedError')) : Reflect.apply(importKey, crypto.subtle, args));
  try {
    const options = ownStore(host);
    const visit = () => connect(host, 'stream', { ...options, sealing: 'wasm' });
    await serve(host, 'unsigned');
    await refused(host, later(1, visit), 'task-refused');
    await serve(host, 'good');
    same((await later(1, visit)).task.stream?.position, 1);
    same(await serve(host, 'good'), 1, 'fetches');
    await later(1, visit);
    same(await serve(host, 'good'), 0, 'fetches of a cached stream');
  } finally {
    crypto.subtle.importKey = importKey;
  }
};

cases['a stream works when the store has no space to cache it'] = async (host) => {
  const inner = host.sdk.memoryStore();
  let refusals = 0;
  /** @type {import('../sdk/store.js').Store} */
  const store = { ...inner, put: async (report) => {
    if (report.task.startsWith('kept')) throw new host.sdk.DoonaError('storage-unavailable', `full: ${++refusals}`);
    await inner.put(report);
  } };
  await serve(host, 'good');
  const doona = await connect(host, 'stream', { store });
  same((await doona.report(1)).repeated, false);
  same(await later(1, async () => (await doona.report(2)).repeated), false);
  same(refusals > 1, true, 'documents were offered');
  same((await take(host)).length, 2);
};

cases['after earlier visits, forged, forked and replayed tasks of a stream are refused'] = async (host) => {
  const options = ownStore(host);
  const visit = () => connect(host, 'stream', options);
  await serve(host, 'forged');
  await refused(host, later(1, visit), 'task-refused');
  await serve(host, 'good');
  same((await later(2, visit)).task.stream?.position, 2, 'a forged task is not remembered');
  for (const [variant, code] of [['forked', 'stream-forked'], ['replayed', 'stream-replayed']]) {
    await serve(host, String(variant));
    await refused(host, later(3, visit), String(code));
  }
  await serve(host, 'good');
  const { task } = await later(3, visit);
  same(task.stream?.position, 3);
  await serve(host, 'forked');
  const other = await later(3, () => connect(host, 'stream', { store: host.sdk.memoryStore() }));
  same(other.task.epochs.start - task.epochs.start, 1, 'who saw neither takes either');
};

for (const [variant, code] of [['statement hidden', 'task-refused'], ['statement forged', 'stream-broken'],
  ['statement too far', 'stream-broken'], ['old owner', 'task-refused'], ['thief goes on', 'task-refused'],
  ['stopped', 'stream-stopped'], ['behind the end', 'stream-broken']]) {
  cases[`a stream with statements: "${variant}" is refused`] = async (host) => {
    await serve(host, String(variant));
    await refused(host, later(2, () => connect(host, 'stream', { store: host.sdk.memoryStore() })), String(code));
  };
}

cases['an owner transfers a stream, the recovery key takes it back, and the page remembers it'] = async (host) => {
  const options = ownStore(host);
  const visit = (/** @type {number} */ hours) => later(hours, () => connect(host, 'stream', options));
  await serve(host, 'good');
  await visit(1);
  await serve(host, 'handed on');
  same((await visit(2)).task.stream?.position, 2);
  await take(host);
  await later(2, async () => (await visit(0)).report(7));
  same((await take(host)).map((s) => s.messages), [[['0007']]]);
  await serve(host, 'good');
  await refused(host, visit(3), 'stream-replayed');
  await serve(host, 'other statement');
  await refused(host, visit(3), 'stream-forked');
  await serve(host, 'rescued');
  same((await visit(3)).task.stream?.position, 2);
  await serve(host, 'handed on');
  await refused(host, visit(4), 'stream-replayed');
  await serve(host, 'rescued');
  const { recovery: _, ...offer } = /** @type {any} */ (host.tasks['stream']);
  const withoutRecovery = { ...host, tasks: { ...host.tasks, stream: offer } };
  await refused(host, later(4, () => connect(withoutRecovery, 'stream', { store: host.sdk.memoryStore() })), 'stream-broken');
};

cases['options of streams are named'] = async (host) => {
  const { stream, owner } = host.tasks['stream'] ?? { owner: '' };
  const bad = (/** @type {object} */ options, /** @type {string} */ field) =>
    refused(host, connect(host, 'stream', options), 'invalid-option', field);
  await bad({ stream: stream?.replace('streams', 'tasks') }, 'stream');
  await bad({ task: host.tasks['mean']?.task }, 'task');
  await bad({ stream: undefined, task: stream, owner }, 'task');
  await bad({ allow: ['batch.size'] }, 'allow');
  await bad({ recovery: 'x' }, 'recovery');
  await refused(host, connect(host, 'mean', { allow: ['name'] }), 'invalid-option', 'allow');
};

/**
 * Returns the store of a tab that can die: from `die` on, it stores no sealed report any more.
 * @param {import('../sdk/store.js').Store} store the store that all tabs share
 */
function mortalTab(store) {
  let dead = false;
  /** @type {import('../sdk/store.js').Store} */
  const own = { ...store, update: (...args) => (dead ? new Promise(() => {}) : store.update(...args)) };
  return { store: own, die: () => (dead = true) };
}

/**
 * Runs `body` while the page dies before its report leaves the device.
 * @param {() => Promise<void>} body `died` resolves once the page wants to send
 * @param {(died: Promise<void>) => Promise<void>} watch
 */
async function diesSending(body, watch) {
  const { fetch } = globalThis;
  /** @type {() => void} */
  let tell = () => {};
  const died = new Promise((/** @type {(value: void) => void} */ resolve) => (tell = resolve));
  globalThis.fetch = (input, init) => {
    if (!String(input).endsWith('/reports')) return Reflect.apply(fetch, globalThis, [input, init]);
    tell();
    return new Promise(() => {});
  };
  try {
    void body().catch(() => {});
    await watch(died);
  } finally {
    globalThis.fetch = fetch;
  }
}

/**
 * Waits until `holds` returns true. @param {() => Promise<boolean>} holds
 * @param {number} [patience] the longest wait, in milliseconds
 */
async function until(holds, patience = Infinity) {
  const end = performance.now() + patience;
  while (!(await holds()) && performance.now() < end) await new Promise((resolve) => setTimeout(resolve, 2));
}

/**
 * Whether no window of a cap has more epochs than it allows.
 * @param {number[]} epochs @param {{reports: number, window: number}} cap
 */
function keeps(epochs, { reports, window }) {
  return epochs.every((from) => epochs.filter((at) => at >= from && at < from + window).length <= reports);
}

/**
 * Whether no block of a pace has more epochs than it allows. @param {number[]} epochs
 * @param {{reports: number, window: number}} pace @param {number} first an epoch with which a block begins
 */
function keepsPace(epochs, { reports, window }, first) {
  const blockOf = (/** @type {number} */ at) => Math.floor((at - first) / window);
  return epochs.every((one) => epochs.filter((at) => blockOf(at) === blockOf(one)).length <= reports);
}

// The page's own store can die between the steps of a report. The host's, IndexedDB in browsers, is decided on in the
// engine's worker.
for (const [name, own] of /** @type {const} */ ([['capped', true], ['capped', false], ['paced', true]])) {
  const where = own ? 'in tabs that die between record, sealing and sending' : "in tabs that share the runtime's store";
  cases[`"${name}": every pattern of visits in six days keeps its limits, ${where}`] = (host) =>
    onAFakeClock(async (set, arrived) => {
      /** @type {{reports: number, window: number} | undefined} */
      let cap;
      /** @type {{reports: number, window: number} | undefined} */
      let pace;
      let most = 0;
      // 13 of the 63 patterns in short runs; the last has a visit every day.
      const [first, step] = /** @type {any} */ (globalThis).doonaLong ? [1, 1] : [3, 5];
      for (let pattern = first; pattern < 64; pattern += step) {
        if (!own && pattern > first) await wipe(host); // Before, there may be no database.
        const store = host.sdk.memoryStore();
        let tab = mortalTab(store);
        const load = () => connect(host, name, own ? { store: tab.store } : {});
        set(0);
        let page = await load();
        ({ cap, pace } = page.task.epochs);
        const { start, length } = page.task.epochs;
        /** @type {number[]} */
        const made = [];
        /** @type {number[]} */
        const lost = [];
        arrived.length = 0;
        for (let i = 0; i < 6; i++) {
          const at = pattern % 3 === 1 ? 5 - i : i; // by a clock that runs backwards
          if (!(pattern >> at & 1)) continue;
          set(at);
          const block = own ? (await store.lines())[0]?.block : undefined;
          const tried = [...made, at];
          const fits = keeps(tried, /** @type {any} */ (cap)) &&
            (!pace || block === undefined || keepsPace(tried, pace, (block - start) / length));
          if (!fits) {
            await refused(host, page.report(at), 'cap-reached');
            await refused(host, (await load()).report(at), 'cap-reached');
            continue;
          }
          made.push(at);
          const how = (pattern * 5 + at) % (own ? 4 : 3);
          if (how === 0) same((await page.report(at)).repeated, false);
          else if (how === 1) {
            const tabs = [page, await load()];
            same((await Promise.all(tabs.map((tab) => tab.report(at)))).filter(({ repeated }) => !repeated).length, 1);
          } else if (how === 2) {
            await diesSending(async () => void (await page.report(at)), async (died) => {
              await died;
              page.close();
            });
            page = await load();
          } else {
            tab.die();
            page.report(at).catch(() => {});
            await until(async () => (await store.lines()).some(({ latest }) => latest?.epoch === at));
            page.close();
            lost.push(at);
            tab = mortalTab(store);
            page = await load();
          }
          same((await page.report(9)).repeated, true, 'the same day again');
        }
        const task = host.tasks[name]?.task.split('/').at(-1);
        const left = made.filter((at) => !lost.includes(at)).sort();
        same([...new Set(arrived)].sort(), left.map((at) => `${task}/epochs/${at}`), `pattern ${pattern}`);
        most = Math.max(most, made.length);
        page.close();
      }
      const { reports, window } = /** @type {any} */ (cap);
      const claimed = Math.floor(6 / window) * reports + Math.min(reports, 6 % window);
      if (pace) same(most <= claimed, true, 'M(6)'); // How many a pace allows is drawn.
      else same(most, claimed, 'M(6)');
    });
}

/**
 * The renewals that clients must refuse, by stream, in the test server's order (years.go, events.go): what another part
 * of the second task has, and the part's name.
 */
const renewals = {
  'capped years': [['more reports', 'cap'], ['a longer cap', 'cap'], ['a smaller pace', 'pace'],
    ['a longer pace', 'pace'], ['no pace', 'pace'], ['no limits', 'pace'], ['shorter epochs', 'epochs.length'],
    ['another total', 'claim.total']],
  'years with events': [['more events', 'events'], ['fewer events', 'events'], ['a longer window', 'events'],
    ['a shorter window', 'events'], ['another default', 'events'], ['no events', 'events'], ['a cap', 'cap'],
    ['shorter epochs', 'epochs.length'], ['another total', 'claim.total'], ['other origins', 'clients.origins']],
};

for (const [stream, refusals] of Object.entries(renewals)) {
  for (const [i, [what, part]] of refusals.entries()) {
    cases[`a renewal of the stream "${stream}" that has ${what} is refused`] = async (host) => {
      const renew = (/** @type {number} */ chain) => control(host, 'renew', { stream, chain });
      const visit = () => connect(host, stream, { store: host.sdk.memoryStore() });
      for (const chain of [0, 1, 3]) {
        await renew(chain);
        await visit();
      }
      await renew(4 + i);
      const { message } = await refused(host, visit(), 'stream-broken');
      same(message.endsWith(`the task at position 1 changes ${part}, which must stay`), true, message);
      await renew(0);
    };
  }
}

/** A budget for a visitor who reports daily for a year. */
const yearly = { epsilon: 10, delta: 1e-5, days: 365 };

/**
 * Returns the cost of the reports that arrived. The Go accountant in the test server computes it from the reports'
 * times alone.
 * @param {Host} host @param {string} what @param {boolean} [keep] whether later calls count these reports again
 * @param {string} [stream]
 * @returns {Promise<{reports: number, most: number, epsilon: number, delta: number}>}
 */
async function account(host, what, keep = false, stream = 'years') {
  const engine = globalThis.navigator?.userAgent ?? 'edge-runtime'; // edge-runtime has no navigator.userAgent
  return (await control(host, 'account', { ...yearly, what, engine, keep, stream })).json();
}

/** Deletes everything that the SDK has stored. @param {Host} host */
async function wipe(host) {
  if (host.options.store) {
    /** @type {any} */ (host.options).store = host.sdk.memoryStore();
    return;
  }
  const opening = indexedDB.open('doona');
  await new Promise((resolve) => (opening.onsuccess = resolve));
  const db = opening.result;
  const clearing = db.transaction([...db.objectStoreNames], 'readwrite');
  for (const name of db.objectStoreNames) clearing.objectStore(name).clear();
  await new Promise((resolve) => (clearing.oncomplete = resolve));
  db.close();
}

cases['a stream brings the keys of its current block, and a page asks only for keys that it lacks'] = async (host) => {
  const { stream = '', owner = '' } = host.tasks['years'] ?? {};
  await control(host, 'renew', { stream: 'years', chain: 0 });
  const { fetch } = globalThis;
  const asked = /** @type {string[]} */ ([]);
  let block = 0; // that the stream's task has
  globalThis.fetch = async (to, how) => {
    const [, path = ''] = /\/(streams|blocks)\//.exec(String(to)) ?? [];
    if (path) asked.push(path === 'blocks' ? String(to).replace(/.*\//, 'block ') : path);
    if (path !== 'streams') return fetch(to, how);
    const bundle = await fetch(`${stream.replace('/streams/', '/blocks/')}/${block}`);
    return new Response(Uint8Array.of(0x92, 0x91, ...new Uint8Array(await bundle.arrayBuffer()), 0x90));
  };
  try {
    const page = { ...host.options, stream, owner, budget: yearly, spread: 0, flush: false, ...ownStore(host) };
    const doona = await host.sdk.connect(page);
    for (const [day, served, want] of /** @type {[number, number, string][]} */ ([[0, 0, 'streams'], [7, 0, 'streams'],
      [8, 1, 'streams'], [9, 0, 'streams'], [16, 1, 'streams,block 2'], [17, 2, 'streams']])) {
      block = served;
      await later(24 * day, async () => same((await doona.report(1)).epoch, day));
      same(asked.splice(0).join(), want, `day ${day}`);
    }
  } finally {
    globalThis.fetch = fetch;
  }
  same((await take(host)).map(({ error }) => error), ['', '', '', '', '', '']);
};

/**
 * Runs `body` with a page in two tabs and a clock that `visit` sets to a day of the stream "years".
 * @param {Host} host
 * @param {(visit: (day: number) => Promise<boolean>, load: () => Promise<void>) => Promise<void>} body `visit`
 *   reports from both tabs and returns whether one reported for the first time; `load` reloads the page in both
 */
async function years(host, body) {
  const { stream = '', owner = '' } = host.tasks['years'] ?? {};
  const { now } = Date;
  let [ahead, renewed] = [0, 0];
  Date.now = () => now.call(Date) + ahead * 86_400_000;
  /** @type {import('../sdk/doona.js').Doona[]} */
  let tabs = [];
  const load = async () => {
    const page = { ...host.options, stream, owner, budget: yearly, spread: 0, flush: false };
    tabs = [await host.sdk.connect(page), await host.sdk.connect(page)];
  };
  const visit = async (/** @type {number} */ day) => {
    ahead = day;
    renewed = Math.max(renewed, Math.min(3, Math.floor((day + 30) / 100))); // 30 days ahead
    await control(host, 'renew', { stream: 'years', chain: renewed });
    const receipts = await Promise.all(tabs.map((tab, i) => tab.report((day + i) % 16)));
    const first = receipts.filter(({ repeated }) => !repeated).length;
    same(first <= 1, true, 'two tabs report once');
    same(receipts[0]?.epoch, day % 100);
    return first === 1;
  };
  try {
    await control(host, 'renew', { stream: 'years', chain: 0 });
    await account(host, 'before');
    await load();
    await body(visit, load);
  } finally {
    Date.now = now;
    await control(host, 'renew', { stream: 'years', chain: 0 });
    await take(host);
  }
}

/** Returns the days, of 400, on which the visitor comes: every `stride` days. @param {Host} host @returns {number[]} */
function visits({ tasks }) {
  const stride = tasks['years']?.stride ?? 1;
  return Array.from({ length: 400 / stride }, (_, i) => i * stride);
}

cases['400 days: a page built once goes on through three successors, within its budget'] = (host) =>
  years(host, async (visit, load) => {
    /** @type {Set<number>} */
    const seen = new Set();
    const once = async (/** @type {number} */ day) => {
      same(await visit(day), !seen.has(day), `day ${day}`);
      seen.add(day);
    };
    for (const day of visits(host)) {
      await once(day);
      if (day % 100 === 50) { // The clock jumps ahead and back.
        await once(day + 25);
        await once(day - 15);
      }
      if (day === 249) await load(); // only in long runs, which visit on every day
    }
    for (const [day, code] of [[4000, 'task-ended'], [-4000, 'epoch-not-open']]) {
      await refused(host, visit(Number(day)), String(code));
    }
    same(await visit(200), false); // The ledger still has the earlier reports.
    await refused(host, (await within(host, 'year', yearly)).report(1), 'budget-exceeded', 'budget');
    const { reports, most, epsilon, delta } = await account(host, 'one store');
    same(reports, seen.size);
    same(most <= 365 && epsilon <= 10 && delta <= 1e-5, true, `${most} reports: ${epsilon}, ${delta}`);
  });

cases['400 days: a wiped store begins its budget anew, and each stays within it'] = (host) =>
  years(host, async (visit, load) => {
    const wiped = 200;
    const days = visits(host).filter((day, _, { length }) => length > 100 || day === 150 || day === wiped);
    for (const day of days) {
      same(await visit(day), true);
      if (day !== wiped) continue;
      same(await visit(day), false);
      const before = await account(host, 'before the store was wiped', true);
      same(before.delta <= 1e-5, true);
      await wipe(host);
      await load();
      same(await visit(day), true, 'a second draw in one epoch');
    }
    const all = await account(host, 'both stores');
    same(all.reports, days.length + 1);
    same(all.most, days.filter((day) => day < 365).length + 1);
  });

/** Returns pseudo-random numbers in [0, 1) (mulberry32). @param {number} seed */
function seeded(seed) {
  return () => {
    seed = seed + 0x6d2b79f5 | 0;
    let t = Math.imul(seed ^ seed >>> 15, 1 | seed);
    t = t + Math.imul(t ^ t >>> 7, 61 | t) ^ t;
    return ((t ^ t >>> 14) >>> 0) / 2 ** 32;
  };
}

cases['a year of days at random: what leaves costs at most the claim'] = async (host) => {
  const long = /** @type {any} */ (globalThis).doonaLong;
  const seed = long ? Date.now() : 46;
  const random = seeded(seed);
  const chance = (/** @type {number} */ p) => random() < p;
  const stream = 'capped years';
  const { now } = Date;
  const store = host.sdk.memoryStore();
  let tab = mortalTab(store);
  let ahead = 0;
  Date.now = () => now.call(Date) + ahead * 86_400_000;
  const { task: _, ...offer } = /** @type {any} */ (host.tasks[stream]);
  const load = () => host.sdk.connect({ ...host.options, ...offer, budget: yearly, spread: 0, flush: false,
    store: tab.store });
  try {
    await control(host, 'renew', { stream, chain: 3 });
    await account(host, 'before', false, stream);
    let page = await load();
    const { start, length, cap, pace } = page.task.epochs;
    let [refusals, day] = [0, 0];
    for (let visit = 0; day < 399; visit++) {
      day = Math.min(399, day + (long ? 1 : 1 + Math.floor(random() * 14)));
      ahead = chance(0.1) ? Math.min(399, Math.max(0, day + Math.floor(random() * 80) - 40)) : day; // the clock leaps
      if (chance(0.2)) {
        page.close();
        page = await load();
      }
      const value = Math.floor(random() * 16);
      const outcomes = (/** @type {Promise<{repeated: boolean}>[]} */ reports) =>
        Promise.all(reports.map((report) => report.catch((/** @type {any} */ error) => {
          if (error.code !== 'cap-reached') throw error;
          refusals++;
        })));
      const claims = JSON.stringify(await store.lines());
      const fate = random();
      if (fate < 0.15) {
        const other = await load();
        await outcomes([page.report(value), other.report(15 - value)]);
        other.close();
      } else if (fate < 0.3) {
        tab.die();
        const outcome = page.report(value).catch((/** @type {any} */ error) => error.code);
        const refusal = outcome.then((code) => code === 'cap-reached');
        // An epoch that has its report changes nothing.
        await Promise.race([refusal, until(async () => JSON.stringify(await store.lines()) !== claims, 300)]);
        page.close();
        tab = mortalTab(store);
        page = await load();
      } else if (fate < 0.45) {
        await diesSending(async () => void (await page.report(value)), async (died) => {
          await Promise.race([died, new Promise((resolve) => setTimeout(resolve, 300))]);
          page.close();
        });
        page = await load();
      } else await outcomes([page.report(value)]);
    }
    const [line] = await store.lines();
    const made = (line?.runs ?? []).flatMap((run) =>
      Array.from({ length: run.count }, (_, i) => (run.start - start) / length + i));
    const first = (Number(line?.block) - start) / length;
    same(keeps(made, /** @type {any} */ (cap)) && keepsPace(made, /** @type {any} */ (pace), first), true,
      `limits, seed ${seed}`);
    const { reports, most, epsilon, delta } = await account(host, 'at random', false, stream);
    same(reports <= made.length && reports > 5 && refusals > 5, true,
      `${reports} of ${made.length}, ${refusals} refusals, seed ${seed}`);
    same(most <= 20 && epsilon <= 10 && delta <= 1e-5, true, `${most} reports: ${epsilon}, ${delta}, seed ${seed}`);
  } finally {
    Date.now = now;
    await control(host, 'renew', { stream, chain: 0 });
    await take(host);
  }
};

/** Reports in the middle of an hour, and waits until the report is sealed. @param {Host} host @param {string} name */
async function reportLater(host, name) {
  const store = host.options.store ?? host.sdk.memoryStore();
  const doona = await connect(host, name, { store, spread: 3_600_000 });
  const outcome = doona.report(7).then(() => 'reported', (/** @type {any} */ error) => error.code);
  const id = String(host.tasks[name]?.task.split('/').at(-1));
  while ((await store.sealed(id)).length === 0) await new Promise((resolve) => setTimeout(resolve, 10));
  return { doona, store, id, outcome };
}

cases['forget drops the sealed report and keeps the ledger: the epoch is not reported again'] = (host) =>
  halfway(async () => {
    const { doona, store, id, outcome } = await reportLater(host, 'truthful');
    const lines = JSON.stringify(await store.lines());
    const { reports, text } = await doona.forget();
    same(reports, 1);
    same(text.startsWith('Dropped 1 sealed report that was not delivered. The ledger stays'), true, text);
    same(await outcome, 'withdrawn');
    same(await store.sealed(id), []);
    same(JSON.stringify(await store.lines()), lines, 'ledger');
    const again = await doona.report(8);
    same([again.repeated, again.bytes], [true, 0]);
    same((await doona.forget()).reports, 0);
    same((await (await connect(host, 'truthful', { store })).flush()).delivered, 0);
    same(await take(host), []);
  });

cases['forget while a value is sealed: nothing is kept, and the epoch is not reported again'] = async (host) => {
  const doona = await connect(host, 'truthful');
  const outcome = doona.report(7).then(() => 'reported', (/** @type {any} */ error) => error.code);
  const { reports } = await doona.forget();
  same([await outcome, reports], ['withdrawn', 0]);
  await new Promise((resolve) => setTimeout(resolve, 300)); // until it would be sealed
  same((await doona.flush()).waiting, 0);
  same(await take(host), []);
};

cases['forget drops what another tab seals in the current month'] = async (host) => {
  const store = host.sdk.memoryStore();
  const doona = await connect(host, 'months', { store });
  const task = String(host.tasks['months']?.task.split('/').at(-1));
  await store.claim(task, 1, (lines) => lines[0] ?? /** @type {any} */ ({ id: 'another tab', runs: [] }));
  const end = new Date(doona.task.epochs.start * 1000);
  end.setUTCMonth(end.getUTCMonth() + 1);
  await later((Number(end) - Date.now()) / 3_600_000 + 1, () => doona.forget());
  let state = '';
  await store.update(task, 1, (report) => void (state = report.state));
  same(state, 'dropped');
};

cases['close ends all calls; the sealed report stays for the next visit'] = (host) => halfway(async () => {
  const { doona, store, outcome } = await reportLater(host, 'truthful');
  doona.close();
  doona.close();
  same(await outcome, 'closed');
  await refused(host, doona.report(8), 'closed');
  await refused(host, doona.flush(), 'closed');
  same((await doona.explain()).guarantee.epsilon, doona.guarantee.epsilon);
  same(await take(host), []);
  const next = await connect(host, 'truthful', { store });
  same(await next.flush(), { delivered: 1, dropped: 0, waiting: 0 });
  same((await take(host)).map((s) => s.messages), [[['0007']]]);
});

cases['a closed connection can still forget'] = (host) => halfway(async () => {
  const { doona, store } = await reportLater(host, 'truthful');
  doona.close();
  same((await doona.forget()).reports, 1);
  same((await (await connect(host, 'truthful', { store })).flush()).delivered, 0);
  same(await take(host), []);
});

cases['close during a request to the relay aborts it, and other connections go on'] = async (host) => {
  const { fetch } = globalThis;
  const [doona, other] = await Promise.all(['truthful', 'one relay'].map((name) => connect(host, name)));
  /** @type {(signal: AbortSignal | null | undefined) => void} */
  let asked = () => {};
  /** @type {Promise<AbortSignal | null | undefined>} */
  const asking = new Promise((resolve) => (asked = resolve));
  globalThis.fetch = (url, init) => {
    if (!String(url).endsWith('/reports')) return Reflect.apply(fetch, globalThis, [url, init]);
    asked(init?.signal);
    return new Promise((_, reject) => init?.signal?.addEventListener('abort', () => reject(init.signal?.reason)));
  };
  try {
    const outcome = doona?.report(7).then(() => 'reported', (/** @type {any} */ error) => error.code);
    const signal = await asking;
    doona?.close();
    same(await outcome, 'closed');
    same(signal?.aborted, true, 'aborted');
  } finally {
    globalThis.fetch = fetch;
  }
  same((await other?.report(258))?.repeated, false);
  same((await take(host)).map((s) => s.messages), [[['0102']]]);
};

cases['forget drops the sealed reports of all tasks of a stream; close ends its calls'] = async (host) => {
  const options = { store: host.options.store ?? host.sdk.memoryStore() };
  await serve(host, 'good');
  await fail(host, 'limit');
  await refused(host, (await connect(host, 'stream', options)).report(1), 'limit-reached');
  await take(host); // discards the refused submission
  await later(1, () => halfway(async () => {
    const doona = await connect(host, 'stream', { ...options, spread: 3_600_000 });
    const outcome = doona.report(7).then(() => 'reported', (/** @type {any} */ error) => error.code);
    const current = (/** @type {string} */ id) => options.store.sealed(id);
    const opened = await options.store.sealed(`opened ${host.tasks['stream']?.stream?.split('/').at(-1)}`);
    const ids = opened.map(({ body }) => JSON.parse(new TextDecoder().decode(body)).id);
    while ((await Promise.all(ids.map(current))).flat().length < 2) {
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    same((await doona.forget()).reports, 2);
    same(await outcome, 'withdrawn');
    same((await doona.report(8)).repeated, true);
    doona.close();
    await refused(host, doona.report(8), 'closed');
    await refused(host, doona.flush(), 'closed');
    same(await (await connect(host, 'stream', options)).flush(), { delivered: 0, dropped: 0, waiting: 0 });
  }));
  same(await take(host), []);
};

// Every case closes its connections: while a draft waits, its timer keeps the process alive.
for (const [name, run] of Object.entries(cases)) {
  cases[name] = async (host) => {
    /** @type {import('../sdk/doona.js').Doona[]} */
    const opened = [];
    const connect = async (/** @type {any} */ options) => {
      const doona = await host.sdk.connect(options);
      opened.push(doona);
      return doona;
    };
    try {
      await run({ ...host, sdk: { ...host.sdk, connect } });
    } finally {
      for (const doona of opened) doona.close();
    }
  };
}
