/**
 * Tests which key of an issuer's directory the SDK uses: only the key of token type 2 whose id is in the task.
 * @module
 */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { type TestContext, test } from 'node:test';

import * as blind from './blind.js';
import { type Bytes, fromHex } from './bytes.js';
import { DoonaError } from './errors.js';
import { sha256 } from './signature.js';
import { parseTask } from './task.js';
import { fetchToken } from './token.js';

const [vector, other]: any[] = JSON.parse(readFileSync('../testdata/v1/token.json', 'utf8'));

const hex = (text: string): Bytes => fromHex(text, text.length / 2)!;

/** Entries of an issuer directory (RFC 9578, section 4). */
interface Entry {
  'token-type': number;
  'token-key': string;
}

const keysOf = ({ directory }: { directory: string }): Entry[] => JSON.parse(directory)['token-keys'];

/**
 * Asks an issuer whose directory has these keys for a token. Returns whether the issuer got a token request, and the
 * error.
 */
async function ask(t: TestContext, keys: Entry[]): Promise<{ asked: boolean; error: DoonaError }> {
  let asked = false;
  const directory = JSON.stringify({ 'issuer-request-uri': 'token-request', 'token-keys': keys });
  t.mock.method(globalThis, 'fetch', async () => new Response(directory));
  const canonical = hex(vector.task);
  const task = parseTask(canonical);
  const source = async () => {
    asked = true;
    return new Response(hex(vector.reply)); // The reply to another request, so no token results.
  };
  const id = await sha256(canonical);
  const wanted = { id, idText: '', task, epoch: vector.epoch, keyId: await sha256(hex(vector.key)), source };
  const error = await fetchToken(wanted, Promise.resolve(blind)).then(() => assert.fail('a token'), (cause) => cause);
  assert.ok(error instanceof DoonaError);
  assert.equal(error.code, 'not-delivered');
  return { asked, error };
}

test('a key of type 2 with the right id is used, at any position', async (t) => {
  const { asked } = await ask(t, [...keysOf(other), ...keysOf(vector)]);
  assert.ok(asked);
});

test('a key of another type is not used, even with the right id', async (t) => {
  for (const type of [1, 0xda7a]) {
    const { asked, error } = await ask(t, keysOf(vector).map((key) => ({ ...key, 'token-type': type })));
    assert.ok(!asked);
    assert.match(error.message, /its key is not the one the task names/);
  }
});

test('a key with another id is not used', async (t) => {
  const { asked, error } = await ask(t, keysOf(other));
  assert.ok(!asked);
  assert.match(error.message, /its key is not the one the task names/);
});
