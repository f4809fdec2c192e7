/**
 * Reads bundles: tasks with the keys of one block of epochs (docs/SPEC.md, sections 4 and 5).
 * @module
 */

import { createHash, createPublicKey, verify } from 'node:crypto';

import { toHex } from './files.ts';
import { decode } from './task.ts';

/** A bundle is invalid. `expect` says why, as in the vectors. */
export class Refused extends Error {
  readonly expect: string;

  constructor(expect: string, what: string) {
    super(what);
    this.expect = expect;
  }
}

type Bytes = Uint8Array;
type Party = [url: string, signKey: Bytes, keyList: Bytes];

/** The number of epochs of a block. */
const inBlock = 8;
/** The sizes of public keys, and of the ids of token keys, in bytes. */
const sizes: Record<string, number> = { x25519: 32, mlkem768x25519: 1216, 'rsabssa-2048': 32 };

export const sha256 = (...parts: Bytes[]) => createHash('sha256').update(Buffer.concat(parts)).digest();
// The bytes of a SubjectPublicKeyInfo before an Ed25519 key of 32 bytes (RFC 8410).
const prefix = Buffer.from('302a300506032b6570032100', 'hex');

export function isSigned(key: Bytes, purpose: string, body: Bytes, signature: Bytes): boolean {
  const imported = createPublicKey({ key: Buffer.concat([prefix, key]), format: 'der', type: 'spki' });
  return verify(null, Buffer.concat([Buffer.from(`doona-v1 ${purpose}\0`), body]), imported, signature);
}

/**
 * Returns the root of a tree of `size` leaves. It reads the leaf's proof from the root down, as RFC 9162 defines it in
 * section 2.1.3.1.
 */
export function rootOf(leaf: Bytes, index: number, size: number, proof: Bytes): Bytes {
  if (size === 1) {
    if (proof.length > 0) throw new Refused('keylist', 'a path that is too long');
    return sha256(Uint8Array.of(0), leaf);
  }
  if (proof.length < 32) throw new Refused('keylist', 'a path that is too short');
  const [rest, other] = [proof.subarray(0, -32), proof.subarray(-32)];
  const half = 2 ** Math.floor(Math.log2(size - 1));
  if (index < half) return sha256(Uint8Array.of(1), rootOf(leaf, index, half, rest), other);
  return sha256(Uint8Array.of(1), other, rootOf(leaf, index - half, size - half, rest));
}

/** Returns the keys of a block, for each party by epoch. The owner's key is known in advance. */
export function openBundle(raw: Bytes, owner: Bytes): { first: number; keys: Bytes[][] } {
  const [canonical, signer, signature, lists, start, blocks] = parse(raw, 6);
  if (toHex(signer) !== toHex(owner)) throw new Refused('owner', 'another owner');
  if (!isSigned(owner, 'task', canonical, signature)) throw new Refused('signer', 'the task');
  const fields = parse(canonical, 18);
  const [count, [kind, , issuer]] = [Number(fields[11][2]), fields[12]];
  const parties: [Party, kem: string][] = [...fields[13], fields[14]].map((party) => [party, fields[15]]);
  if (kind === 'token') parties.push([issuer, 'rsabssa-2048']);
  if (kind === 'token' && toHex(issuer[1]) === toHex(owner)) throw new Refused('field:clients.issuer', 'the owner');
  if (lists.length !== parties.length || blocks.length !== parties.length) throw new Refused('keylist', 'parties');
  const first = Number(start);
  if (first % inBlock !== 0 || first >= count) throw new Refused('keylist', 'first');
  return { first, keys: parties.map(([[, signKey, hash], kem], hop) => {
    const [list, by] = parse(lists[hop], 2);
    if (toHex(sha256(list)) !== toHex(hash)) throw new Refused('keylist', 'a list that the task does not name');
    if (!isSigned(signKey, 'keys', list, by)) throw new Refused('signer', 'a key list');
    const [label, version, listed, total, root] = parse(list, 5);
    const size = sizes[kem]!;
    const [together, path] = blocks[hop];
    const epochs = Math.min(inBlock, count - first);
    const right = label === 'doona-keys' && version === 1n && listed === kem && Number(total) === count &&
      together.length === epochs * size;
    if (!right) throw new Refused('keylist', 'a list or its keys');
    const found = rootOf(together, first / inBlock, Math.ceil(count / inBlock), path);
    if (toHex(found) !== toHex(root)) throw new Refused('keylist', 'another root');
    const keys = Array.from({ length: epochs }, (_, i) => together.subarray(i * size, i * size + size));
    if (new Set(keys.map(toHex)).size !== epochs) throw new Refused('keylist', 'one key for two epochs');
    return keys;
  }) };
}

/** Decodes an array of a known length. */
function parse(bytes: Bytes, length: number): any {
  let fields;
  try {
    fields = decode(bytes);
  } catch (cause) {
    throw new Refused('encoding', String(cause));
  }
  if (fields.length !== length) throw new Refused('encoding', `an array of ${fields.length}`);
  return fields;
}
