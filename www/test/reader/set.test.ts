/**
 * Tests the vectors of sets (docs/SPEC.md, section 15).
 * @module
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Refused } from './bundle.ts';
import { hex, names, read, toHex } from './files.ts';
import { epochOn, openKeys, openSet, openSlot, openSubmission } from './set.ts';

const keyOf = (text: string) => Uint8Array.from(Buffer.from(text.replace('ed25519:', ''), 'base64url'));

test('set.json: the set, the keys of every block, and submissions', () => {
  const { owner, bundle, id, clocks, submissions, renewal } = read('set');
  const set = openSet(hex(bundle), keyOf(owner));
  assert.equal(toHex(set.id), id);
  assert.equal(openSet(hex(renewal), keyOf(owner)).tables[3]!.task.stream!.position, 1n);
  clocks.forEach(({ blocks }: any, clock: number) => {
    for (const { first, keys } of blocks) assert.equal(openKeys(set, clock, hex(keys)).first, first);
  });
  for (const { day, private: secrets, body, tag, slots } of submissions) {
    const opened = openSubmission(set, day, hex(secrets[0][0]), hex(body));
    assert.equal(toHex(opened.tag), tag);
    slots.forEach(({ epoch, open, relayTag, verifierTag, cover, message }: any, i: number) => {
      const table = set.tables[i]!;
      assert.deepEqual(epochOn(set, table, day), { epoch, open });
      const [, relay, verifier] = secrets[table.clock].map(hex);
      const layer = openSlot(table, epoch, 1, relay, opened.slots[i]!);
      assert.equal(toHex(layer.subarray(0, 16)), relayTag);
      const plain = openSlot(table, epoch, 2, verifier, layer.subarray(16));
      assert.equal(toHex(plain), verifierTag + (cover ? '00' : '01') + message);
    });
  }
});

for (const name of names('bad_set_')) {
  const { kind, bundle, owner, expect, description, clock, keys, epoch, private: secret, body } = read(name);
  test(`${name}.json: ${description}`, () => {
    assert.throws(() => {
      const set = openSet(hex(bundle), keyOf(owner));
      if (kind === 'set_keys') openKeys(set, clock, hex(keys));
      if (kind === 'set_submission') openSubmission(set, epoch, hex(secret), hex(body));
    }, (error) => error instanceof Refused && error.expect === expect, expect);
  });
}
