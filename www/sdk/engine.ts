/**
 * The engine checks tasks and streams, randomizes values and seals reports. On a page it runs in a worker if one can
 * start (worker.ts), so that it never blocks the page. Only the engine decodes tasks and streams, which come from other
 * parties. It makes no requests: its caller passes modules, bundles and streams. It refuses a WASM module with a wrong
 * hash. In a worker it also decides whether the budget admits a report (ledger.ts).
 * @module
 */

import { checkId, checkIssuer, checkOwner, parseFrame, withTask, withTokens } from './bundle.js';
import { type Bytes, equal, joined } from './bytes.js';
import { blockOf } from './epochs.js';
import { DoonaError } from './errors.js';
import { modules as assets, checkIntegrity } from './files.js';
import { type Claim, type Ledger, ledgerOf } from './ledger.js';
import { Module, type ModuleName, ModuleStopped } from './module.js';
import { type Reporter, withFullModule, withWebCrypto } from './reporter.js';
import { randomTags } from './seal.js';
import type { Report, Store } from './store.js';
import { withIndexedDB } from './store-indexeddb.js';
import { type StreamRequest, type StreamView, viewStream } from './stream.js';
import type { Task } from './task.js';

/** A WASM module: its bytes, or compiled by the caller. */
export type ModuleCode = Bytes | WebAssembly.Module;

/** A bundle, and the owner and id that its task must have. */
export interface OpenRequest {
  readonly bundle: Bytes;
  readonly owner: Bytes;
  readonly id: Bytes;
  /** The module in which to open the task. The caller must have started it. */
  readonly module: ModuleName;
}

/** A task that passed every check. */
export interface OpenedTask {
  readonly handle: number;
  readonly task: Task;
  /** ε₀ of one client's messages; Infinity if the protocol has none. */
  readonly epsilon0: number;
  /** The ε of all epochs of the task together. */
  readonly totalEpsilon: number;
  /** The block of epochs whose keys the bundle has. */
  readonly block: number;
  /**
   * The ids of the issuer's token keys, 32 bytes each, concatenated in the order of the block's epochs. Empty for a
   * task without tokens.
   */
  readonly tokenKeys: Bytes;
}

/**
 * The interface of the engine, in this thread or in a worker. A result of null means that the caller must use
 * doona-full.wasm: another module stopped, perhaps at a function that its build left out, or WebCrypto cannot seal for
 * the task's KEM. If doona-full.wasm stops, every method that uses it throws DoonaError `module-failed`.
 */
export interface Engine extends Ledger {
  /**
   * Starts a module unless it runs. It takes over the module's bytes from the caller.
   * @throws DoonaError `module-failed`
   */
  start(name: ModuleName, code: ModuleCode): Promise<true | null>;
  /**
   * Checks a bundle and its claim. A result of undefined means that doona-small.wasm lacks the task's protocol.
   * @throws DoonaError `task-refused` or `claim-refused`
   */
  open(request: OpenRequest): Promise<OpenedTask | null | undefined>;
  /**
   * Checks a stream and returns the parts that a page needs. It takes over the stream's bytes and returns them in
   * `chain`.
   * @throws DoonaError `stream-broken` or `task-refused`
   */
  stream(request: StreamRequest): Promise<StreamView>;
  /** Returns the ε of `epochs` epochs together at `delta`; Infinity if no ε holds. */
  epsilonWithin(handle: number, epochs: number, delta: number): Promise<number | null>;
  /** Returns true if the module in which the task is open still runs. */
  check(handle: number): Promise<true | null>;
  /**
   * Randomizes and seals a value, and overwrites the value with zeros. The caller may send at most one result per task
   * and epoch.
   * @throws DoonaError `invalid-value`; `task-refused` for an epoch of another block, or if sealing fails
   */
  submission(handle: number, epoch: number, value: Float64Array): Promise<Bytes | null>;
  /**
   * Does the same for a draft. All drafts of an epoch's report share the tags of the first one; without `tags`, this is
   * the first one. The caller may send any number of them, because an honest relay passes at most one. Only for a task
   * whose clients draw nothing private, with one slot.
   * @throws DoonaError as submission
   */
  draft(handle: number, epoch: number, value: Float64Array, tags?: Bytes): Promise<Draft | null>;
}

/** A sealed value that a later one may replace. */
export interface Draft {
  /** The bytes to post. */
  readonly body: Bytes;
  /** The tags of all layers, one for each hop. */
  readonly tags: Bytes;
}

/**
 * Returns an engine that runs in the calling thread. Its ledger is in `store`, by default in IndexedDB. It calls
 * `decides` right before each decision about the budget.
 */
