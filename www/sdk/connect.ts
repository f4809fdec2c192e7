/**
 * Opens a connection to a task: fetches it, checks it and starts the engine.
 * @module
 */

import { checkBudget, checkDelta, checkEpsilon, maxCopies, maxReports, windowOf } from './budget.js';
import { checkBuiltins } from './builtins.js';
import type { Bytes } from './bytes.js';
import { type ConnectionParts, Doona } from './doona.js';
import { blockOf, blockSize, maxEpochsIn, numberAt, startOf } from './epochs.js';
import { DoonaError, invalidOption } from './errors.js';
import { type Guarantee, guaranteeOf, multiple } from './guarantee.js';
import { type CachedDocument, DocumentCache } from './document-cache.js';
import { type ModuleStart, forgetModules, startModule } from './load.js';
import { markFetched, mayHave } from './marks.js';
import type { ModuleName } from './module.js';
import { abortable, throwIfAborted, whenIdle, withTimeout, within } from './timing.js';
import { OpenTask } from './open-task.js';
import { checkFrame, checkOrigin } from './origin.js';
import { loadTokens, loadWords, once } from './on-demand.js';
import { type ConnectOptions, type ParsedOptions, type TokenSource, parseOptions } from './options.js';
import { anyLanguage, readBody } from './response.js';
import type { Price, Store } from './store.js';
import { indexedDBStore } from './store-indexeddb.js';
import { memoryStore } from './store-memory.js';
import { StreamDoona } from './stream-doona.js';
import type { StreamView } from './stream.js';
import { StreamHistory } from './stream-history.js';
import type { Value } from './value.js';
import { canSeal } from './webcrypto.js';
import type { Task } from './task.js';
import { type EngineClient, engine, pageLedger, useEngine } from './engine-client.js';
import { fetchToken } from './token.js';

/**
 * Fetches a task and checks it on this device, before the page reports any value. The task must have the id in its
 * address and its owner's signature; every party's keys must be those that the task names; the claimed guarantee must
 * follow from the parameters; and all epochs together must stay within `maxEpsilon`, `maxDelta` and the budget. It then
 * sends the reports that earlier visits could not deliver, unless `flush` is false.
 *
 * It asks for the keys of eight epochs at a time, and stores them. A visit whose epoch has none asks for them at once.
 *
 * For a stream, it connects to the current task. It checks the stream that the first relay serves against the page's
 * options and against what earlier visits saw. It fetches the stream at most once per epoch.
 *
 * @throws DoonaError `builtin-broken`, `insecure-context`, `invalid-option`, `frame-refused`, `task-unreachable`,
 * `task-refused`, `origin-refused`, `stream-broken`, `stream-forked`, `stream-replayed`, `stream-stopped`,
 * `claim-refused`, `epsilon-too-large`, `delta-too-large`, `storage-unavailable` or `module-failed`; the signal's
 * reason when it is aborted
 */
export async function connect<V extends Value = Value>(options: ConnectOptions<V>): Promise<Doona<V>> {
  checkBuiltins();
  checkRuntime();
  return open(options, parseOptions(options));
}

/** The options of `connect`, and two functions of ConnectionParts. */
export type OpenOptions = ConnectOptions & Pick<ConnectionParts, 'maySend' | 'onDraft'>;

/** Connects with parsed options. @throws as connect */
export async function open(options: OpenOptions, pinned: ParsedOptions): Promise<Doona> {
  if (!options.frames) checkFrame();
  const { signal } = options;
  await abortable(whenIdle(pinned.when), signal);
  const leave = enter(pinned.modules);
  const connecting = (pinned.allow ? connectStream : connectTask)(options, pinned, leave);
  try {
    const doona = await abortable(within(connecting, maxConnect, () => new DoonaError('module-failed',
      `couldn't connect within ${maxConnect / 1000} seconds`)), signal);
    void doona.draftUsual();
    if (options.flush !== false) void doona.flushLater();
    return doona;
  } catch (error) {
    if (signal?.aborted) leave(true);
    connecting.then((doona) => doona.close(), () => leave(signal?.aborted === true)); // It may still connect.
    throw error;
  }
}

/**
 * Opens a task or stream only to explain it. It asks nobody but the server at the task's address and the server of the
 * SDK's files, and stores nothing.
 * @throws as connect
 */
