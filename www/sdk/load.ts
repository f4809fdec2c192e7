/**
 * Fetches and compiles the WASM modules. `www/build` puts their content-hashed names and their
 * integrity hashes here, so that a cached module is good for ever and a changed one is refused.
 * @module
 */

import { Module, running } from './module.js';

/** Which module: the small one for every page, or the one that also seals. */
export type ModuleName = 'browser' | 'full';

/** A module's file name and its integrity metadata. */
interface Asset {
  readonly file: string;
  readonly integrity: string;
}

/** Set by the bundler (www/build). */
declare const DOONA_MODULES: Record<ModuleName, Asset>;

const started = new Map<string, Promise<Module>>();

/**
 * Returns the module, started once per page. It is fetched from `base`, by default the folder of
 * this script, unless it is given compiled.
 */
export function load(name: ModuleName, base: string | URL, compiled?: WebAssembly.Module): Promise<Module> {
  const asset = DOONA_MODULES[name];
  const url = new URL(asset.file, base).href;
  let module = started.get(url);
  if (!module) {
    module = compiled ? Module.start(compiled) : fetchModule(url, asset.integrity);
    started.set(url, module);
    module.catch(() => started.delete(url));
  }
  return module;
}

async function fetchModule(url: string, integrity: string): Promise<Module> {
  const compiled = await running('load', () =>
    WebAssembly.compileStreaming(fetch(url, { integrity, credentials: 'same-origin' })),
  );
  return Module.start(compiled);
}
