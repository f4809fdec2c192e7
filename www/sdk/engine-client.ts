/**
 * The page's client of the engine. It starts the engine in a worker, so that compiling, decoding, checking, randomizing
 * and sealing never block the page. If there is no page (Node, Deno, Bun, workerd, a worker of the site) or no worker
 * can start, it runs the engine in this thread.
 * @module
 */

import { type Answer, type Call, workerName, workerReady } from './worker-protocol.js';
import type { Engine } from './engine.js';
import { DoonaError } from './errors.js';
import type { Asset } from './files.js';
import type { Ledger } from './ledger.js';
import { loadInPlace } from './on-demand.js';
import { checkedScript, scriptFailed } from './script.js';
import type { Store } from './store.js';
import { within } from './timing.js';

/** Sends calls to an engine and returns its answers. */
export interface Port {
  /** Whether the engine runs in a worker, which shares no builtins with the page. */
  readonly isWorker: boolean;
  /** Why the engine runs in the page's thread; undefined if it does not. */
  readonly inPlace?: string | undefined;
  post(call: Call, transfer: Transferable[]): Promise<Answer>;
  /** Stops a worker. Calls that still wait for an answer fail. */
  stop(): void;
}

/** An engine that knows where it runs. */
export interface EngineClient extends Engine {
  readonly isWorker: boolean;
  readonly inPlace: string | undefined;
  stop(): void;
}

/** Created after `connect` has tested the builtins: a library of the page may have replaced Map. */
let engines: Map<string, Promise<EngineClient>> | undefined;

/**
 * Returns the engine whose script is in `folder`, by default this script's folder. A page has one engine per folder.
 */
export function engine(folder?: URL): Promise<EngineClient> {
  const all = (engines ??= new Map());
  const key = String(folder);
  let found = all.get(key);
  if (!found) {
    found = start(folder).then(remoteEngine);
    all.set(key, found);
    const begun = found;
    begun.catch(() => all.get(key) === begun && all.delete(key));
  }
  return found;
}

/** The number of connections that use the engine of each folder. */
let users: Map<string, number> | undefined;

/**
 * Counts one more connection that uses the engine of a folder. Returns a function for the end of the connection. If no
 * other connection uses the engine, and `stops` is true, it stops the engine's worker and returns true.
 */
export function useEngine(folder?: URL): (stops: boolean) => boolean {
  const all = (users ??= new Map());
  const key = String(folder);
  all.set(key, (all.get(key) ?? 0) + 1);
  return (stops) => {
    const left = all.get(key)! - 1;
    all.set(key, left);
    if (left > 0 || !stops) return false;
    engines?.get(key)?.then((found) => found.stop(), () => {});
    engines?.delete(key);
    return true;
  };
}

const script: Asset = { file: DOONA.worker.file, integrity: DOONA.worker.integrity };

/**
 * The time limits for starting the engine's script (`maxStart`) and for each of its answers (`maxCall`), in
 * milliseconds.
 */
const maxStart = 10_000;
export const maxCall = 25_000;

function late(): DoonaError {
  return scriptFailed(script, new Error(`it did not start within ${maxStart / 1000} seconds`));
}

export async function start(folder?: URL): Promise<Port> {
  // Without a page there is nothing to block, and a worker would keep Deno and Bun from ending.
  const tried = typeof document === 'undefined' ? undefined : await tryWorker(folder);
  if (typeof tried === 'object') return tried;
  const { answer } = await loadInPlace(folder);
  return { isWorker: false, post: answer, stop: () => {}, inPlace: tried };
}

/**
 * Starts the worker. Returns why it does not run, if it does not.
 * @throws DoonaError `module-failed` if its script cannot be fetched or has another hash
 */
async function tryWorker(folder?: URL): Promise<Port | string> {
  const checked = await checkedScript(script, () => workerURL(folder));
  try {
    return await within(startWorker(folder, checked), maxStart, late);
  } catch (error) {
    // The page's content security policy may forbid workers, and old browsers lack module workers.
    return `no worker runs: ${(error as Error).message || 'a policy of the page or the browser refused it'}`;
  } finally {
    if (checked?.startsWith('blob:')) URL.revokeObjectURL(checked);
  }
}

/**
 * Returns the address of the worker's script. Bundlers recognize only exactly these expressions and those below.
 */
function workerURL(folder?: URL): URL {
  if (folder) return new URL(DOONA.worker.file, folder);
  return new URL(DOONA.worker.file, import.meta.url);
}

function makeWorker(folder?: URL, checked?: string): Worker {
  const options = { type: 'module', name: workerName } as const;
  if (checked ?? folder) return new Worker(trusted(checked ?? workerURL(folder)), options);
  try {
    return new Worker(new URL(DOONA.worker.file, import.meta.url), { type: 'module', name: workerName });
  } catch {
    return new Worker(trusted(workerURL()), options); // Trusted Types refused the address of a bundler.
  }
}