export async function preview(options: ConnectOptions, pinned: ParsedOptions): Promise<Doona> {
  if (!options.frames) checkFrame();
  const leave = enter(pinned.modules);
  try {
    const starting = startEngine(options, pinned);
    starting.catch(() => {}); // until it is awaited
    const now = Date.now();
    const bytes = await fetchDocument(pinned.url, pinned.allow ? maxStream : maxBundle, options.signal);
    const link = pinned.allow && (await viewer(pinned)({ bytes, at: now }, now)).link;
    const parts = await openParts(options, { ...pinned, ...link }, link ? link.bundle : bytes, memoryStore(), starting);
    return new Doona({ ...parts, hold: (work) => work(), stop: () => leave(true) });
  } catch (error) {
    leave(options.signal?.aborted === true);
    throw error;
  }
}

/** Begins to use the engine of a folder. */
export function enter(folder?: URL): Leave {
  const end = useEngine(folder);
  let left = false;
  return (stops) => {
    if (left) return;
    left = true;
    if (end(stops)) forgetModules(folder);
  };
}

/** @throws DoonaError `insecure-context`, or `module-failed` in an old Node */
export function checkRuntime(): void {
  if (typeof crypto === 'undefined' || !crypto.subtle) {
    throw new DoonaError('insecure-context', 'WebCrypto is missing: serve the page over HTTPS or from localhost');
  }
  const node = typeof document === 'undefined' && globalThis.process?.versions?.node; // Electron's pages have it too.
  if (node && Number.parseInt(node) < 22) {
    throw new DoonaError('module-failed', `couldn't start in Node ${node}: want Node 22 or newer`);
  }
}

/**
 * The time limit of `connect`, in milliseconds, counted from when the page is idle. Each wait inside has a shorter
 * limit.
 */
const maxConnect = 27_000;

async function connectTask(options: OpenOptions, pinned: ParsedOptions, leave: Leave): Promise<Doona> {
  const { store, session, signal, kept, keep, starting, fetchFirst } = await prepare(options, pinned, leave);
  const old = await kept();
  throwIfAborted(signal);
  const bundle = old?.bytes ?? await fetchFirst();
  const keepBundle = (bytes: Bytes) => keep({ bytes, at: Date.now() }, startOf(epochs, epochs.count).getTime());
  const opened = await openParts(options, pinned, bundle, store, starting, signal, pinned.idText, keepBundle);
  const { epochs } = opened.task;
  throwIfAborted(signal);
  if (!old) await keepBundle(bundle);
  const parts = { ...opened, ...session };
  await getKeys(parts);
  if (epochs.count <= blockSize) return new Doona(parts);
  return new StreamDoona(parts, () => getKeys(parts), async () => []);
}

/** Gets the keys of the current block of epochs. It looks into `bundle`, if given, before it fetches them. */
async function getKeys(parts: ConnectionParts, bundle?: Bytes): Promise<ConnectionParts> {
  const { task: { epochs }, keys } = parts;
  const epoch = numberAt(epochs, Date.now());
  if (epoch < epochs.count) await keys(Math.max(epoch, 0), bundle);
  return parts;
}

/** Connects to the current task of a stream. The connection moves to each later task once that task begins. */
async function connectStream(options: OpenOptions, pinned: ParsedOptions, leave: Leave): Promise<Doona> {
  const { store, session, signal, kept, keep, starting, fetchFirst } = await prepare(options, pinned, leave);
  const history = new StreamHistory(store, pinned.idText);
  const view = viewer(pinned);
  const loadView = async (now: number): Promise<{ stream: StreamView; fresh: boolean }> => {
    const old = await kept();
    throwIfAborted(signal); // Otherwise view() would start an engine.
    // A custom store may return wrong bytes. A cached stream that fails its checks is fetched again.
    const last = old && (await view({ ...old, bytes: old.bytes.slice() }, now).catch(() => undefined));
    if (last?.sameEpoch) return { stream: last, fresh: false };
    const load = async (bytes: Promise<Bytes>) => view({ bytes: await bytes, at: now }, now);
    const stream = await load(fetchFirst());
    // A service worker may have answered from its cache. It has no answer for a query that was never asked. The relay
    // sees the query, so it is not of Math.random: pages seed that, and its numbers tell of each other.
    const query = () => `?${crypto.getRandomValues(new Uint32Array(2)).join('-')}`;
    const again = () => fetchDocument(new URL(query(), pinned.url), maxStream, signal);
    return { stream: stream.ended ? await load(again()) : stream, fresh: true };
  };
  const follow = async (last?: ConnectionParts): Promise<ConnectionParts> => {
    const now = Date.now();
    const { stream, fresh } = await loadView(now);
    await history.check(stream);
    const { link, chain, end, authority } = stream;
    const same = link.idText === last?.id;
    const opened = same || authority.stopped ? undefined
      : await openParts(options, { ...pinned, ...link }, link.bundle, store, starting, signal, pinned.idText);
    throwIfAborted(signal);
    const parts = opened ? { ...opened, ...session, continues: true } : last;
    // Caches the stream only after openParts: if WebCrypto lacks Ed25519, doona-full.wasm checks the owner's signature
    // there.
    if (fresh) await keep({ bytes: chain, at: now }, end);
    if (authority.stopped) throw new DoonaError('stream-stopped', "couldn't report: the stream was stopped");
    if (!same) await history.add(link, parts!.task);
    return getKeys(parts!, link.bundle);
  };
  return new StreamDoona(await follow(), follow, () => history.withReports());
}

