// Replaces builtins of JavaScript in a page, for builtins.test.mjs and the tests of other engines. The tests send these
// functions to the page, so they must not use anything else in this file.

/**
 * Lists the builtins that a script may use. It finds them by the names of globals and of properties in the code; one
 * name, such as slice, may mean several builtins. It leaves out fetch, timers and locks, because tests and frameworks
 * replace them.
 * @param {string} code
 * @returns {string[]}
 */
export function builtinsOf(code) {
  const words = new Set(code.match(/[A-Za-z_$][\w$]*/g));
  const read = new Set([...code.matchAll(/\.([A-Za-z]\w*)/g)].map((match) => match[1]));
  const all = /** @type {any} */ (globalThis);
  /** @type {Set<string>} */
  const names = new Set();
  for (const name of ['Array', 'ArrayBuffer', 'BigInt', 'DataView', 'Date', 'Float64Array', 'JSON', 'Map', 'Math',
    'Number', 'Object', 'Promise', 'RegExp', 'Set', 'String', 'TextDecoder', 'TextEncoder', 'URL', 'Uint32Array',
    'Uint8Array', 'WeakMap', 'WebAssembly', 'atob', 'btoa', 'parseInt']) {
    if (!words.has(name)) continue;
    if (typeof all[name] === 'function') names.add(name);
    for (const key of Object.getOwnPropertyNames(all[name])) {
      if (read.has(key) && typeof all[name][key] === 'function') names.add(`${name}.${key}`);
    }
    for (let at = all[name].prototype, of = name; at && at !== Object.prototype; at = Object.getPrototypeOf(at)) {
      if (at === Object.getPrototypeOf(Uint8Array.prototype)) of = 'TypedArray';
      for (const key of Object.getOwnPropertyNames(at)) {
        const { value } = Object.getOwnPropertyDescriptor(at, key) ?? {};
        if (typeof value === 'function' && key !== 'constructor' && read.has(key)) names.add(`${of}.prototype.${key}`);
      }
    }
  }
  for (const key of ['digest', 'importKey', 'exportKey', 'generateKey', 'verify', 'sign', 'encrypt', 'deriveBits']) {
    if (read.has(key)) names.add(`crypto.subtle.${key}`);
  }
  for (const more of ['crypto.getRandomValues', 'Array.from', 'Array.prototype.@@iterator', 'Map.prototype.@@iterator',
    'Set.prototype.@@iterator', 'TypedArray.prototype.@@iterator', 'Object.prototype.toJSON',
    'Array.prototype.toJSON']) names.add(more);
  return [...names];
}

/**
 * @typedef {object} Tries
 * @property {string[]} names of the builtins
 * @property {boolean} inPlace whether the engine runs in the page
 * @property {boolean} each whether to replace the builtins whose replacement the SDK accepts one by one, and not all at
 * once
 * @property {{task: string, owner: string}[]} tasks two tasks of ε = 1
 */

/**
 * Replaces each builtin in turn. Each time, a new visitor reports the value 7 to two tasks under a budget of ε = 1.5.
 * @param {Tries} tries
 */
