/**
 * The files that belong beside the SDK's script. `www/build` replaces the constants `DOONA.…` by literals, so that
 * bundlers find the files: names with a content hash, and integrity hashes.
 * @module
 */

import type { Bytes } from './bytes.js';
import { sha256 } from './signature.js';

/** A file's name and its integrity metadata. */
export interface Asset {
  readonly file: string;
  readonly integrity: string;
}

declare global {
  /**
   * Marks the address of an import that is known only at run time. `www/build` replaces the name by comments of the
   * same length, which tell webpack and Vite to leave the import as it is. A minifier would drop such comments.
   */
  function addressThatBundlersMustLeaveToTheBrowserItself(address: string): string;
  const DOONA: { readonly browser: Asset; readonly small: Asset; readonly full: Asset; readonly worker: Asset;
    readonly tokens: Asset; readonly words: Asset; readonly inPlace: Asset };
}

export const modules: { readonly browser: Asset; readonly small: Asset; readonly full: Asset } = {
  browser: { file: DOONA.browser.file, integrity: DOONA.browser.integrity },
  small: { file: DOONA.small.file, integrity: DOONA.small.integrity },
  full: { file: DOONA.full.file, integrity: DOONA.full.integrity },
};

/** Checks a file's bytes against the hash of the build. @throws Error if they differ */
export async function checkIntegrity(bytes: Bytes, { integrity }: Asset): Promise<void> {
  const hash = btoa(String.fromCharCode(...(await sha256(bytes))));
  if (`sha256-${hash}` !== integrity) throw new Error('its hash is not the one this script names');
}

/** The hint in the error for a missing file. Of the bundlers, only vite, webpack and Parcel copy the files. */
export const filesHint =
  "the package's doona-* files belong beside its script, or into a folder that the option modules names";
