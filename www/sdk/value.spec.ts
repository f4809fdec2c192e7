// Tests which values toInput refuses. Go tests cover the checks inside the WASM module.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { connect } from './connect.js';
import { DoonaError } from './errors.js';
import type { Task } from './task.js';
import { toInput } from './value.js';

const task = (query: string, input: object) =>
  ({ query, input: { lo: '-1', hi: '2.5', bins: 3, labels: false, clip: false, ...input } }) as Task;

const asked: readonly [string, Task, readonly unknown[], readonly unknown[]][] = [
  ['labels', task('histogram', { labels: true }), [0, 2, -0], [3, -1, 0.5, NaN, '1', [1, 2]]],
  ['bins', task('histogram', {}), [-1, 0.5, 2.5], [-1.1, 2.6, Infinity, undefined]],
  ['a clipped mean', task('mean', { clip: true }), [-9, 9], [NaN, -Infinity]],
  ['a count', task('count', { lo: '0', hi: '1' }), [0, 1], [0.5, 2, -1]],
  ['a vector', task('vector', {}), [[-1, 0, 2.5], Float32Array.of(0, 0, 0)], [[0, 0], [0, 0, 3], [0, 0, NaN], 0]],
  ['a vector of a norm', task('vectormean', { clip: true }), [[9, 9, 9]], [[0, 0, Infinity], [1]]],
  ['a text', task('strings', {}), ['', 'abc', 'longer'], ['a\0', 1, ['a']]],
];

for (const [name, of, allowed, wrong] of asked) {
  test(`a task for ${name}`, () => {
    for (const value of allowed) toInput(of, value as number);
    for (const value of wrong) {
      assert.throws(() => toInput(of, value as number), (error) => error instanceof DoonaError &&
        error.code === 'invalid-value' && error.field === 'value', String(value));
    }
  });
}

test('the copy of a refused value is zeroed', (t) => {
  const copies: Float64Array[] = [];
  const { from } = Float64Array;
  t.mock.method(Float64Array, 'from', (list: readonly number[]) => {
    const copy = Reflect.apply(from, Float64Array, [list]) as Float64Array;
    copies.push(copy);
    return copy;
  });
  assert.throws(() => toInput(task('vector', {}), [1, 2, 3]));
  assert.deepEqual(copies, [new Float64Array(3)]);
});

test('connect refuses an old Node and says so', async () => {
  const { versions } = process;
  Object.defineProperty(process, 'versions', { value: { ...versions, node: '20.19.0' }, configurable: true });
  try {
    const options = { task: '', owner: '', maxEpsilon: 1, maxTotalEpsilon: 1 };
    await assert.rejects(connect(options), /couldn't start in Node 20\.19\.0: want Node 22 or newer/);
  } finally {
    Object.defineProperty(process, 'versions', { value: versions, configurable: true });
  }
});
