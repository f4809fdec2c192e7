/**
 * Joins, compares and converts byte strings.
 * @module
 */

/**
 * Bytes in an unshared buffer, as WebCrypto requires: Uint8Array<ArrayBuffer>. TypeScript before 5.7 knows only
 * Uint8Array, and this expression means the right type in both.
 */
export type Bytes = ReturnType<Uint8Array['slice']>;

export function concat(...parts: readonly Uint8Array[]): Bytes {
  return joined(parts);
}

/** Joins a list of any length; the number of arguments of a call is limited. */
export function joined(parts: readonly Uint8Array[]): Bytes {
  let size = 0;
  for (const part of parts) size += part.length;
  const out = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

/** Compares public values. Do not use it for secrets: its running time depends on the bytes. */
export function equal(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}

export function utf8(text: string): Bytes {
  return new TextEncoder().encode(text);
}

/** Encodes an unsigned integer in `size` bytes, big endian. */
export function bigEndian(value: number, size: number): Bytes {
  const out = new Uint8Array(size);
  for (let i = size - 1; i >= 0; i--) {
    out[i] = value % 256;
    value = Math.floor(value / 256);
  }
  return out;
}

/** Parses lower-case hexadecimal digits of exactly `size` bytes. Returns undefined for anything else. */
export function fromHex(text: string, size: number): Bytes | undefined {
  if (text.length !== 2 * size || !/^[0-9a-f]*$/.test(text)) return undefined;
  const out = new Uint8Array(size);
  for (let i = 0; i < size; i++) out[i] = parseInt(text.slice(2 * i, 2 * i + 2), 16);
  return out;
}

export function toHex(bytes: Uint8Array): string {
  let text = '';
  for (let i = 0; i < bytes.length; i++) text += bytes[i]!.toString(16).padStart(2, '0');
  return text;
}

/** Parses unpadded base64url of exactly `size` bytes. Returns undefined for anything else. */
export function fromBase64url(text: string, size: number): Bytes | undefined {
  if (!/^[A-Za-z0-9_-]*$/.test(text)) return undefined;
  let decoded: string;
  try {
    decoded = atob(text.replaceAll('-', '+').replaceAll('_', '/'));
  } catch {
    return undefined;
  }
  const out = latin1(decoded);
  // The unused bits of the last character must be zero, so that each key has exactly one text form.
  return out.length === size && toBase64url(out) === text ? out : undefined;
}

/** Converts a binary string, as `atob` returns it, to bytes: one byte for each character. */
export function latin1(text: string): Bytes {
  const out = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) out[i] = text.charCodeAt(i);
  return out;
}

export function toBase64url(bytes: Uint8Array): string {
  const text = btoa(String.fromCharCode(...bytes));
  return text.replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
}
