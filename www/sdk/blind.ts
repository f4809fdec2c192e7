/**
 * The cryptography of anonymous tokens: blind RSA signatures of 2048 bits (RFC 9474), used as Privacy Pass tokens of
 * type 2 (RFC 9577, RFC 9578). A page loads this script only if its task requires tokens. The script makes no requests.
 * @module
 */

import { BlindRSA } from '../vendor/blindrsa/blindrsa.js';

import { type Bytes, bigEndian, concat, equal, fromHex, toBase64url } from './bytes.js';
import { sha256 } from './signature.js';

const tokenType = bigEndian(2, 2);
const modulusSize = 256;

/** RSABSSA-SHA384-PSS-Deterministic. */
const suite = new BlindRSA({
  name: 'RSABSSA-SHA384-PSS-Deterministic',
  hash: 'SHA-384',
  saltLength: 48,
  prepareType: 0,
  supportsRSARAW: false,
});

/** A token that waits for its issuer's signature. */
export interface PendingToken {
  /** The token request for the issuer, 259 bytes. */
  readonly request: Bytes;
  /**
   * Makes the token, 354 bytes, from the issuer's reply.
   * @throws Error if the reply is not a signature of this request
   */
  finalize(reply: Bytes): Promise<Bytes>;
}

/**
 * Makes a token request for a challenge and the issuer's key.
 * @throws Error if the key does not have the id `keyId`
 */
export async function blind(spki: Bytes, keyId: Bytes, challenge: Bytes): Promise<PendingToken> {
  if (!equal(await sha256(spki), keyId)) throw new Error('its key is not the one the task names');
  const key = await parseKey(spki);
  const nonce = crypto.getRandomValues(new Uint8Array(32));
  const input = concat(tokenType, nonce, await sha256(challenge), keyId);
  const { blindedMsg, inv } = await suite.blind(key, input);
  return {
    request: concat(tokenType, keyId.subarray(31), blindedMsg),
    finalize: async (reply) => concat(input, await suite.finalize(key, input, reply, inv)),
  };
}

/**
 * The bytes of an encoded public key before and after its 256-byte modulus. The encoding is a SubjectPublicKeyInfo of
 * RSASSA-PSS with SHA-384, MGF1 with SHA-384, a salt of 48 bytes and exactly 2048 bits. `suffix` is the exponent 65537.
 */
const prefix = fromHex(
  '30820152303d06092a864886f70d01010a3030a00d300b0609608648016503040202a11a301806092a864886f70d010108' +
    '300b0609608648016503040202a2030201300382010f003082010a0282010100',
  81,
)!;
const suffix = fromHex('0203010001', 5)!;

/**
 * Imports a public key.
 * @throws Error unless it is `prefix`, an odd modulus of 2048 bits, `suffix`
 */
export function parseKey(spki: Bytes): Promise<CryptoKey> {
  const modulus = spki.subarray(prefix.length, prefix.length + modulusSize);
  const expected = concat(prefix, modulus, suffix);
  if (!equal(expected, spki) || !(modulus[0]! & 0x80) ||
    !(modulus[modulusSize - 1]! & 1)) throw new Error('not a key of 2048 bits');
  const jwk = { kty: 'RSA', n: toBase64url(modulus), e: 'AQAB', alg: 'PS384', ext: true };
  return crypto.subtle.importKey('jwk', jwk, { name: 'RSA-PSS', hash: 'SHA-384' }, true, ['verify']);
}
