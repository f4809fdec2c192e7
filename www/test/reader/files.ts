/**
 * Reads the files of testdata/v1 (testdata/README.md).
 * @module
 */

import { readFileSync, readdirSync } from 'node:fs';

const folder = new URL('../../../testdata/v1/', import.meta.url);

export function read(name: string): any {
  return JSON.parse(readFileSync(new URL(`${name}.json`, folder), 'utf8'));
}

/** Returns the names of all files that begin with `prefix`, without `.json`. */
export function names(prefix: string): string[] {
  const files = readdirSync(folder).filter((name) => name.startsWith(prefix) && name.endsWith('.json'));
  return files.map((name) => name.slice(0, -'.json'.length));
}

export const hex = (text: string): Uint8Array => Uint8Array.from(Buffer.from(text, 'hex'));

export const toHex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