export function localEngine(decides?: () => void, own?: Store): Engine {
  const modules = new Map<ModuleName, Promise<Module>>();
  const tasks: (OpenRequest & { readonly reporter: Reporter; readonly opened: OpenedTask })[] = [];
  const withReporter = <T>(handle: number, work: (reporter: Reporter) => T | Promise<T>) => {
    const { module, reporter } = tasks[handle]!;
    return nullIfStopped(module, async () => work(reporter));
  };
  const seal = async (handle: number, epoch: number, value: Float64Array, tags?: Bytes) => {
    try {
      return await withReporter(handle, (reporter) => reporter.submission(epoch, value, tags));
    } finally {
      value.fill(0);
    }
  };
  const decide = <T>(work: (ledger: Ledger) => Promise<T>) => {
    const withStore = (store: Store) => work(ledgerOf(store, decides));
    return own ? withStore(own) : withIndexedDB(withStore);
  };
  return {
    start: (name, code) => nullIfStopped<true>(name, async () => {
      let module = modules.get(name);
      if (!module) {
        module = compile(name, code).then((compiled) => Module.start(compiled, name));
        modules.set(name, module);
        module.catch((cause) => {
          if (name !== 'full' && cause instanceof ModuleStopped) return; // The caller now starts doona-full.wasm.
          modules.delete(name); // A retry may succeed.
        });
      }
      await module;
      return true;
    }),
    open: ({ bundle: raw, owner, id, module: name }) => nullIfStopped<OpenedTask | null | undefined>(name, async () => {
      // A module never frees what it has opened, and a page may connect any number of times.
      const old = tasks.find((open) => open.module === name && equal(open.id, id) && equal(open.owner, owner) &&
        equal(open.bundle, raw));
      if (old) return old.opened;
      const frame = parseFrame(raw);
      await checkId(frame, id);
      if (name !== 'full') await checkOwner(frame, owner); // doona-full.wasm checks it itself
      const bundle = withTask(frame);
      const { task } = bundle;
      if (name !== 'full' && task.kem !== 'x25519') return null;
      const module = modules.get(name);
      if (!module) throw new DoonaError('module-failed', `couldn't open the task: module ${name} has not been started`);
      const reporter =
        name === 'full' ? withFullModule(await module, raw, { owner, id }) : await withWebCrypto(module, bundle, id)
          .catch((cause: DoonaError) => {
            if (name === 'small' && cause.field === 'protocol') return undefined;
            throw cause;
          });
      if (!reporter) return reporter;
      const tokenKeys = joined(withTokens(task) ? await checkIssuer(bundle, name === 'full') : []);
      const { epsilon0, totalEpsilon } = reporter;
      const block = blockOf(bundle.first);
      const opened = { handle: tasks.length, task, epsilon0, totalEpsilon, block, tokenKeys };
      tasks.push({ bundle: raw.slice(), owner: owner.slice(), id: id.slice(), module: name, reporter, opened });
      return opened;
    }),
    stream: viewStream,
    epsilonWithin: (handle, epochs, delta) => withReporter(handle, (reporter) => reporter.epsilonWithin(epochs, delta)),
    check: (handle) => withReporter<true>(handle, (reporter) => (reporter.alive(), true)),
    submission: (handle, epoch, value) => seal(handle, epoch, value),
    async draft(handle, epoch, value, old) {
      const tags = old ?? randomTags(tasks[handle]!.opened.task.relays.length + 1);
      const body = await seal(handle, epoch, value, tags);
      return body && { body, tags };
    },
    claim: (claim: Claim): Promise<Report | undefined> => decide((ledger) => ledger.claim(claim)),
    release: (claim: Claim) => decide((ledger) => ledger.release(claim)),
    event: (claim: Claim) => decide((ledger) => ledger.event(claim)),
  };
}

/**
 * Runs `work`. Returns null if another module than doona-full.wasm stopped.
 * @throws DoonaError `module-failed` if doona-full.wasm stopped
 */
export async function nullIfStopped<T>(name: ModuleName, work: () => Promise<T>): Promise<T | null> {
  try {
    return await work();
  } catch (cause) {
    if (!(cause instanceof ModuleStopped)) throw cause;
    if (name !== 'full') return null;
    throw new DoonaError('module-failed', cause.message, undefined, { cause });
  }
}

export async function compile(name: ModuleName, code: ModuleCode): Promise<WebAssembly.Module> {
  if (!(code instanceof Uint8Array)) return code;
  const asset = assets[name];
  try {
    const compiled = WebAssembly.compile(code); // Compiles while the hash is checked.
    compiled.catch(() => {}); // If the hash is wrong too, report that error.
    await checkIntegrity(code, asset);
    return await compiled;
  } catch (cause) {
    throw new DoonaError('module-failed', `couldn't compile ${asset.file}: ${(cause as Error).message}`, undefined,
      { cause });
  }
}
