/**
 * Connects to a set: fetches and checks it, gets the keys of the day and begins the day's submission.
 * @module
 */

import { withTokens } from './bundle.js';
import { type Bytes, toHex } from './bytes.js';
import { checkRuntime, fetchDocument } from './connect.js';
import { hasOptedOut, hasPrivacyControl, dropSealed, setOptOut, withStore } from './consent.js';
import { DocumentCache } from './document-cache.js';
import { blockOf, blockSize, numberAt, startOf } from './epochs.js';
import { DoonaError, invalidOption } from './errors.js';
import { forgetModules, startModule } from './load.js';
import { markWithdrawal } from './marks.js';
import type { ModuleName } from './module.js';
import { loadTokens, once } from './on-demand.js';
import { type TokenSource } from './options.js';
import { checkFrame, checkOrigin } from './origin.js';
import { epochOn, maxSet } from './set.js';
import { readBody } from './response.js';
import { checkSetBuiltins } from './set-builtins.js';
import { type SetEngineClient, startSetEngine } from './set-client.js';
import { SetConnection } from './set-connection.js';
import type { OpenedSet } from './set-engine.js';
import { type ParsedSetOptions, type SetOptions, parseSetOptions } from './set-options.js';
import { indexedDBStore } from './store-indexeddb.js';
import { abortable, throwIfAborted, whenIdle, within } from './timing.js';
import { fetchToken } from './token.js';
import { toInput, usualInput } from './value.js';
import { canSeal } from './webcrypto.js';

/** The time limit of `connectSet`, in milliseconds, counted from when the page is idle. */
const maxConnect = 27_000;

/** The size limit of the keys of a block, in bytes. */
const maxKeys = 1 << 20;

/**
 * Fetches a set and checks it on this device: signatures, each table's claim and the total of all tables. Then claims
 * the day and seals the defaults, so a visit counts without any value. The day's submission leaves when the visitor
 * leaves the site. Until then nothing goes to a relay, if the site's own host serves the set and the SDK's files.
 *
 * @throws DoonaError `builtin-broken`, `insecure-context`, `invalid-option`, `frame-refused`, `task-unreachable`,
 * `set-refused`, `set-forked`, `task-refused`, `origin-refused`, `claim-refused`, `epsilon-too-large`, `opted-out`,
 * `budget-exceeded`, `cap-reached`, `storage-unavailable`, `epoch-not-open`, `task-ended` or `module-failed`; the
 * signal's reason when it is aborted
 */
export async function connectSet(options: SetOptions): Promise<SetConnection> {
  checkSetBuiltins();
  checkRuntime();
  const pinned = parseSetOptions(options);
  if (!options.frames) checkFrame();
  const { signal } = options;
  await abortable(whenIdle(pinned.when), signal);
  if (hasPrivacyControl() && options.consent !== 'granted') throw optedOut('the browser sends Global Privacy Control');
  let stop = () => {};
  const connecting = connect(options, pinned, (work) => (stop = work));
  try {
    return await abortable(within(connecting, maxConnect, () => new DoonaError('module-failed',
      `couldn't connect within ${maxConnect / 1000} seconds`)), signal);
  } catch (error) {
    connecting.then((connection) => connection.close(), () => {}); // It may still connect.
    stop();
    throw error;
  }
}

/** Says that the visitor opts out: all later pages report nothing, until `optIn()`. Drops what was not delivered. */
export async function optOut(): Promise<void> {
  markWithdrawal();
  await withStore(undefined, true, async (store) => {
    await setOptOut(store, true);
    await dropSealed(store);
  });
}

/** Ends an opt-out. */
export async function optIn(): Promise<void> {
  await withStore(undefined, true, (store) => setOptOut(store, false));
}

function optedOut(why: string): DoonaError {
  return new DoonaError('opted-out', `couldn't report: ${why}`);
}

async function connect(options: SetOptions, pinned: ParsedSetOptions,
  onStop: (stop: () => void) => void): Promise<SetConnection> {
  const requests = new AbortController();
  const store = await indexedDBStore();
  const isOut = await hasOptedOut(store).catch((error) => {
    store.close();
    throw error;
  });
  if (isOut) {
    store.close();
    throw optedOut('the visitor has opted out at this site');
  }
  const starting = startSetEngine(pinned.modules);
  const stop = () => {
    requests.abort();
    store.close();
    starting.then((engine) => engine.stop(), () => {});
    forgetModules(pinned.modules);
  };
  onStop(stop);
  const module: ModuleName = 'small'; // The build names doona-set.wasm so in this script.
  const loading = startModule(module, starting, pinned.modules);
  loading.catch(() => {});
  if (!(await canSeal())) {
    throw new DoonaError('module-failed', 'WebCrypto lacks X25519 or Ed25519, with which sets are sealed and checked');
  }
  const engine = await starting;
  throwIfAborted(requests.signal);
  const cache = new DocumentCache(store);
  const set = await openSet(pinned, engine, cache, requests.signal, async () => (await loading).running);
  await engine.fit(set.handle, pinned.limit);
  checkOrigin(set.tables[0]!.task.clients.origins);
  const move = async () => {
    await (await startModule('full', Promise.resolve(engine), pinned.modules)).running;
    await engine.move(set.handle);
  };
  return SetConnection.begin({ engine, set, store, limit: pinned.limit, usual: usualOf(set, options.defaults),
    spread: pinned.spread, keys: keysOf(pinned, set, engine, cache, requests.signal), move,
    isOut: () => hasOptedOut(store), stop, ...(withTokens(set.tables[0]!.task) && {
      token: tokenGetter(pinned, set, engine, options.tokens) }) });
}