export async function tryBuiltins({ names, inPlace, each, tasks }) {
  const { Error, Object, Promise, Reflect, String, Worker, indexedDB, setTimeout } = globalThis;
  const { getOwnPropertyDescriptor, getPrototypeOf } = Object;
  const { apply, construct, defineProperty, deleteProperty } = Reflect;
  const { iterator } = Symbol;
  const { split, startsWith } = String.prototype;
  const { slice } = Array.prototype;
  const TypedArray = getPrototypeOf(Uint8Array);

  /** @type {Worker[]} */
  const workers = [];
  if (inPlace) deleteProperty(globalThis, 'Worker');
  else {
    globalThis.Worker = class extends Worker {
      /** @param {string | URL} url @param {WorkerOptions} [options] */
      constructor(url, options) {
        super(url, options);
        workers[workers.length] = this;
      }
    };
  }
  const load = (/** @type {string} */ file) => import(file);
  const loaded = await load('/doona.js');

  /** Replacements as known libraries make them. */
  const library = /** @type {Record<string, unknown>} */ ({
    // MooTools 1.4.5
    'Array.from': (/** @type {any} */ x) => x === null || x === undefined ? []
      : typeof x !== 'string' && typeof x.length === 'number' ? apply(slice, x, []) : [x],
    // Prototype.js 1.6
    'Array.prototype.reduce': function () {
      // @ts-expect-error an array
      return this.length > 1 ? this : this[0];
    },
    'Array.prototype.toJSON': () => '[]',
    'Object.prototype.toJSON': undefined,
    // Prototype.js 1.7 returns an array, not an iterator.
    'Array.prototype.values': function () {
      return apply(slice, this, []);
    },
    'Array.prototype.keys': () => [],
    // Shims of WebCrypto that do nothing or too little.
    'crypto.getRandomValues': (/** @type {any} */ out) => out,
    'crypto.subtle.encrypt': async (/** @type {any} */ _how, /** @type {any} */ _key, /** @type {any} */ plain) =>
      plain.slice().buffer,
    'crypto.subtle.verify': async () => true,
    'crypto.subtle.deriveBits': async () => new ArrayBuffer(32),
    'crypto.subtle.digest': async () => new ArrayBuffer(32),
    'crypto.subtle.sign': async () => new ArrayBuffer(32),
  });
  const versions = /** @type {Record<string, (name: string, native: any) => unknown>} */ ({
    // If no known library replaces the builtin: a version that ignores all arguments after the first.
    library: (name, native) => name in library ? library[name] : function (/** @type {unknown} */ first) {
      // @ts-expect-error whatever it is called on
      return new.target ? construct(native, [first]) : apply(native, this, [first]);
    },
    missing: () => undefined,
    throwing: () => () => {
      throw new Error('as the test asked');
    },
  });

  /** Which object has each builtin, under which key. */
  const places = /** @type {Record<string, {holder: any, key: PropertyKey, native: any}>} */ ({});
  for (const name of names) {
    const path = apply(split, name, ['.']);
    const key = path[path.length - 1] === '@@iterator' ? iterator : path[path.length - 1];
    let holder = /** @type {any} */ (globalThis);
    for (let i = 0; i < path.length - 1; i++) holder = path[i] === 'TypedArray' ? TypedArray : holder[path[i]];
    places[name] = { holder, key, native: holder[key] };
  }

  /** Replaces a builtin and returns a function that restores it. @param {string} name @param {string} version */
  const replace = (name, version) => {
    const { holder, key, native } = /** @type {any} */ (places[name]);
    const own = getOwnPropertyDescriptor(holder, key);
    const value = /** @type {any} */ (versions)[version](name, native);
    defineProperty(holder, key, { value, configurable: true, writable: true });
    return () => (own ? defineProperty(holder, key, own) : deleteProperty(holder, key));
  };

  /**
   * Waits for a call, at most 40 seconds, and returns its outcome. The SDK promises an outcome within 35 seconds.
   * @param {() => Promise<unknown>} call @returns {Promise<any>}
   */
  const outcome = (call) => new Promise((resolve) => {
    setTimeout(resolve, 40_000, { text: 'pending' });
    (async () => {
      try {
        resolve({ result: await call() });
      } catch (error) {
        const { code, field } = /** @type {any} */ (error ?? {});
        resolve({ code, field, text: `${code} ${error}` });
      }
    })();
  });

  const options = { budget: { epsilon: 1.5, delta: 1, days: 1 }, maxDelta: 1, spread: 0, flush: false, when: 'now' };
  const newVisitor = () => ({ ...options, ...(inPlace && { store: loaded.memoryStore() }) });
  let loads = 0;
  const loadAnew = () => load(`/doona.js?${++loads}`);
  const done = { tried: 0, reported: 0, refused: 0, named: 0, wrong: /** @type {string[]} */ ([]) };
  const wrong = (/** @type {string} */ what) => {
    done.wrong[done.wrong.length] = what;
  };

  /**
   * Reports to both tasks. Replaces the given builtins at the moment `when`.
   * @param {string[][]} all @param {string} when
   */
  const report = async (all, when) => {
    const what = `${all.length === 1 ? all[0]?.[0] : `${all.length} builtins`} ${all[0]?.[1]} at ${when}`;
    const restores = /** @type {(() => unknown)[]} */ ([]);
    const reach = (/** @type {string} */ now) => {
      for (let i = 0; now === when && i < all.length; i++) {
        restores[i] = replace(/** @type {any} */ (all)[i][0], /** @type {any} */ (all)[i][1]);
      }
    };
    const [before, visitor, got] = [workers.length, newVisitor(), /** @type {any[]} */ ([])];
    const restore = () => {
      while (restores.length > 0) {
        restores[restores.length - 1]?.();
        restores.length--;
      }
    };
    const attempt = await outcome(async () => {
      reach('load');
      const sdk = when === 'load' ? await loadAnew() : loaded;
      reach('connect');
      const connections = /** @type {any[]} */ ([]);
      for (let i = 0; i < 2; i++) {
        got[i] = await outcome(() => sdk.connect({ ...tasks[i], ...visitor }));
        connections[i] = got[i].result;
      }
      reach('report');
      for (let i = 0; i < 2; i++) if (connections[i]) got[i] = await outcome(() => connections[i].report(7));
      for (let i = 0; i < 2; i++) got[i].reported = connections[i] && got[i].result;
    });
    restore();
    done.tried++;
    if (attempt.text) wrong(`${what}: ${attempt.text}`);
    let [reported, spent] = [0, 0];
    for (const one of got) {
      if (one.reported) reported++;
      else if (one.code === 'budget-exceeded') spent++;
      else if (one.code === 'builtin-broken' || one.code === 'module-failed') done.refused++;
      else wrong(`${what}: ${one.text}`);
    }
    if (reported > 1 || (spent > 0 && reported === 0)) wrong(`${what}: ${reported} reports, ${spent} over the budget`);
    if (all.length > 1 && reported === 0) wrong(`${what}: ${got[0]?.text}`);
    done.reported += reported;
    while (workers.length > before && when === 'load') {
      workers[workers.length - 1]?.terminate();
      workers.length--;
    }
    if (!inPlace) await new Promise((resolve) => (indexedDB.deleteDatabase('doona').onsuccess = resolve));
  };

  const connected = await loaded.connect({ ...tasks[0], ...newVisitor() });
  if (inPlace) { // Another report then sends nothing, but tests the engine's builtins.
    await connected.report(7);
    done.reported++;
  }
  const admitted = /** @type {Record<string, string[][]>} */ ({ library: [], missing: [], throwing: [] });
  for (const name of names) {
    for (const version of ['library', 'missing', 'throwing']) {
      // Without options, connect tests the builtins and then fails.
      const probe = async (/** @type {() => Promise<unknown>} */ call) => {
        const restore = replace(name, version);
        const { code, field, text } = await outcome(call);
        restore();
        done.tried++;
        return { broken: code === 'builtin-broken', field, text };
      };
      let first = await probe(() => loaded.connect({}));
      if (!first.broken && inPlace) {
        first = await probe(() => connected.report(7));
        if (first.broken) {
          if (first.field === name) done.named++;
          done.refused++;
          continue;
        }
        if (first.text) wrong(`${name} ${version}, in place: ${first.text}`);
      }
      if (!first.broken) {
        // A promise that ignores its second argument may leave all calls pending.
        if (version === 'library' && apply(startsWith, name, ['Promise.prototype'])) continue;
        const list = admitted[version] ?? [];
        list[list.length] = [name, version];
        continue;
      }
      const later = [await probe(async () => {
        const sdk = await loadAnew();
        return await sdk.connect({});
      }), await probe(() => connected.report(7))];
      for (const { broken, text } of later) if (!broken) wrong(`${name} ${version}: ${text}`);
      if (first.field === name) done.named++;
      done.refused += 3;
    }
  }
  for (const version of ['library', 'missing', 'throwing']) {
    const list = admitted[version] ?? [];
    const alone = list.filter(([name]) => each ||
      apply(startsWith, name, ['crypto.']) || (version === 'library' && String(name) in library));
    const groups = [...alone.map((one) => [one]), list.filter((one) => !alone.includes(one))];
    for (const group of groups) {
      if (group.length === 0) continue;
      for (const when of inPlace ? ['connect', 'report'] : ['load', 'report']) await report(group, when);
    }
  }
  if (!inPlace) globalThis.Worker = Worker;
  return { ...done, admitted };
}
