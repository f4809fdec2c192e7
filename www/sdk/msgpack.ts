/**
 * The part of msgpack that the wire format uses (docs/SPEC.md): arrays, strings, byte strings and unsigned integers.
 * Only the shortest encoding of a value is valid, so each value has exactly one encoding.
 * @module
 */

import { type Bytes, bigEndian, concat, joined } from './bytes.js';

/** The error of {@link Reader}. Callers turn it into the error of the document that they read. */
export class FormatError extends Error {}

const decoder = /* @__PURE__ */ new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/**
 * Reads canonical msgpack and throws {@link FormatError} for anything else. It refuses a length that exceeds the
 * remaining bytes, so an input cannot cause more memory or loop iterations than it has bytes. It does not recurse: the
 * caller decides how deeply values nest.
 */
export class Reader {
  #at = 0;

  constructor(readonly input: Bytes) {}

  /** The number of bytes read so far. */
  get at(): number {
    return this.#at;
  }

  /** Ends reading. @throws FormatError unless all input has been read */
  end(): void {
    if (this.#at !== this.input.length) throw new FormatError('trailing bytes');
  }

  array(length: number): void {
    if (this.arrayLength() !== length) throw new FormatError(`want an array of ${length}`);
  }

  /** Reads an array's number of values, at most `most`. Each value has at least one byte. */
  arrayLength(most = Infinity): number {
    const lead = this.#byte();
    let length: number;
    if ((lead & 0xf0) === 0x90) length = lead & 0x0f;
    else if (lead === 0xdc) length = this.#shortest(2, 16);
    else if (lead === 0xdd) length = this.#shortest(4, 1 << 16);
    else throw new FormatError('want an array');
    if (length > this.input.length - this.#at) throw new FormatError('truncated');
    if (length > most) throw new FormatError(`an array of ${length}, want at most ${most}`);
    return length;
  }

  uint(): number {
    const lead = this.#byte();
    if (lead < 0x80) return lead;
    if (lead === 0xcc) return this.#shortest(1, 0x80);
    if (lead === 0xcd) return this.#shortest(2, 1 << 8);
    if (lead === 0xce) return this.#shortest(4, 1 << 16);
    if (lead === 0xcf) return this.#shortest(8, 2 ** 32);
    throw new FormatError('want an unsigned integer');
  }

  flag(): boolean {
    const value = this.uint();
    if (value > 1) throw new FormatError('want 0 or 1');
    return value === 1;
  }

  str(): string {
    const bytes = this.#take(this.#strLength());
    try {
      return decoder.decode(bytes);
    } catch {
      throw new FormatError('not UTF-8');
    }
  }

  /** Reads a byte string. If `size` is given, it must have exactly `size` bytes. */
  bin(size?: number): Bytes {
    const length = this.#binLength();
    if (size !== undefined && length !== size) throw new FormatError(`want ${size} bytes`);
    return this.#take(length);
  }

  /**
   * Skips one value of any kind with all nested values, and returns its encoding. It reads lengths only and does not
   * decode.
   */
  raw(): Bytes {
    const from = this.#at;
    for (let left = 1; left > 0; left--) {
      const lead = this.input[this.#at] ?? 0;
      if ((lead & 0xf0) === 0x90 || lead === 0xdc || lead === 0xdd) left += this.arrayLength();
      else if (lead >= 0xc4 && lead <= 0xc6) this.#skip(this.#binLength());
      else if (lead < 0x80 || (lead >= 0xcc && lead <= 0xcf)) this.uint();
      else this.#skip(this.#strLength());
      if (left - 1 > this.input.length - this.#at) throw new FormatError('truncated');
    }
    return this.input.subarray(from, this.#at);
  }

  #strLength(): number {
    const lead = this.#byte();
    if ((lead & 0xe0) === 0xa0) return lead & 0x1f;
    if (lead === 0xd9) return this.#shortest(1, 32);
    if (lead === 0xda) return this.#shortest(2, 1 << 8);
    throw new FormatError('want a string');
  }

  #binLength(): number {
    const lead = this.#byte();
    if (lead === 0xc4) return this.#byte();
    if (lead === 0xc5) return this.#shortest(2, 1 << 8);
    if (lead === 0xc6) return this.#shortest(4, 1 << 16);
    throw new FormatError('want bytes');
  }

  #byte(): number {
    this.#skip(1);
    return this.input[this.#at - 1]!;
  }

  #skip(size: number): void {
    if (size > this.input.length - this.#at) throw new FormatError('truncated');
    this.#at += size;
  }

  #take(size: number): Bytes {
    this.#skip(size);
    return this.input.subarray(this.#at - size, this.#at);
  }

  #shortest(size: number, least: number): number {
    this.#skip(size);
    let value = 0;
    for (let at = this.#at - size; at < this.#at; at++) value = value * 256 + this.input[at]!;
    if (value < least) throw new FormatError('not the shortest encoding');
    if (!Number.isSafeInteger(value)) throw new FormatError('integer above 2^53');
    return value;
  }
}

/**
 * How a type encodes a length or integer: below `fixed` in the byte `base` itself, else in `size` bytes after the byte
 * `lead`.
 */
interface Lead {
  readonly fixed: number;
  readonly base: number;
  readonly sized: readonly (readonly [size: number, lead: number])[];
}

const arrayLead: Lead = { fixed: 16, base: 0x90, sized: [[2, 0xdc], [4, 0xdd]] };
const binLead: Lead = { fixed: 0, base: 0, sized: [[1, 0xc4], [2, 0xc5], [4, 0xc6]] };
const uintLead: Lead = { fixed: 0x80, base: 0, sized: [[1, 0xcc], [2, 0xcd], [4, 0xce], [8, 0xcf]] };

function header(lead: Lead, value: number): Bytes {
  if (value < lead.fixed) return Uint8Array.of(lead.base | value);
  const [size, first] = lead.sized.find(([bytes]) => value < 256 ** bytes)!;
  return concat(Uint8Array.of(first), bigEndian(value, size));
}

/** Encodes an array of values that are already encoded. */
export function array(parts: readonly Uint8Array[]): Bytes {
  return joined([header(arrayLead, parts.length), ...parts]);
}

export function bin(value: Uint8Array): Bytes {
  return concat(header(binLead, value.length), value);
}

export function uint(value: number): Bytes {
  return header(uintLead, value);
}
