/**
 * Loads the SDK's other scripts: the worker's and the tokens' one. The page trusts its own server, so a script of the
 * page's origin runs unchecked. A script of another origin is fetched and checked against the hash in this script; then
 * exactly the checked bytes run, from a blob: address.
 * @module
 */

import { type Asset, checkIntegrity, filesHint } from './files.js';
import { DoonaError } from './errors.js';
import { readBody } from './response.js';

/** The size limit of a script, in bytes; the larger one has 41,000. */
const maxScript = 1 << 20;

/**
 * Returns a blob: address of a script's checked bytes, which the caller revokes once the script runs; undefined for a
 * script of the page's own origin. `where` may throw, because some bundlers leave a script without an address.
 * @throws DoonaError `module-failed` if the script cannot be fetched or has another hash
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

/** The help text for a checked script that does not run. */
export const blobHint =
  "from another origin it is run as a blob:, which worker-src or script-src of the page's policy must name";

/** Returns the error for a script that did not run. */
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

/** Whether a server of another origin than the page's may serve an address. */
function isForeign({ protocol, origin }: URL): boolean {
  return (protocol === 'https:' || protocol === 'http:') && origin !== globalThis.location?.origin;
}
