// Tests that the SDK retries when generating a key pair fails at random, as in WebKitGTK.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';

import { importKey, seal } from './hpke.js';
import { canSeal } from './webcrypto.js';

const { generateKey } = crypto.subtle;
after(() => { crypto.subtle.generateKey = generateKey; });

/** Makes the next `times` calls of generateKey fail. */
function failing(times: number): void {
  crypto.subtle.generateKey = ((...args: unknown[]) => times-- > 0
    ? Promise.reject(new DOMException('as the test asked', 'OperationError'))
    : Reflect.apply(generateKey, crypto.subtle, args)) as typeof generateKey;
}

test('a report is sealed although key pairs fail', async () => {
  const pair = await generateKey.call(crypto.subtle, 'X25519', true, ['deriveBits']) as CryptoKeyPair;
  const raw = new Uint8Array(await crypto.subtle.exportKey('raw', pair.publicKey));
  const key = await importKey(raw);
  const empty = new Uint8Array();
  failing(4);
  assert.equal((await seal(key, empty, empty, empty)).length, 48);
  failing(5);
  await assert.rejects(seal(key, empty, empty, empty), /Encapsulation failed/);
});

test('WebCrypto is used although a key pair fails', async () => {
  failing(1);
  assert.equal(await canSeal(), true);
  failing(Infinity);
  assert.equal(await canSeal(), false);
});
