/**
 * HPKE base mode, RFC 9180: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM, on WebCrypto.
 * @module
 */

import * as HPKE from '../vendor/hpke/index.js';

import { type Bytes, concat } from './bytes.js';
import { retryKeyPair } from './webcrypto.js';

const suite = /* @__PURE__ */ new HPKE.CipherSuite(
  HPKE.KEM_DHKEM_X25519_HKDF_SHA256,
  HPKE.KDF_HKDF_SHA256,
  HPKE.AEAD_AES_128_GCM,
);

/** The KEM's identifier in the HPKE registry. */
export const kemId = 0x0020;

/** The size of a serialized public key, in bytes. */
export const keySize = 32;

/** A public key ready for use. */
export type PublicKey = HPKE.CryptoKey;

export function importKey(serialized: Bytes): Promise<PublicKey> {
  return suite.DeserializePublicKey(serialized);
}

/**
 * Encrypts and returns enc ‖ ciphertext, with a fresh encapsulated key enc of 32 bytes. Rejects a key of low order,
 * because its shared secret would be all zeros (RFC 9180, section 7.1.4).
 */
export async function seal(key: PublicKey, info: Bytes, aad: Bytes, plaintext: Bytes): Promise<Bytes> {
  const { encapsulatedSecret, ciphertext } = await retryKeyPair(() => suite.Seal(key, plaintext, { info, aad }));
  return concat(encapsulatedSecret, ciphertext);
}

/** Generates a key pair, and serializes its public key. */
export async function newKey(): Promise<{ readonly key: HPKE.KeyPair<PublicKey>; readonly serialized: Bytes }> {
  const key = await suite.GenerateKeyPair();
  return { key, serialized: (await suite.SerializePublicKey(key.publicKey)) as Bytes };
}

/** Decrypts enc ‖ ciphertext, as `seal` returns it. */
export async function open(key: HPKE.KeyPair<PublicKey>, info: Bytes, aad: Bytes, sealed: Bytes): Promise<Bytes> {
  const [enc, ciphertext] = [sealed.subarray(0, keySize), sealed.subarray(keySize)];
  return (await suite.Open(key, enc, ciphertext, { info, aad })) as Bytes;
}
