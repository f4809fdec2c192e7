/**
 * Tests the vectors of signed ends of epochs and signed times (docs/SPEC.md, sections 5, 7 and 8).
 * @module
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Task, Refused } from './end.ts';
import { hex, names, read } from './files.ts';

test('end.json: signatures, places and counts, back to the first relay', () => {
  const vectors = read('end');
  assert.ok(vectors.some((v: any) => v.hop > 0));
  for (const v of vectors) {
    const task = new Task(hex(v.task));
    const chain = task.end(hex(v.end), BigInt(v.epoch), v.hop);
    assert.deepEqual(chain.map(({ hop }) => Number(hop)), Array.from({ length: v.hop + 1 }, (_, hop) => hop));
    const last = chain[v.hop]!;
    assert.equal(last.batches, BigInt(v.batches));
    assert.equal(last.submissions, BigInt(v.submissions));
    assert.deepEqual(last.lanes.map((counts) => counts.map(Number)), v.lanes);
    assert.equal(task.time(hex(v.time), v.hop, hex(v.nonce)), BigInt(v.unix));
    const other = hex(v.nonce);
    other[0]! ^= 1;
    assert.throws(() => task.time(hex(v.time), v.hop, other), Refused);
    assert.throws(() => task.end(hex(v.end), BigInt(v.epoch) + 1n, v.hop), Refused);
    assert.throws(() => task.end(hex(v.time), BigInt(v.epoch), v.hop), Refused, 'signed for another purpose');
  }
});

for (const name of names('bad_end_')) {
  const v = read(name);
  test(`${name}.json: ${v.description}`, () => {
    const expected = (err: unknown) => err instanceof Refused && err.expect === v.expect;
    assert.throws(() => new Task(hex(v.task)).end(hex(v.end), BigInt(v.epoch), v.hop), expected);
  });
}
