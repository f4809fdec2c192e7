/**
 * The SDK's other scripts, the worker's and the tokens'. Who serves the page serves what it trusts: a script of its
 * origin runs as it is. One of another origin is fetched and held against the hash that this script names, and what
 * runs are those bytes, from a blob: address.
 * @module
 */

import { type Asset, checkIntegrity, filesHint } from './files.js';
import { DoonaError } from './errors.js';
import { readBody } from './response.js';

/** The most bytes of a script; the larger one has 41,000. */
const maxScript = 1 << 20;

/**
 * Returns the address of a script's checked bytes, to be revoked when it runs; undefined for a script of the page's
 * own origin. `where` may throw, where a bundler leaves a script without an address.
 * @throws DoonaError `module-failed` for other bytes
 */
export async function checkedScript(asset: Asset, where: () => URL): Promise<string | undefined> {
  const url = urlOrUndefined(where);
  if (!url || !isForeign(url)) return undefined;
  try {
    const response = await fetch(url, { credentials: 'omit', referrerPolicy: 'no-referrer' });
    if (!response.ok) throw new Error(`the server answered ${response.status}`);
    const bytes = await readBody(response, maxScript);
    await checkIntegrity(bytes, asset);
    return URL.createObjectURL(new Blob([bytes], { type: 'text/javascript' }));
  } catch (cause) {
    throw scriptFailed(asset, cause, `from another origin than the page's it needs connect-src ${url.origin}`);
  }
}

/** What helps where a checked script does not run. */
export const blobHint =
  "from another origin it is run as a blob:, which worker-src or script-src of the page's policy must name";

/** Returns the error of a script that did not run. */
export function scriptFailed({ file }: Asset, cause: unknown, help = filesHint): DoonaError {
  return new DoonaError('module-failed', `couldn't load ${file}: ${(cause as Error).message}; ${help}`, 'modules',
    { cause });
}

function urlOrUndefined(where: () => URL): URL | undefined {
  try {
    return where();
  } catch {
    return undefined;
  }
}

/** Whether somebody else than the page's server may serve an address. */
function isForeign({ protocol, origin }: URL): boolean {
  return (protocol === 'https:' || protocol === 'http:') && origin !== globalThis.location?.origin;
}