/** Returns a function that gets a day's token. Its first call loads the script blind.ts. */
function tokenGetter({ modules }: ParsedSetOptions, { handle, tables }: OpenedSet, engine: SetEngineClient,
  source?: TokenSource): (day: number, signal: AbortSignal) => Promise<Bytes> {
  const tokens = once(() => loadTokens(modules));
  const { id, task } = tables[0]!;
  return async (day, signal) => fetchToken({ id, idText: toHex(id), task, epoch: day,
    keyId: await engine.tokenKey(handle, day), source, signal }, tokens());
}

/** Opens the set that an earlier visit kept, unless it is over, or fetches it. */
async function openSet({ url, id, idText, owner, modules }: ParsedSetOptions, engine: SetEngineClient,
  cache: DocumentCache, signal: AbortSignal, running: () => Promise<true | null>): Promise<OpenedSet> {
  const open = async (bundle: Bytes): Promise<OpenedSet> => {
    const found = (await running()) && await engine.open({ bundle, owner, id, module: 'small' });
    if (found) return found;
    await (await startModule('full', Promise.resolve(engine), modules)).running;
    return (await engine.open({ bundle, owner, id, module: 'full' }))!;
  };
  const name = `set ${idText}`;
  const kept = await cache.get(name);
  const old = kept && await open(kept.bytes).catch(() => undefined);
  if (old && numberAt(daysOf(old), Date.now()) < daysOf(old).count) return old;
  const bytes = await unpack(await fetchDocument(url, maxSet, signal));
  const set = await open(bytes);
  const days = daysOf(set);
  await cache.put(name, { bytes, at: Date.now() }, startOf(days, days.count).getTime()).catch(() => {});
  return set;
}

/**
 * Unpacks a document that gzip has compressed. Returns another as it is: something on the way may have unpacked it.
 * @throws DoonaError `set-refused`
 */
async function unpack(bytes: Bytes): Promise<Bytes> {
  if (bytes[0] !== 0x1f || bytes[1] !== 0x8b) return bytes;
  try {
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
    return await readBody(new Response(stream), maxSet);
  } catch (cause) {
    throw new DoonaError('set-refused', `couldn't accept the set: couldn't unpack it: ${(cause as Error).message}`,
      'bundle', { cause });
  }
}

function daysOf({ tables }: OpenedSet): OpenedSet['tables'][number]['task']['epochs'] {
  return tables[0]!.task.epochs;
}

/**
 * Returns a function that gets the keys of a day: for each clock those of the block that contains its epoch. It asks
 * for keys that no earlier visit kept.
 */
function keysOf({ url }: ParsedSetOptions, set: OpenedSet, engine: SetEngineClient, cache: DocumentCache,
  signal: AbortSignal): (day: number) => Promise<void> {
  const have = new Set<string>();
  return async (day) => {
    const wanted = set.tables.map(({ clock }, table) => {
      const block = blockOf(epochOn(set, table, day).epoch);
      return { clock, table, block, name: `set keys ${set.id} ${clock} ${block}` };
    }).filter(({ clock, table, name }) =>
      !have.has(name) && set.tables.findIndex((other) => other.clock === clock) === table);
    const kept: (Bytes | undefined)[] = [];
    for (const { name } of wanted) kept.push((await cache.get(name))?.bytes);
    const fetched = wanted.map(({ clock, block }, i) => {
      const address = new URL(url);
      address.pathname = url.pathname.replace(/\/sets\/\w+$/, `/blocks/${set.id}/${clock}/${block}`);
      return kept[i] ?? fetchDocument(address, maxKeys, signal);
    });
    const all = await Promise.all(fetched);
    for (const [i, { clock, table, block, name }] of wanted.entries()) { // The cache takes one document at a time.
      const bytes = all[i]!;
      if ((await engine.keys(set.handle, clock, bytes)) !== block) {
        throw new DoonaError('set-refused', `couldn't accept the set: the keys of clock ${clock} are of another block`, 'keys');
      }
      have.add(name);
      if (kept[i]) continue;
      const { epochs } = set.tables[table]!.task;
      const end = startOf(epochs, Math.min((block + 1) * blockSize, epochs.count)).getTime();
      await cache.put(name, { bytes, at: Date.now() }, end).catch(() => {});
    }
  };
}

/** Returns what each table reports without another value. @throws DoonaError `invalid-option` */
function usualOf({ tables }: OpenedSet, defaults: SetOptions['defaults']): readonly (readonly number[])[] {
  for (const name in defaults) {
    const table = tables.find((one) => one.name === name);
    if (name in {} || (table && !table.bare && !table.task.epochs.events)) continue;
    throw invalidOption(`defaults.${name}`, 'given', table ? 'nothing: the table is bare, or its task names the default'
      : `tables of ${tables.map((one) => one.name).join(', ')}`);
  }
  return tables.map(({ name, bare, task }) => {
    if (bare) return [];
    if (task.epochs.events) return [...usualInput(task)];
    try {
      return [...toInput(task, defaults[name] as string)];
    } catch (cause) {
      throw new DoonaError('invalid-option', `invalid defaults.${name}: ${(cause as Error).message}`, `defaults.${name}`,
        { cause });
    }
  });
}

