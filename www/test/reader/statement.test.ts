/**
 * Tests the vectors of statements about streams (docs/SPEC.md, section 4).
 * @module
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { hex, names, read, toHex } from './files.ts';
import { Refused, decide, statements } from './statement.ts';

function check(v: any) {
  const told = { root: hex(v.root), owner: hex(v.owner), recovery: hex(v.recovery) };
  const last = statements(hex(v.statements), told);
  decide(v.tasks.map(({ id, owner }: any) => ({ id: hex(id), owner: hex(owner) })), last);
  return last;
}

test('statement.json: who signs next', () => {
  const vectors = read('statement');
  assert.ok(vectors.some((v: any) => v.era > 0) && vectors.some((v: any) => v.key === ''));
  for (const v of vectors) {
    const { era, number, position, key } = check(v);
    assert.deepEqual([era, number, position].map(Number), [v.era, v.number, v.position]);
    assert.equal(toHex(key), v.key);
  }
});

const bad = names('bad_statement_');
test('there are invalid vectors', () => assert.ok(bad.length > 10));
for (const name of bad) {
  const v = read(name);
  test(`${name}.json: ${v.description}`, () => assert.throws(() => check(v), Refused));
}
