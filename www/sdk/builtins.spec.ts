/**
 * Tests that checkBuiltins notices broken builtins, and that the budget needs no builtin that old libraries replace.
 * test/builtins.test.mjs replaces each builtin in a browser.
 * @module
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { type Limit, admit } from './budget.js';
import { checkBuiltins } from './builtins.js';
import { checkEngineBuiltins, checkWebCrypto } from './engine-builtins.js';
import { DoonaError } from './errors.js';
import type { Line } from './store.js';

/** Runs `work` while the builtin `holder[key]` is replaced by `value`. */
async function replaced<T>(holder: object, key: string, value: unknown, work: () => T | Promise<T>): Promise<T> {
  const native = Object.getOwnPropertyDescriptor(holder, key)!;
  Reflect.defineProperty(holder, key, { value, configurable: true, writable: true });
  try {
    return await work();
  } finally {
    Reflect.defineProperty(holder, key, native);
  }
}

const broken = (field: string) => (error: unknown) =>
  error instanceof DoonaError && error.code === 'builtin-broken' && error.field === field;

test('this runtime passes, and a builtin that does too little is named', async () => {
  checkEngineBuiltins();
  await checkWebCrypto();
  for (const [holder, key, name] of [[Math, 'max', 'Math.max'], [Array.prototype, 'flatMap', 'Array.prototype.flatMap'],
    [String.prototype, 'padStart', 'String.prototype.padStart']] as const) {
    for (const value of [undefined, () => undefined]) {
      await assert.rejects(replaced(holder, key, value, () => checkBuiltins()), broken(name));
    }
  }
});

test('WebCrypto that seals or verifies nothing is named', async () => {
  const subtle = SubtleCrypto.prototype;
  for (const [key, value] of Object.entries({
    encrypt: async (_how: unknown, _key: unknown, plain: Uint8Array) => plain.slice().buffer, verify: async () => true,
    deriveBits: async () => new ArrayBuffer(32), digest: async () => new ArrayBuffer(32) })) {
    await assert.rejects(replaced(subtle, key, value, () => checkWebCrypto()), broken(`crypto.subtle.${key}`));
  }
  await assert.rejects(replaced(Crypto.prototype, 'getRandomValues', (out: unknown) => out, () => checkEngineBuiltins()),
    broken('crypto.getRandomValues'));
});

test('MooTools leaves Array.from without a map function: the budget admits as many reports as ever', async () => {
  const limit: Limit = { epsilon: 1.5, delta: 1e-3, days: 30, option: 'budget' };
  const one = { epsilon: 1, delta: 1e-6 };
  const lines: Line[] = [];
  const sent = () => {
    for (let i = 0; i < 6; i++) {
      try {
        const first = { id: `task ${i}`, price: { first: one, reports: 1, all: one }, length: 3600 };
        lines.push(admit(lines, first, 1_800_000_000, limit));
      } catch (error) {
        assert.ok(error instanceof DoonaError && error.code === 'budget-exceeded');
      }
    }
    return lines.length;
  };
  const old = (x: any) => (Array.isArray(x) ? x : typeof x === 'string' ? [x] : [].slice.call(x));
  assert.equal(await replaced(Array, 'from', old, sent), 1);
});
