/**
 * Loads the SDK's other scripts: the worker's and the tokens' one. It fetches a script and compares it with the hash in
 * this script before it runs. From another origin exactly the checked bytes run, from a blob: address. From the page's
 * origin the script runs from its own address, which the strictest policy admits: its server could answer the second
 * request differently, but it also serves the page (docs/threat-model.md).
 * @module
 */

import type { Bytes } from './bytes.js';
import { type Asset, checkIntegrity, filesHint } from './files.js';
import { DoonaError } from './errors.js';
import { readBody } from './response.js';
import { withTimeout } from './timing.js';

/** The longest wait for a script, in milliseconds. It has 20 kB. */
const maxFetch = 15_000;

/** The size limit of a script, in bytes; the larger one has 46,000. */
const maxScript = 1 << 20;

/**
 * Fetches a script and checks it. Returns the address to run it from: the script's own, or a blob: address, which the
 * caller revokes once the script runs. Returns undefined for a script that is a part of the site's own code: a bundler
 * has built it anew under another name, or its address is not of http or https. `where` may throw, because some
 * bundlers leave a script without an address.
 * @throws DoonaError `module-failed` if the script cannot be fetched or has another hash
 */
export async function checkedScript(asset: Asset, where: () => URL): Promise<string | undefined> {
  const url = urlOrUndefined(where);
  if (!url || (url.protocol !== 'https:' && url.protocol !== 'http:')) return undefined;
  const isOwn = url.origin === globalThis.location?.origin;
  if (isOwn && !isPackaged(url, asset)) return undefined;
  try {
    const bytes = await withTimeout(async (signal) => {
      const credentials = isOwn ? 'same-origin' : 'omit';
      const response = await fetch(url, { credentials, referrerPolicy: 'no-referrer', signal });
      if (!response.ok) throw new Error(`the server answered ${response.status}`);
      return readBody(response, maxScript);
    }, maxFetch);
    await checkIntegrity(isOwn ? withoutSourceMap(bytes) : bytes, asset);
    return isOwn ? url.href : URL.createObjectURL(new Blob([bytes], { type: 'text/javascript' }));
  } catch (cause) {
    throw scriptFailed(asset, cause,
      isOwn ? filesHint : `from another origin than the page's it needs connect-src ${url.origin}`);
  }
}

/**
 * Whether an address of the page's origin names the package's file. A service worker cannot import files, so its code
 * contains the script.
 */
function isPackaged(url: URL, { file }: Asset): boolean {
  return url.pathname.endsWith(file.slice(1)) && !('ServiceWorkerGlobalScope' in globalThis);
}

/** Returns a script without the comment that Vite's development server appends: a last line that names a source map. */
function withoutSourceMap(script: Bytes): Bytes {
  const comment = '\n//# sourceMappingURL=';
  let start = script.length;
  while (start > 0 && script[start - 1]! >= 0x20 && script[start - 1]! < 0x7f) start--; // no end of line in it
  start--;
  for (let i = 0; i < comment.length; i++) if (script[start + i] !== comment.charCodeAt(i)) return script;
  return script.subarray(0, start);
}

const blobHint =
  "from another origin it is run as a blob:, which worker-src or script-src of the page's policy must name";

/** Returns the help text for a script that was checked and does not run from this address. */
export function runHint(address?: string): string {
  return address?.startsWith('blob:') ? blobHint : filesHint;
}

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
