/**
 * Verifies Ed25519 signatures of owners and parties. A signature is valid for one purpose only.
 * @module
 */

import { type Bytes, concat, fromBase64url, toBase64url, utf8 } from './bytes.js';
import { version } from './task.js';

const prefix = 'ed25519:';

/** Parses a key in text form: "ed25519:" and unpadded base64url. Returns undefined for anything else. */
export function parseKey(text: string): Bytes | undefined {
  return text.startsWith(prefix) ? fromBase64url(text.slice(prefix.length), 32) : undefined;
}

export function formatKey(key: Uint8Array): string {
  return prefix + toBase64url(key);
}

/** Verifies the signature of `key` over `body` for a purpose. */
export async function verify(key: Bytes, purpose: 'task' | 'keys' | 'set' | 'statement' | 'rotation',
  body: Uint8Array, signature: Bytes): Promise<boolean> {
  const imported = await crypto.subtle.importKey('raw', key, 'Ed25519', false, ['verify']);
  const signed = concat(utf8(`doona-v${version} ${purpose}\0`), body);
  return crypto.subtle.verify('Ed25519', imported, signature, signed);
}

/** Returns the SHA-256 of public bytes. */
export async function sha256(bytes: Bytes): Promise<Bytes> {
  return new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
}
