/**
 * The part of msgpack the wire uses (docs/SPEC.md): arrays, strings, byte strings and unsigned
 * integers, each in its shortest encoding and no other, so that one value has one form.
 * @module
 */

import { type Bytes, bigEndian, concat } from './bytes.js';

/** What {@link Reader} throws; callers turn it into the error of what they were reading. */
export class FormatError extends Error {}

/** Reads canonical msgpack; every other form of the same value throws {@link FormatError}. */
export class Reader {
  #at = 0;

  constructor(readonly input: Bytes) {}

  /** @throws FormatError unless all input has been read. */
  end(): void {
    if (this.#at !== this.input.length) throw new FormatError('trailing bytes');
  }

  array(length: number): void {
    if (this.arrayLength() !== length) throw new FormatError(`want an array of ${length}`);
  }

  arrayLength(): number {
    const lead = this.#byte();
    if ((lead & 0xf0) === 0x90) return lead & 0x0f;
    if (lead === 0xdc) return this.#shortest(2, 16);
    if (lead === 0xdd) return this.#shortest(4, 1 << 16);
    throw new FormatError('want an array');
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
    const lead = this.#byte();
    let size: number;
    if ((lead & 0xe0) === 0xa0) size = lead & 0x1f;
    else if (lead === 0xd9) size = this.#shortest(1, 32);
    else if (lead === 0xda) size = this.#shortest(2, 1 << 8);
    else throw new FormatError('want a string');
    const bytes = this.#take(size);
    try {
      return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
    } catch {
      throw new FormatError('not UTF-8');
    }
  }

  /** Reads a byte string, of exactly `size` bytes where given. */
  bin(size?: number): Bytes {
    const lead = this.#byte();
    let length: number;
    if (lead === 0xc4) length = this.#byte();
    else if (lead === 0xc5) length = this.#shortest(2, 1 << 8);
    else if (lead === 0xc6) length = this.#shortest(4, 1 << 16);
    else throw new FormatError('want bytes');
    if (size !== undefined && length !== size) throw new FormatError(`want ${size} bytes`);
    return this.#take(length);
  }

  /** Reads one value of any kind, with all that is in it, and returns its encoding. */
  raw(): Bytes {
    const from = this.#at;
    for (let left = 1; left > 0; left--) {
      const lead = this.input[this.#at] ?? 0;
      if ((lead & 0xf0) === 0x90 || lead === 0xdc || lead === 0xdd) left += this.arrayLength();
      else if (lead >= 0xc4 && lead <= 0xc6) this.bin();
      else if (lead < 0x80 || (lead >= 0xcc && lead <= 0xcf)) this.uint();
      else this.str();
    }
    return this.input.subarray(from, this.#at);
  }

  #byte(): number {
    return this.#take(1)[0]!;
  }

  #take(size: number): Bytes {
    if (size > this.input.length - this.#at) throw new FormatError('truncated');
    return this.input.subarray(this.#at, (this.#at += size));
  }

  #shortest(size: number, least: number): number {
    const value = this.#take(size).reduce((sum, byte) => sum * 256 + byte, 0);
    if (value < least) throw new FormatError('not the shortest encoding');
    if (!Number.isSafeInteger(value)) throw new FormatError('integer above 2^53');
    return value;
  }
}

/** The lead bytes of a type's lengths: in the lead byte itself below `fixed`, then in 1, 2, 4. */
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

/** Writes an array of parts that are already encoded. */
export function array(parts: readonly Uint8Array[]): Bytes {
  return concat(header(arrayLead, parts.length), ...parts);
}

export function bin(value: Uint8Array): Bytes {
  return concat(header(binLead, value.length), value);
}

export function uint(value: number): Bytes {
  return header(uintLead, value);
}
