/**
 * Tests the vectors of bundles and key lists (docs/SPEC.md, sections 4 and 5).
 * @module
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Refused, openBundle, rootOf } from './bundle.ts';
import { hex, names, read, toHex } from './files.ts';
import { decode } from './task.ts';

const keyOf = (text: string) => Uint8Array.from(Buffer.from(text.replace('ed25519:', ''), 'base64url'));

for (const [name, epoch] of [['bundle', 0], ['block', read('block').epoch]]) {
  test(`${name}.json: signatures, hashes and paths`, () => {
    const { bundle, owner } = read(name);
    const { first, keys } = openBundle(hex(bundle), keyOf(owner));
    assert.equal(first, epoch - (epoch % 8));
    assert.ok(keys.length >= 3);
  });
}

test('keylist.json: the keys of each block lead to the root', () => {
  let most = 0;
  for (const { list, keys, blocks } of read('keylist')) {
    const [, , , count, root] = decode(decode(hex(list))[0]);
    assert.equal(Number(count), keys.length);
    assert.equal(blocks.length, Math.ceil(keys.length / 8));
    most = Math.max(most, blocks.length);
    blocks.forEach(({ first, keys: together, path }: any, i: number) => {
      assert.equal(first, 8 * i);
      assert.equal(together, keys.slice(first, first + 8).map((key: any) => key.public).join(''));
      assert.equal(toHex(rootOf(hex(together), i, blocks.length, hex(path))), toHex(root), `block ${i}`);
    });
  }
  assert.ok(most > 4, `${most} blocks`);
});

for (const name of [...names('bad_bundle_'), ...names('bad_block_')]) {
  const { bundle, owner, expect, description } = read(name);
  test(`${name}.json: ${description}`, () => {
    assert.throws(() => openBundle(hex(bundle), keyOf(owner)),
      (error) => error instanceof Refused && error.expect === expect);
  });
}
