/**
 * Tests that the msgpack reader reads what the writer writes, and refuses every other encoding.
 * @module
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { type Bytes, concat } from './bytes.js';
import { FormatError, Reader, array, bin, uint } from './msgpack.js';

test('integers and lengths around every boundary are read back', () => {
  for (const value of [0, 1, 127, 128, 255, 256, 65535, 65536, 2 ** 32 - 1, 2 ** 32, 2 ** 53 - 1]) {
    assert.equal(new Reader(uint(value)).uint(), value);
  }
  for (const size of [0, 1, 255, 256, 65535, 65536]) {
    assert.equal(new Reader(bin(new Uint8Array(size))).bin().length, size);
  }
  for (const length of [0, 15, 16, 65535, 65536]) {
    assert.equal(new Reader(array(Array.from({ length }, () => uint(0)))).arrayLength(), length);
  }
});

const reads: Record<string, (r: Reader) => unknown> = {
  uint: (r) => r.uint(),
  flag: (r) => r.flag(),
  str: (r) => r.str(),
  bin: (r) => r.bin(),
  array: (r) => r.arrayLength(),
};

for (const [type, name, bytes] of [
  ['uint', '127 in two bytes', [0xcc, 127]],
  ['uint', '255 in three', [0xcd, 0, 255]],
  ['uint', '65535 in five', [0xce, 0, 0, 255, 255]],
  ['uint', '2^32-1 in nine', [0xcf, 0, 0, 0, 0, 255, 255, 255, 255]],
  ['uint', '2^53', [0xcf, 0, 0x20, 0, 0, 0, 0, 0, 0]],
  ['uint', 'a negative integer', [0xff]],
  ['uint', 'true', [0xc3]],
  ['uint', 'a float', [0xca, 0, 0, 0, 0]],
  ['uint', 'nothing', []],
  ['flag', '2', [2]],
  ['str', 'a short string with a length byte', [0xd9, 1, 65]],
  ['str', 'a truncated string', [0xa2, 65]],
  ['str', 'invalid UTF-8', [0xa1, 0xff]],
  ['bin', 'one byte with a two-byte length', [0xc5, 0, 1, 0]],
  ['bin', 'a string', [0xa1, 65]],
  ['array', 'a short array with a two-byte length', [0xdc, 0, 1, 0]],
  ['array', 'a map', [0x80]],
] as const) {
  test(`${type}: ${name} is refused`, () => {
    const input: Bytes = Uint8Array.from(bytes);
    assert.throws(() => reads[type]!(new Reader(input)), FormatError);
  });
}

test('trailing bytes are refused', () => {
  const r = new Reader(concat(uint(1), uint(2)));
  r.uint();
  assert.throws(() => r.end(), FormatError);
});
