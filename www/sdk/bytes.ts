/**
 * Joins, compares and converts byte strings.
 * @module
 */

/** Bytes in an unshared buffer, as WebCrypto requires. */
export type Bytes = Uint8Array<ArrayBuffer>;

export function concat(...parts: readonly Uint8Array[]): Bytes {
  return joined(parts);
}

/** Joins a list of any length; a call's arguments are limited in number. */
export function joined(parts: readonly Uint8Array[]): Bytes {
  const out = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

/** Compares public values. Not for secrets: its time depends on the bytes. */
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

/** Parses lower-case hexadecimal of exactly `size` bytes; undefined for anything else. */
export function fromHex(text: string, size: number): Bytes | undefined {
  if (text.length !== 2 * size || !/^[0-9a-f]*$/.test(text)) return undefined;
  return Uint8Array.from({ length: size }, (_, i) => parseInt(text.slice(2 * i, 2 * i + 2), 16));
}

export function toHex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** Parses unpadded base64url of exactly `size` bytes; undefined for anything else. */
export function fromBase64url(text: string, size: number): Bytes | undefined {
  if (!/^[A-Za-z0-9_-]*$/.test(text)) return undefined;
  let decoded: string;
  try {
    decoded = atob(text.replaceAll('-', '+').replaceAll('_', '/'));
  } catch {
    return undefined;
  }
  const out = Uint8Array.from(decoded, (c) => c.charCodeAt(0));
  // Unused bits of the last character must be zero, so that each key has one text.
  return out.length === size && toBase64url(out) === text ? out : undefined;
}

export function toBase64url(bytes: Uint8Array): string {
  const text = btoa(String.fromCharCode(...bytes));
  return text.replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
}