/** Returns a function that checks a stream at a time and returns what a page needs of it. */
function viewer(pinned: ParsedOptions): (stream: CachedDocument, now: number) => Promise<StreamView> {
  const { id, owner, recovery, candidates, allow } = pinned;
  const root = { id, owner, recovery, candidates, allow: allow! };
  return async ({ bytes: chain, at: fetched }, now) =>
    (await engine(pinned.modules)).stream({ chain, root, now, fetched });
}

/** Ends the use of the engine. With `stops`, stops it and forgets its modules, if no other connection uses it. */
type Leave = (stops: boolean) => void;

/** What a connection to a task or stream begins with. */
interface Prepared {
  readonly store: Store;
  /** Returns the document at the connection's address that an earlier visit kept. */
  readonly kept: () => Promise<CachedDocument | undefined>;
  /** Keeps the document until a time. If the storage is full, the next visit fetches it again. */
  readonly keep: (document: CachedDocument, end: number) => Promise<void>;
  readonly starting: Promise<StartedEngine>;
  /** Fetches the document at the connection's address. The first time, the request may have begun already. */
  readonly fetchFirst: () => Promise<Bytes>;
  /** Aborts requests for tasks and streams. */
  readonly signal: AbortSignal;
  readonly session: Session;
}

/** The parts that all tasks of a connection share. `stop` also aborts the signal. */
type Session = Pick<ConnectionParts, 'stop' | 'hold' | 'maySend' | 'onDraft'>;

/**
 * Opens the store while the engine starts. If the browser has not fetched the document yet, it asks for it meanwhile.
 */
async function prepare(options: OpenOptions, pinned: ParsedOptions, leave: Leave): Promise<Prepared> {
  const starting = startEngine(options, pinned);
  starting.catch(() => {}); // until it is awaited
  const requests = new AbortController();
  const ask = () => fetchDocument(pinned.url, pinned.allow ? maxStream : maxBundle, requests.signal);
  let begun = options.store || mayHave(pinned.idText) ? undefined : ask();
  begun?.catch(() => {}); // until it is awaited
  const fetchFirst = () => {
    const first = begun ?? ask();
    begun = undefined;
    return first;
  };
  const abort = () => requests.abort();
  options.signal?.addEventListener('abort', abort);
  const own = options.store ? undefined : await indexedDBStore().catch((error) => {
    options.signal?.removeEventListener('abort', abort);
    abort();
    throw error;
  });
  const store = options.store ?? own!;
  if (options.signal?.aborted) own?.close();
  throwIfAborted(options.signal);
  let [held, stopped] = [0, false];
  const stop = () => {
    stopped = true;
    if (held > 0) return;
    own?.close();
    options.signal?.removeEventListener('abort', abort);
    abort();
    leave(true);
  };
  const hold: Session['hold'] = async (work) => {
    held++;
    try {
      return await work();
    } finally {
      held--;
      if (stopped) stop();
    }
  };
  const { maySend, onDraft } = options;
  const session: Session = { stop, hold, ...(maySend && { maySend }), ...(onDraft && { onDraft }) };
  const cache = new DocumentCache(store);
  const name = `${pinned.allow ? 'stream' : 'task'} ${pinned.idText}`;
  const kept = () => cache.get(name);
  const keep = (document: CachedDocument, end: number) => cache.put(name, document, end)
    .then(() => markFetched(pinned.idText), () => {});
  return { store, kept, keep, starting, fetchFirst, signal: requests.signal, session };
}

