/**
 * Fetches and compiles the WASM modules: off the main thread, while they arrive. A changed
 * module is refused by its hash.
 * @module
 */

import type { ModuleName } from './engine.js';
import { DoonaError } from './errors.js';
import { modules } from './files.js';
import { sha256 } from './signature.js';

const started = new Map<string, Promise<WebAssembly.Module>>();

/** Returns a compiled module of `folder`, by default this script's; fetched once per page. */
export function compile(name: ModuleName, folder?: URL): Promise<WebAssembly.Module> {
  const url = address(name, folder);
  let module = started.get(url.href);
  if (!module) {
    const from = url.protocol === 'file:' ? compileFile : compileStream;
    module = failing(url, from(url, modules[name].integrity));
    started.set(url.href, module);
    module.catch(() => started.delete(url.href));
  }
  return module;
}

function address(name: ModuleName, folder?: URL): URL {
  if (folder) return new URL(modules[name].file, folder);
  // Bundlers look for these very expressions.
  if (name === 'full') return new URL(DOONA.full.file, import.meta.url);
  return new URL(DOONA.browser.file, import.meta.url);
}

function compileStream(url: URL, integrity: string): Promise<WebAssembly.Module> {
  return WebAssembly.compileStreaming(fetch(url, { integrity, credentials: 'same-origin' }));
}

/** Node cannot fetch its own files. */
async function compileFile(url: URL, integrity: string): Promise<WebAssembly.Module> {
  const { readFile } = process.getBuiltinModule('node:fs/promises');
  const bytes = new Uint8Array(await readFile(url));
  const hash = btoa(String.fromCharCode(...(await sha256(bytes))));
  if (`sha256-${hash}` !== integrity) throw new Error('its hash is not the one this script names');
  return WebAssembly.compile(bytes);
}

async function failing(url: URL, module: Promise<WebAssembly.Module>): Promise<WebAssembly.Module> {
  try {
    return await module;
  } catch (cause) {
    const message = `couldn't load ${url.pathname.split('/').at(-1)}: ${(cause as Error).message}`;
    throw new DoonaError('module-failed', message, undefined, { cause });
  }
}
