/**
 * Tests the vectors of batches (docs/SPEC.md, section 7). Computes from the chunks of ciphertexts what the manifest
 * must sign, and compares.
 * @module
 */

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';

import { hex, read, toHex } from './files.ts';
import { decode } from './task.ts';

const sha256 = (...parts: Uint8Array[]) => createHash('sha256').update(Buffer.concat(parts)).digest();

function be32(n: number): Buffer {
  const out = Buffer.alloc(4);
  out.writeUInt32BE(n);
  return out;
}

function be64(n: number): Buffer {
  const out = Buffer.alloc(8);
  out.writeBigUInt64BE(BigInt(n));
  return out;
}

const signed = (counts: number[], hashes: Uint8Array[]) => sha256(be64(1024), ...counts.map(be64), ...hashes);

test('chunks.json: lanes of several chunks', () => {
  for (const { slots, ciphertextsHash } of read('chunks')) {
    const hashes = [];
    for (const n of slots) {
      const all = Array.from({ length: n }, (_, i) => be32(i));
      while (all.length) hashes.push(sha256(...all.splice(0, 1024)));
    }
    assert.equal(toHex(signed(slots, hashes)), ciphertextsHash);
  }
});

test('batch.json: counts add up, chunks have their hashes, and the manifest signs them', () => {
  for (const v of read('batch')) {
    const [manifest, signature, hashes, chunks] = decode(hex(v.batch));
    assert.equal(toHex(manifest), v.manifest);
    assert.equal(signature.length, 64);
    const [label, version, , , , seq, submissions, lanes, ciphertexts] = decode(manifest);
    assert.deepEqual([label, version, seq, submissions], ['doona-manifest', 1n, BigInt(v.seq), BigInt(v.submissions)]);
    const counts = lanes.map((lane: bigint[]) => lane.map(Number));
    assert.deepEqual(counts, v.lanes);
    for (const [into, added, out, dropped] of counts) assert.equal(into + added, out + dropped);
    const sums = chunks.map((chunk: Uint8Array) => sha256(chunk));
    assert.deepEqual(Buffer.from(hashes), Buffer.concat(sums));
    assert.equal(toHex(signed(counts.map((lane: number[]) => lane[2]!), sums)), v.ciphertextsHash);
    assert.equal(toHex(ciphertexts), v.ciphertextsHash);
  }
});