/**
 * Opens a task, runs all checks and returns the parts of a connection to it. The engine checks signatures while the
 * WASM module loads. `signal` aborts requests for the keys of later blocks; `keep` keeps the bundles that they bring.
 * `line` is the id of the ledger line.
 */
async function openParts(options: ConnectOptions, pinned: ParsedOptions, bundle: Bytes, store: Store,
  starting: Promise<StartedEngine>, signal?: AbortSignal, line = pinned.idText,
  keep?: (bundle: Bytes) => Promise<void>): Promise<Omit<ConnectionParts, keyof Session>> {
  const openBundle = (bytes: Bytes) => starting.then((started) => openTask(options, pinned, bytes, started));
  const opening = openBundle(bundle);
  const running = starting.then((started) => started.running);
  const [{ engine: started }, , open] = await Promise.all([starting, running, opening]);
  const { task, epsilon0, totalEpsilon, tokenKeys } = open.opened;
  const getBlock = async (block: number, given?: Bytes): Promise<OpenTask> => {
    let found = given && await openBundle(given);
    if (found?.opened.block === block) return found;
    const url = new URL(`../blocks/${pinned.idText}/${block}`, pinned.url);
    const bytes = await fetchDocument(url, maxBundle, signal);
    found = await openBundle(bytes);
    if (found.opened.block !== block) throw new DoonaError('task-refused', 'the keys are of another block');
    if (block >= blockOf(numberAt(task.epochs, Date.now()))) await keep?.(bytes); // else a later one is kept
    return found;
  };
  // The task is open once for each block of epochs whose keys are here.
  const blocks: Record<number, Promise<OpenTask>> = { [open.opened.block]: opening };
  const keys = (epoch: number, given?: Bytes): Promise<OpenTask> => {
    const block = blockOf(epoch);
    if (!blocks[block]) (blocks[block] = getBlock(block, given)).catch(() => delete blocks[block]);
    return blocks[block]!;
  };
  checkOrigin(task.clients.origins);
  if ((task.epochs.cap || task.epochs.events) && task.stream && task.stream.position > 0 && line === pinned.idText) {
    throw new DoonaError('task-refused', 'the task limits the reports of its whole stream: connect to the stream',
      task.epochs.cap ? 'cap' : 'events');
  }
  const guarantee = guaranteeOf(task, epsilon0, totalEpsilon);
  checkEpsilon(guarantee.totalEpsilon, guarantee.epochs, pinned.maxEpsilon);
  checkDelta(guarantee.totalDelta, pinned.maxDelta);
  const price = await priceOf(task, guarantee, pinned, (epochs, delta) => open.epsilonWithin(epochs, delta));
  checkBudget(price, pinned.limit);
  return {
    id: pinned.idText,
    task,
    guarantee,
    store,
    // A worker decides if possible: libraries of the page cannot replace its builtins. It cannot use a store that the
    // page passes.
    ledger: options.store ? await pageLedger(options.store, pinned.modules) : started,
    decider: started.isWorker && !options.store ? 'worker' : 'page',
    limit: pinned.limit,
    line: { id: line, price, length: task.epochs.length },
    spread: pinned.spread,
    sample: pinned.sample,
    inPlace: started.inPlace,
    words: once(() => loadWords(pinned.modules)),
    keys,
    check: async (epoch) => (await keys(epoch)).check(),
    submission: async (epoch, value) => (await keys(epoch)).submission(epoch, value),
    draft: async (epoch, value, tags) => (await keys(epoch)).draft(epoch, value, tags),
    ...(tokenKeys.length > 0 && { token: tokenGetter(pinned, task, keys, options.tokens) }),
  };
}

interface StartedEngine {
  readonly engine: EngineClient;
  readonly module: ModuleName;
  readonly running: Promise<unknown>;
}

/**
 * Returns what the task's reports cost within one window of the budget. The δ of all reports is the δ that the task
 * claims for that number of epochs, or the budget's δ if that is smaller. The WASM module computes the ε at that δ. The
 * tasks of a stream may have different numbers of epochs. So for a stream the δ is the larger of two values: the δ of
 * the claimed total, and the sum of δ over the epochs.
 */
