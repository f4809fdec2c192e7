/**
 * Checks the SDK's other scripts: the worker's, and those of on-demand.ts. It fetches a script and compares it with the
 * hash in this script before the script runs. A script from another origin runs from a blob: address, so exactly the
 * checked bytes run. A script from the page's own origin runs from its own address, which even the strictest policy
 * admits. Its server could then send other bytes, but it also serves the page (docs/threat-model.md).
 * @module
 */

import type { Bytes } from './bytes.js';
import { type Asset, checkIntegrity, filesHint } from './files.js';
import { DoonaError } from './errors.js';
import { checkNotPage, readBody } from './response.js';
import { withTimeout } from './timing.js';

/** The longest wait for a script, in milliseconds. */
const maxFetch = 15_000;

/** The size limit of a script, in bytes; the largest one has 57,000. */
const maxScript = 1 << 20;

/**
 * Fetches a script and checks its hash. Returns the address to run it from: the script's own address, or a blob:
 * address, which the caller revokes once the script runs. Returns undefined, without a check, if the script is part of
 * the site's own code: a bundler has rebuilt it under another name, or its address is not http or https. `where` may
 * throw, because some bundlers leave a script without an address.
 * @throws DoonaError `module-failed` if the script cannot be fetched or has another hash
 */
export async function checkedScript(asset: Asset, where: () => URL): Promise<string | undefined> {
  const url = urlOrUndefined(where);
  if (!url || (url.protocol !== 'https:' && url.protocol !== 'http:')) return undefined;
  const isOwn = url.origin === globalThis.location?.origin;
  if (isOwn && !isPackaged(url, asset)) return undefined;
  try {
    const bytes = await withTimeout(async (signal) => {
      // As a page's preload link asks for it. From another origin, no credentials are sent.
      const response = await fetch(url, { credentials: 'same-origin', referrerPolicy: 'no-referrer', signal });
      if (!response.ok) throw new Error(`the server answered ${response.status}`);
      const body = await readBody(response, maxScript);
      checkNotPage(body);
      return body;
    }, maxFetch);
    await checkIntegrity(isOwn ? withoutSourceMap(bytes) : bytes, asset);
    return isOwn ? url.href : URL.createObjectURL(new Blob([bytes], { type: 'text/javascript' }));
  } catch (cause) {
    throw scriptFailed(asset, cause,
      isOwn ? filesHint : `from another origin than the page's it needs connect-src ${url.origin}`);
  }
}

/**
 * Whether an address at the page's origin names the package's file. A service worker cannot import files, so its code
 * contains the script.
 */
function isPackaged(url: URL, { file }: Asset): boolean {
  return url.pathname.endsWith(file.slice(1)) && !('ServiceWorkerGlobalScope' in globalThis);
}

/**
 * Removes the last line of a script if it is a comment that names a source map. Vite's development server appends one.
 */
function withoutSourceMap(script: Bytes): Bytes {
  const comment = '\n//# sourceMappingURL=';
  let start = script.length;
  while (start > 0 && script[start - 1]! >= 0x20 && script[start - 1]! < 0x7f) start--; // to the last line's start
  start--;
  for (let i = 0; i < comment.length; i++) if (script[start + i] !== comment.charCodeAt(i)) return script;
  return script.subarray(0, start);
}

const blobHint =
  "from another origin it is run as a blob:, which worker-src or script-src of the page's policy must name";

/** Returns the hint for the error of a script that passed its check but did not run from this address. */
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
