/**
 * The files beside the SDK's script. `www/build` puts their content-hashed names and integrity
 * hashes in the place of these constants, as literals, so that bundlers find the files.
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
  const DOONA: { readonly browser: Asset; readonly full: Asset; readonly worker: Asset; readonly tokens: Asset };
}

export const modules: { readonly browser: Asset; readonly full: Asset } = {
  browser: { file: DOONA.browser.file, integrity: DOONA.browser.integrity },
  full: { file: DOONA.full.file, integrity: DOONA.full.integrity },
};

/** @throws Error unless the bytes are those of the file that was built */
export async function checkIntegrity(bytes: Bytes, { integrity }: Asset): Promise<void> {
  const hash = btoa(String.fromCharCode(...(await sha256(bytes))));
  if (`sha256-${hash}` !== integrity) throw new Error('its hash is not the one this script names');
}

/** What helps where a file is not found: bundlers other than vite, webpack and Parcel leave them behind. */
export const filesHint =
  "the package's doona-* files belong beside its script, or into a folder that the option modules names";