async function priceOf(task: Task, guarantee: Guarantee, { limit, allow }: ParsedOptions,
  epsilonWithin: (epochs: number, delta: number) => Promise<number>): Promise<Price> {
  const { claim, epochs } = task;
  const isOpenEnded = allow !== undefined && limit.days < Infinity; // a stream continues after its current task
  const most = maxEpochsIn(epochs.length, isOpenEnded ? maxEpochs : epochs.count, windowOf(limit));
  const reports = maxReports(epochs, most);
  const copies = maxCopies(task, most);
  const added = multiple(claim.delta, copies);
  const ofStream = allow !== undefined && claim.total ? Math.max(added, guarantee.totalDelta) : added;
  const claimed = most === epochs.count ? guarantee.totalDelta : ofStream;
  const delta = limit.delta < 1 ? Math.min(claimed, limit.delta) : claimed;
  const epsilon = most === epochs.count && delta === claimed
    ? guarantee.totalEpsilon : await epsilonWithin(copies, delta);
  return { first: { epsilon: guarantee.epsilon, delta: guarantee.delta }, reports, all: { epsilon, delta },
    ...(epochs.events && { events: true }) };
}

/** Starts the worker and, in parallel, the module that fits this runtime's WebCrypto. */
async function startEngine(options: ConnectOptions, pinned: ParsedOptions): Promise<StartedEngine> {
  const starting = engine(pinned.modules);
  starting.catch(() => {}); // until it is awaited
  const module = options.sealing === 'wasm' || !(await canSeal()) ? 'full'
    : options.compiled?.browser || options.protocols === 'all' ? 'browser' : 'small';
  const { running } = await startNamed(module, options, pinned, starting);
  return { engine: await starting, module, running };
}

async function startNamed(name: ModuleName, options: ConnectOptions, pinned: ParsedOptions,
  starting: Promise<EngineClient>): Promise<ModuleStart> {
  if (name === 'full' && options.sealing === 'webcrypto') throw sealingError();
  return startModule(name, starting, pinned.modules, name === 'small' ? undefined : options.compiled?.[name]);
}

function openTask(options: ConnectOptions, pinned: ParsedOptions, bundle: Bytes,
  { engine: ready, module }: StartedEngine): Promise<OpenTask> {
  const request = { bundle, owner: pinned.owner, id: pinned.id };
  return OpenTask.open(ready, request, module, async (name) =>
    (await startNamed(name, options, pinned, Promise.resolve(ready))).running);
}

function sealingError(): DoonaError {
  return invalidOption('sealing', 'webcrypto', 'wasm, for this task or in this runtime');
}

/** Returns a function that gets a token for an epoch. Its first call loads the script blind.ts. */
function tokenGetter(pinned: ParsedOptions, task: Task, keys: (epoch: number) => Promise<OpenTask>,
  source?: TokenSource): (epoch: number, signal: AbortSignal) => Promise<Bytes> {
  const { id, idText, modules } = pinned;
  const tokens = once(() => loadTokens(modules));
  return async (epoch, signal) => {
    const at = 32 * (epoch % blockSize);
    const keyId = (await keys(epoch)).opened.tokenKeys.slice(at, at + 32);
    return fetchToken({ id, idText, task, epoch, keyId, source, signal }, tokens());
  };
}

/** The maximum number of epochs of a task, and the maximum number that the WASM module composes. */
const maxEpochs = 65536;

/** The longest wait for a task or stream, in milliseconds. */
const maxDocumentWait = 25_000;

/**
 * The size limits of a bundle and of a stream, in bytes. Ten parties' keys of a block and their lists take 100 kB at
 * most, beside a task of 640 KiB.
 */
const maxBundle = 1 << 20;
const maxStream = 16 << 20;

/**
 * Fetches a task or stream, which a relay serves to everybody. The request bypasses all HTTP caches: by a cached
 * answer, a relay could recognize a browser.
 * @throws DoonaError `task-unreachable`
 */
export async function fetchDocument(url: URL, most: number, signal?: AbortSignal): Promise<Bytes> {
  try {
    return await withTimeout(async (request) => {
      const response = await fetch(url, {
        headers: anyLanguage,
        credentials: 'omit',
        referrerPolicy: 'no-referrer',
        redirect: 'manual', // A redirect then fails the check of response.ok. workerd does not support 'error'.
        cache: 'no-store',
        signal: request,
      });
      if (!response.ok) throw new Error(`the relay answered ${response.status}`);
      return readBody(response, most);
    }, maxDocumentWait, signal);
  } catch (cause) {
    throwIfAborted(signal);
    const message = `couldn't fetch the task: ${(cause as Error).message}`;
    throw new DoonaError('task-unreachable', message, 'task', { cause });
  }
}
