/**
 * Loads the WASM modules. The page fetches a module while the engine's worker starts; the engine checks the module's
 * hash and compiles it.
 * @module
 */

import type { Bytes } from './bytes.js';
import type { Engine } from './engine.js';
import { DoonaError } from './errors.js';
import { modules, filesHint } from './files.js';
import type { ModuleName } from './module.js';
import { checkNotPage, readBody } from './response.js';
import { withTimeout } from './timing.js';

/** A WASM module that is starting in the engine. */
export interface ModuleStart {
  /** Resolves to true once the module runs, or to null if it stopped while starting and is not doona-full.wasm. */
  readonly running: Promise<true | null>;
}

/** Created after `connect` has tested the builtins: a library of the page may have replaced Map. */
let moduleStarts: Map<string, Promise<ModuleStart>> | undefined;

/** Aborts the downloads for the engine of a folder. */
let downloads: Map<string, AbortController> | undefined;

/**
 * Fetches a WASM module from `folder`, by default this script's folder, and starts it in `engine`. Once per page and
 * folder.
 */
export function startModule(name: ModuleName, engine: Promise<Pick<Engine, 'start'>>, folder?: URL,
  compiled?: WebAssembly.Module): Promise<ModuleStart> {
  const starts = (moduleStarts ??= new Map<string, Promise<ModuleStart>>());
  const key = `${name} ${folder}`;
  let starting = starts.get(key);
  if (!starting) {
    starting = start(name, engine, folder, compiled);
    starts.set(key, starting);
    const begun = starting;
    const forget = () => starts.get(key) === begun && starts.delete(key);
    starting.then(({ running }) => running).catch(forget);
  }
  return starting;
}

/**
 * Forgets the modules that were started in the engine of a folder, because the engine has stopped. Aborts their
 * downloads.
 */
export function forgetModules(folder?: URL): void {
  downloads?.get(String(folder))?.abort();
  downloads?.delete(String(folder));
  for (const name in modules) moduleStarts?.delete(`${name} ${folder}`);
}

async function start(name: ModuleName, engine: Promise<Pick<Engine, 'start'>>, folder?: URL,
  compiled?: WebAssembly.Module): Promise<ModuleStart> {
  const all = (downloads ??= new Map<string, AbortController>());
  const key = String(folder);
  const download = all.get(key) ?? new AbortController();
  all.set(key, download);
  const [ready, code] = await Promise.all([engine, compiled ?? load(moduleURL(name, folder), download.signal)]);
  return { running: ready.start(name, code) };
}

/** Returns the address of a WASM module. */
export function moduleURL(name: ModuleName, folder?: URL): URL {
  if (folder) return new URL(modules[name].file, folder);
  // Bundlers recognize only exactly these expressions.
  if (name === 'full') return new URL(DOONA.full.file, import.meta.url);
  if (name === 'small') return new URL(DOONA.small.file, import.meta.url);
  return new URL(DOONA.browser.file, import.meta.url);
}

/** The longest wait for a WASM module, in milliseconds. */
const maxModuleWait = 25_000;

/** The size limit of a WASM module, in bytes. doona-full.wasm has 7 million. */
const maxModule = 32 << 20;

async function load(url: URL, outer: AbortSignal): Promise<Bytes> {
  try {
    if (url.protocol === 'file:') return await readFile(url);
    return await withTimeout(async (signal) => {
      const response = await fetch(url, { credentials: 'same-origin', referrerPolicy: 'no-referrer', signal });
      if (!response.ok) throw new Error(`the server answered ${response.status}`);
      const body = await readBody(response, maxModule);
      checkNotPage(body);
      return body;
    }, maxModuleWait, outer);
  } catch (cause) {
    const message = `couldn't load ${url.href}: ${(cause as Error).message}; ${filesHint}`;
    throw new DoonaError('module-failed', message, 'modules', { cause });
  }
}

/**
 * Reads a local file: Node's fetch does not support file: addresses. For a bare `process`, Parcel would install a
 * polyfill.
 */
async function readFile(url: URL): Promise<Bytes> {
  return new Uint8Array(await globalThis.process.getBuiltinModule('node:fs/promises').readFile(url));
}
