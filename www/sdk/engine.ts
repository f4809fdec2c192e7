/**
 * The heavy half of the SDK: it checks tasks and streams, randomizes and seals. It runs in a worker where
 * there are workers (worker.ts), so that a page never waits for it, and else beside its caller: nothing that
 * another party sends is decoded anywhere else. It fetches nothing: modules, bundles and streams are handed to it. A
 * changed module is refused by its hash.
 * @module
 */

import { checkId, checkIssuer, checkOwner, parseFrame, withTask, withTokens } from './bundle.js';
import { type Bytes, joined } from './bytes.js';
import { DoonaError } from './errors.js';
import { modules as assets, checkIntegrity } from './files.js';
import { Module, type ModuleName, ModuleStopped } from './module.js';
import { type Reporter, withFullModule, withWebCrypto } from './reporter.js';
import { type StreamRequest, type StreamView, viewStream } from './stream.js';
import type { Task } from './task.js';

/** A module as it was fetched, or compiled where its caller has done that. */
export type ModuleCode = Bytes | WebAssembly.Module;

/** A bundle and what it is held against. */
export interface OpenRequest {
  readonly bundle: Bytes;
  readonly owner: Bytes;
  readonly id: Bytes;
  /** The module to open it with; told to start before. */
  readonly module: ModuleName;
}

/** A task that passed every check. */
export interface OpenedTask {
  readonly handle: number;
  readonly task: Task;
  /** ε₀ of one client's messages; Infinity where the protocol has none. */
  readonly epsilon0: number;
  /** ε of all epochs of the task together. */
  readonly totalEpsilon: number;
  /** The ids of the issuer's keys by epoch, 32 bytes each, of a task with tokens; else empty. */
  readonly tokenKeys: Bytes;
}

/**
 * What the page calls, here or across threads. Null from any says that doona.wasm cannot go on and doona-full.wasm
 * is needed: it stopped, perhaps at a function that was left out of it, or WebCrypto cannot seal for the task's KEM.
 * Where doona-full.wasm stops, all throw DoonaError `module-failed`.
 */
export interface Engine {
  /** Starts a module, once. Its bytes are taken away. @throws DoonaError `module-failed` */
  start(name: ModuleName, code: ModuleCode): Promise<true | null>;
  /** Checks a bundle and its claim. @throws DoonaError `task-refused` or `claim-refused` */
  open(request: OpenRequest): Promise<OpenedTask | null>;
  /**
   * Checks a stream and returns what a page needs of it. Its bytes are taken away, and are in what is returned.
   * @throws DoonaError `stream-broken` or `task-refused`
   */
  stream(request: StreamRequest): Promise<StreamView>;
  /** ε of so many epochs together at a δ; Infinity if there is none. */
  epsilonWithin(handle: number, epochs: number, delta: number): Promise<number | null>;
  /** Answers while the engine and the handle's module run. */
  check(handle: number): Promise<true | null>;
  /**
   * Randomizes and seals; the caller keeps at most one result per task and epoch. The value is
   * zeroed.
   * @throws DoonaError `invalid-value`; `task-refused` where the task's keys cannot be sealed to
   */
  submission(handle: number, epoch: number, value: Float64Array): Promise<Bytes | null>;
}

/** Returns an engine of this thread. */
export function localEngine(): Engine {
  const modules = new Map<ModuleName, Promise<Module>>();
  const reporters: { readonly name: ModuleName; readonly reporter: Reporter }[] = [];
  const withReporter = <T>(handle: number, work: (reporter: Reporter) => T | Promise<T>) => {
    const { name, reporter } = reporters[handle]!;
    return nullIfStopped(name, async () => work(reporter));
  };
  return {
    start: (name, code) => nullIfStopped<true>(name, async () => {
      let module = modules.get(name);
      if (!module) {
        module = compile(name, code).then((compiled) => Module.start(compiled, name));
        modules.set(name, module);
        module.catch((cause) => {
          if (name === 'browser' && cause instanceof ModuleStopped) return; // doona-full.wasm takes its place
          modules.delete(name); // another attempt may succeed
        });
      }
      await module;
      return true;
    }),
    open: ({ bundle: raw, owner, id, module: name }) => nullIfStopped(name, async () => {
      const frame = parseFrame(raw);
      await checkId(frame, id);
      if (name === 'browser') await checkOwner(frame, owner); // doona-full.wasm does it itself
      const bundle = withTask(frame);
      const { task } = bundle;
      if (name === 'browser' && task.kem !== 'x25519') return null;
      const module = modules.get(name);
      if (!module) throw new DoonaError('module-failed', `couldn't open the task: module ${name} has not been started`);
      const reporter =
        name === 'browser' ? await withWebCrypto(module, bundle, id) : withFullModule(await module, raw, { owner, id });
      const tokenKeys = joined(withTokens(task) ? await checkIssuer(bundle, name === 'full') : []);
      const { epsilon0, totalEpsilon } = reporter;
      return { handle: reporters.push({ name, reporter }) - 1, task, epsilon0, totalEpsilon, tokenKeys };
    }),
    stream: viewStream,
    epsilonWithin: (handle, epochs, delta) => withReporter(handle, (reporter) => reporter.epsilonWithin(epochs, delta)),
    check: (handle) => withReporter<true>(handle, (reporter) => (reporter.alive(), true)),
    async submission(handle, epoch, value) {
      try {
        return await withReporter(handle, (reporter) => reporter.submission(epoch, value));
      } finally {
        value.fill(0);
      }
    },
  };
}

/** @throws DoonaError `module-failed` where it is doona-full.wasm that stopped */
async function nullIfStopped<T>(name: ModuleName, work: () => Promise<T>): Promise<T | null> {
  try {
    return await work();
  } catch (cause) {
    if (!(cause instanceof ModuleStopped)) throw cause;
    if (name === 'browser') return null;
    throw new DoonaError('module-failed', cause.message, undefined, { cause });
  }
}

async function compile(name: ModuleName, code: ModuleCode): Promise<WebAssembly.Module> {
  if (!(code instanceof Uint8Array)) return code;
  const asset = assets[name];
  try {
    const compiled = WebAssembly.compile(code); // meanwhile
    compiled.catch(() => {}); // a wrong hash says more
    await checkIntegrity(code, asset);
    return await compiled;
  } catch (cause) {
    throw new DoonaError('module-failed', `couldn't compile ${asset.file}: ${(cause as Error).message}`, undefined,
      { cause });
  }
}
