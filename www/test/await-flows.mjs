// What a visitor's page does with the SDK while one of its awaits hangs, for awaits.test.mjs. The test sends this
// function to the page, so it must not use anything else in this file.

/**
 * A step of a flow: its name, what it does, and its outcome if nothing hangs: `done` unless another is given.
 * @typedef {[step: string, call: () => unknown, outcome?: string]} Step
 */

/**
 * What the flows use of their page. `it.doona` is the connection or client of the flow. `pause` takes real time, and
 * `until` waits for a client to leave some states.
 * @typedef {object} Tools
 * @property {{doona: any}} it
 * @property {any} sdk
 * @property {Record<string, any>} tasks
 * @property {object} options
 * @property {(milliseconds: number) => Promise<unknown>} pause
 * @property {(states: string[]) => Promise<void>} until
 */

/**
 * Returns the flows by name. Those with a name that ends in "in place" run on pages without workers.
 * @param {Tools} tools
 * @returns {Record<string, () => Step[]>}
 */
export function flowsOf({ it, sdk, tasks, options, pause, until }) {
  const { connect, init, memoryStore } = sdk ?? {};
  const hour = 3_600_000;
  const noisy = 'year, noise by relays';

  /** Answers requests to addresses with this part, at most `times`. */
  const answer = (/** @type {string} */ part, /** @type {() => any} */ response, times = Infinity) => {
    const { fetch } = globalThis;
    globalThis.fetch = (to, how) =>
      String(to).includes(part) && times-- > 0 ? Promise.resolve(response()) : fetch(to, how);
  };
  const problem = (/** @type {string} */ name, /** @type {number} */ status, headers = {}) =>
    new Response(`{"type":"urn:doona:error:${name}"}`,
      { status, headers: { 'Content-Type': 'application/problem+json', ...headers } });
  /** @returns {Step} */
  const refuse = (/** @type {string} */ name, /** @type {number} */ status, headers = {}, times = Infinity) =>
    ['refuse', () => answer('/reports', () => problem(name, status, headers), times)];
  const busy = /** @type {const} */ (['overloaded', 503, { 'Retry-After': '60' }]); // A call does not wait so long.
  /** @returns {Step} */
  const serve = (/** @type {string} */ variant) =>
    ['serve', () => answer('/v1/streams/', () => fetch(`/variant/${encodeURIComponent(variant)}`))];
  /** @returns {Step} */
  const turnClock = (/** @type {number} */ by) => ['turn the clock', () => {
    const { now } = Date;
    Date.now = () => now() + by;
  }];
  const hide = () => {
    Object.defineProperty(document, 'visibilityState', { value: 'hidden', configurable: true });
    document.dispatchEvent(new Event('visibilitychange', { bubbles: true }));
  };
  /** @type {Step} */
  const leave = ['leave', async () => {
    hide();
    await pause(400);
  }];
  const own = (/** @type {Record<string, string>} */ offer) => Object.fromEntries(Object.entries(offer).map(
    ([name, value]) => [name, /^(task|stream)$/.test(name) ? location.origin + new URL(value).pathname : value]));

  /** @returns {Step} */
  const connecting = (/** @type {string} */ task, more = {}, step = 'connect', want = 'done') =>
    [step, async () => (it.doona = await connect({ ...tasks[task], ...options, ...more })), want];
  /** @returns {Step} */
  const report = (want = 'done', step = 'report', value = /** @type {any} */ (1)) =>
    [step, () => it.doona.report(value), want];
  /** @returns {Step} */
  const draft = (/** @type {number} */ value, step = 'report', want = 'done') =>
    [step, () => it.doona.report(value, { final: false }), want];
  /** @type {Step} */
  const flush = ['flush', () => it.doona.flush()];
  /** @type {Step} */
  const forget = ['forget', () => it.doona.forget()];
  /** @type {Step} */
  const close = ['close', () => it.doona.close()];
  /** @returns {Step[]} */
  const strict = (/** @type {string} */ task, more = {}, want = 'done', later = want) =>
    [connecting(task, more), report(want), report(later, 'report again'), flush, forget];

  const sent = () => until(['connecting', 'ready', 'sending']);
  /** @returns {Step} */
  const start = (/** @type {object} */ offer, more = {}, step = 'init') =>
    [step, () => void (it.doona = init({ ...offer, ...options, ...more }))];
  /** @returns {Step} */
  const tell = (step = 'report') => [step, () => (it.doona.report(1), sent())];
  /** @returns {Step[]} */
  const easy = (more = {}, /** @type {object} */ offer = tasks['truthful']) => [
    start(offer, more), ['explain', () => it.doona.explain()], ['optIn', () => it.doona.optIn()], tell(), forget,
    ['optOut', () => it.doona.optOut()], ['optIn again', () => it.doona.optIn()], tell('report again')];

  /** A store, and the same store with other methods. */
  const changed = (/** @type {(store: any) => object} */ change) => {
    const store = memoryStore();
    return { ...store, ...change(store) };
  };
  const forgetting = () => changed((store) => ({ claim: async (/** @type {any[]} */ ...given) => {
    const old = await store.claim(...given);
    it.doona.forget().catch(() => {});
    return old;
  } }));
  /** Drops a report, as another tab would. */
  const drop = (/** @type {any} */ store, /** @type {string} */ task, epoch = 0) =>
    store.update(task, epoch, () => ({ task, epoch, state: 'dropped' }));
  const dropping = () => changed((store) => ({ claim: async (/** @type {any[]} */ ...given) => {
    const old = await store.claim(...given);
    await drop(store, given[0], given[1]);
    return old;
  } }));
  const optingOut = () => changed((store) => ({ put: (/** @type {any} */ report) => {
    if (report.task === 'opted out' && report.state === 'dropped') void it.doona.optOut();
    return store.put(report);
  } }));
  const idOf = (/** @type {string} */ task) => String(tasks[task].task.split('/').at(-1));

  /** Fills the cache of documents: 16 of other tasks, one whose time is over, and a wrong one of this task. */
  const fillCache = (/** @type {string} */ task) => new Promise((resolve, reject) => {
    const opening = indexedDB.open('doona', 2);
    opening.onupgradeneeded = () => {
      opening.result.createObjectStore('reports', { keyPath: ['task', 'epoch'] });
      opening.result.createObjectStore('lines', { keyPath: 'id' });
    };
    opening.onerror = reject;
    opening.onsuccess = () => {
      const tx = opening.result.transaction(['reports'], 'readwrite');
      for (let key = 1; key <= 18; key++) {
        const entry = { name: key === 18 ? `task ${idOf(task)}` : `task ${key}`, hash: '', size: 1, at: key,
          end: key === 17 ? 0 : Date.now() + hour };
        const body = new TextEncoder().encode(JSON.stringify(entry));
        tx.objectStore('reports').put({ task: 'kept', epoch: key, state: 'sealed', body });
      }
      tx.oncomplete = () => resolve(opening.result.close());
    };
  });
  /** A stream of 200 tasks without content. */
  const manyTasks = () => {
    const empty = [0x96, 0xc4, 0, 0xc4, 32, ...Array(32).fill(0), 0xc4, 64, ...Array(64).fill(0), 0x90, 0, 0x90];
    return new Response(new Uint8Array([0x92, 0xdc, 0, 200, ...Array(200).fill(empty).flat(), 0x90]));
  };
  /** Lets the browser close the connection to IndexedDB before its next transaction. */
  const closeConnection = () => {
    const { transaction } = IDBDatabase.prototype;
    IDBDatabase.prototype.transaction = function (...given) {
      IDBDatabase.prototype.transaction = transaction;
      this.close();
      return transaction.apply(this, given);
    };
  };
  /** Lets the running WASM module stop at its next random bytes. */
  const stopModule = () => {
    const { getRandomValues } = crypto;
    crypto.getRandomValues = /** @type {any} */ ((/** @type {any} */ out) => {
      if (out instanceof Uint8Array && out.length !== 16) { // The tests of the builtins draw 16 bytes.
        crypto.getRandomValues = getRandomValues;
        throw new Error('as the test asked');
      }
      return getRandomValues.call(crypto, out);
    });
  };

  return {
    task: () => [...strict('truthful'), close],
    'task in place': () => strict('truthful', { when: 'now' }),
    'task with its own store': () => strict('truthful', { store: memoryStore() }),
    tokens: () => strict('tokens'),
    stream: () => strict('stream', { when: 'now' }),
    'post-quantum': () => strict('post-quantum'),
    'no value of the task': () => [connecting('truthful'), report('invalid-value', 'report', 1000)],
    'no value of the module': () => [connecting('vectormean'), report('invalid-value', 'report', [9, 9, 9, 9])],
    'sealing in doona-full.wasm': () => strict('truthful', { sealing: 'wasm' }),
    'a protocol of doona.wasm': () => strict('correlated'),
    'a module stops in place': () => [connecting('truthful'), ['stop', stopModule], report(),
      report('done', 'report again')],
    'part of a bundle in place': () => [
      ['bundle', () => void Object.assign(globalThis, { ServiceWorkerGlobalScope: {} })], ...strict('tokens')],
    'a later block': () => [connecting('year'), report(), close, turnClock(200 * hour),
      connecting('year', {}, 'connect again'), report('done', 'report again'), close],
    'a full cache': () => [['fill', () => fillCache('truthful')], ...strict('truthful')],
    'the browser closes IndexedDB': () => [connecting('truthful'), ['lose', closeConnection], report()],
    'not sampled': () => strict('truthful', { sample: 0 }),

    undelivered: () => [refuse('overloaded', 503), connecting('truthful'), report('not-delivered'), flush,
      ['online', async () => (dispatchEvent(new Event('online')), pause(200))], forget],
    'undelivered for long': () => [refuse(...busy), connecting('truthful'), report('not-delivered'),
      turnClock(2 * hour), flush],
    limited: () => [refuse('limit', 429), ...strict('truthful', {}, 'limit-reached')],
    'limited, and the clock turned back': () => [refuse('limit', 429), connecting('truthful'), report('limit-reached'),
      turnClock(-30_000), report('limit-reached', 'report again')],
    'too late': () => [refuse('epoch-closed', 409), ...strict('truthful', {}, 'epoch-closed', 'done')],
    'token refused by the relay': () => [refuse('limit', 429), ...strict('tokens', {}, 'limit-reached', 'done')],
    'token refused by the issuer': () =>
      strict('tokens', { tokens: async () => problem('limit', 429) }, 'limit-reached'),
    'an issuer that recovers': () => [
      ['refuse', () => answer('/issuer-directory', () => problem('internal', 503), 1)], ...strict('tokens')],
    'tokens at the next view': () => [refuse(...busy, 1), connecting('tokens'), report('not-delivered'), close,
      connecting('tokens', {}, 'connect again'), ['wait', () => pause(300)]],
    'forgotten meanwhile': () => [connecting('truthful', { store: forgetting() }), report('withdrawn'), flush],
    'dropped in another tab': () => [connecting('truthful', { store: dropping() }), report('withdrawn'), flush],
    'dropped before a retry': () => {
      const store = memoryStore();
      return [['refuse', () => answer('/reports', () => (drop(store, idOf('truthful')), problem('overloaded', 503)))],
        connecting('truthful', { store }), report('withdrawn')];
    },

    drafts: () => [connecting(noisy), draft(1), draft(2, 'report again'), leave, report('done', 'report at last')],
    'a draft of another page': () => [connecting(noisy), draft(1), connecting(noisy, {}, 'connect again'),
      draft(2, 'report again'), flush, forget],
    'a draft of a hidden page': () => [['hide', hide], connecting(noisy), draft(1), ['leave', () => pause(400)]],
    'a late draft': () => [connecting(noisy), draft(1), turnClock(48 * hour), leave, flush],
    'a draft forgotten meanwhile': () => [connecting(noisy, { store: forgetting() }), draft(1, 'report', 'withdrawn')],
    'drafts by init': () => [start(tasks[noisy]), ['report', async () => {
      it.doona.report(1, { final: false });
      await until(['connecting', 'ready', 'sending']);
    }], leave, ['wait', () => until(['draft', 'sending'])], ['optOut', () => it.doona.optOut()]],
    events: () => [connecting('events'), ['wait', () => pause(300)], report(), report('done', 'report again'),
      flush, turnClock(25 * hour), leave, close],

    'a stream with events': () => [connecting('years with events'), ['wait', () => pause(300)], report(), flush, close],
    'a stream goes on': () => [connecting('stream'), report(), turnClock(1.5 * hour), report('done', 'report again'),
      flush, forget, close],
    "a stream's later block": () => [['offer', () => void delete tasks['years'].stride], // It is for other tests.
      connecting('years'), report(), turnClock(200 * hour), report('done', 'report again'), close],
    'a stream that is over': () => [turnClock(5 * hour), connecting('stream'), report('task-ended'), flush],
    'a stream with statements': () => [serve('rescued'), ...strict('stream')],
    // The test server's relay does not know the task with the new key.
    'a stream with a new key': () => [serve('rolled'), turnClock(hour),
      ...strict('stream', {}, 'report-refused', 'done')],
    'a stream of many tasks': () => [['serve', () => answer('/v1/streams/', manyTasks)],
      connecting('stream', {}, 'connect', 'task-refused')],
    'a stream of many tasks in place': () => [['serve', () => answer('/v1/streams/', manyTasks)],
      connecting('stream', {}, 'connect', 'task-refused')],

    init: () => easy(),
    'init, consent pending': () => easy({ consent: 'pending', store: memoryStore() }),
    "init on the relay's origin": () => easy({ consent: 'pending' }, own(tasks['truthful'])),
    "init on the relay's origin, stream": () => easy({ consent: 'pending' }, own(tasks['stream'])),
    'init with tokens': () => [start(tasks['tokens']), tell(), ['optOut', () => it.doona.optOut()]],
    'the next view': () => [start(tasks['truthful']), tell(), close, start(tasks['truthful'], {}, 'init again'),
      tell('report again'), ['explain', () => it.doona.explain()], close],
    'the next view of an undelivered report': () => [refuse(...busy), connecting('stream'), report('not-delivered'),
      turnClock(hour), report('not-delivered', 'report again'), close, start(tasks['stream'], {}, 'init again'),
      ['wait', () => until(['connecting'])], ['optOut', () => it.doona.optOut()]],
    'opted out while opting in': () => [start(tasks['truthful'], { store: optingOut() }),
      ['optOut', () => it.doona.optOut()], ['optIn', () => it.doona.optIn()]],
    'opted out in another tab': () => {
      /** @type {any} */
      let other;
      return [start(tasks['truthful']), ['init again', () => void (other = init({ ...tasks['truthful'], ...options }))],
        tell(), ['optOut', () => other.optOut()], ['wait', () => pause(300)], ['optIn', () => other.optIn()],
        tell('report again')];
    },
  };
}