/** The part of Trusted Types that the SDK uses. TypeScript's library lacks it. */
interface ScriptPolicy {
  createScriptURL(url: string): string;
}
interface PolicyFactory {
  createPolicy(name: string, rules: ScriptPolicy): ScriptPolicy;
}

/** The policy `doona`; undefined if there is none. Only this script can use it. */
let policy: ScriptPolicy | undefined;

/**
 * Returns an address as the page's Trusted Types want it. If the page's policy does not admit the name `doona`, or
 * another copy of the SDK has taken it, returns the address unchanged.
 */
function trusted(url: string | URL): string | URL {
  const { trustedTypes } = globalThis as { trustedTypes?: PolicyFactory };
  try {
    policy ??= trustedTypes?.createPolicy('doona', { createScriptURL: (address) => address });
  } catch {
    // The engine then runs in the page's thread.
  }
  return policy ? policy.createScriptURL(String(url)) : url;
}

function startWorker(folder?: URL, checked?: string): Promise<Port> {
  return new Promise((resolve, reject) => {
    const worker = makeWorker(folder, checked);
    const waiting = new Map<number, (answer: Answer) => void>();
    let stopped = '';
    worker.addEventListener('message', ({ data }: MessageEvent<Answer | typeof workerReady>) => {
      if (data === workerReady) return resolve(port);
      waiting.get(data.id)?.(data);
      waiting.delete(data.id);
    });
    const stop = (why: string) => {
      stopped = why;
      removeEventListener('pagehide', tell);
      removeEventListener('pageshow', tell);
      for (const [id, settle] of waiting) settle(failure(id, stopped));
      waiting.clear();
    };
    // The worker suspends its stores while the page is in the back-forward cache.
    const tell = ({ type, persisted }: PageTransitionEvent) => persisted && worker.postMessage(type);
    addEventListener('pagehide', tell);
    addEventListener('pageshow', tell);
    worker.addEventListener('error', (event) => {
      event.preventDefault();
      reject(new Error(event.message));
      stop(`the worker stopped: ${event.message}`);
    });
    const port: Port = {
      isWorker: true,
      post: (call, transfer) =>
        new Promise((settle) => {
          if (stopped) return settle(failure(call.id, stopped));
          waiting.set(call.id, settle);
          try {
            worker.postMessage(call, transfer);
          } catch (cause) {
            waiting.delete(call.id);
            settle(failure(call.id, `couldn't post a message to the worker: ${cause}`));
          }
        }),
      stop: () => {
        worker.terminate();
        stop('the page closed its connections');
      },
    };
  });
}

function failure(id: number, message: string): Answer {
  return { id, error: { code: 'module-failed', message, field: undefined } };
}

/**
 * Returns the ledger of a store that the page passes. It runs in the page's thread, because a worker cannot use the
 * store.
 * @throws DoonaError `module-failed`
 */
export async function pageLedger(store: Store, folder?: URL): Promise<Ledger> {
  const { ledgerAnswers } = await loadInPlace(folder);
  return remoteEngine({ isWorker: false, post: ledgerAnswers(store), stop: () => {} });
}

function remoteEngine(port: Port): EngineClient {
  let last = 0;
  async function call<T>(method: keyof Engine, args: readonly unknown[], transfer: Transferable[] = []): Promise<T> {
    const answer = await within(port.post({ id: ++last, method, args }, transfer), maxCall, () =>
      new DoonaError('module-failed', `the engine did not answer ${method} within ${maxCall / 1000} seconds`));
    if (!('error' in answer)) return answer.result as T;
    throw new DoonaError(answer.error.code, answer.error.message, answer.error.field);
  }
  return {
    isWorker: port.isWorker,
    inPlace: port.inPlace,
    stop: () => port.stop(),
    start: (name, code) => call('start', [name, code], code instanceof Uint8Array ? [code.buffer] : []),
    open: (request) => call('open', [request]),
    stream: (request) => call('stream', [request], [request.chain.buffer]),
    check: (handle) => call('check', [handle]),
    epsilonWithin: (handle, epochs, delta) => call('epsilonWithin', [handle, epochs, delta]),
    submission: (handle, epoch, value) => call('submission', [handle, epoch, value], [value.buffer as ArrayBuffer]),
    draft: (handle, epoch, value, tags) =>
      call('draft', [handle, epoch, value, tags], [value.buffer as ArrayBuffer]),
    claim: (claim) => call('claim', [claim]),
    release: (claim) => call('release', [claim]),
    event: (claim) => call('event', [claim]),
  };
}
