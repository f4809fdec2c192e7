/**
 * Seals a report in layers (docs/SPEC.md "Onion"). It encrypts each slot to the verifier first, and then to the relays,
 * from the last to the second. One envelope, encrypted to the first relay, contains all slots.
 * @module
 */

import type { Keys } from './bundle.js';
import { type Bytes, bigEndian, concat, utf8 } from './bytes.js';
import { type PublicKey, importKey, kemId, seal } from './hpke.js';
import { type Lanes, tagSize } from './module.js';
import { array, bin, uint } from './msgpack.js';
import { sha256 } from './signature.js';
import { version } from './task.js';

/** The kinds of plaintext. The associated data contains the kind. */
export const kindSlot = 0;
export const kindEnvelope = 1;

/** The key of one hop for one epoch, and the HPKE info string for that key. */
export interface Hop {
  readonly key: PublicKey;
  readonly info: Bytes;
}

/** Seals plaintext slots for a task. */
export class Sealer {
  readonly #taskId: Bytes;
  readonly #keys: Keys;

  constructor(taskId: Bytes, keys: Keys) {
    this.#taskId = taskId;
    this.#keys = keys;
  }

  /**
   * Returns the body to post: msgpack [version, envelope]. Without `tags`, every layer has a random tag. The drafts of
   * one report share their tags, one for each hop. Only a task with one slot has drafts.
   * @throws Error for an epoch outside the block whose keys it has
   */
  async submission(epoch: number, lanes: Lanes, tags?: Bytes): Promise<Bytes> {
    const hops = await Promise.all(this.#keys.hops.map((keys, hop) =>
      this.#hop(hop, epoch, keys[epoch - this.#keys.first]!))); // An epoch of another block has none.
    const sealed = await Promise.all(
      lanes.map((slots, lane) => Promise.all(slots.map((slot) => sealSlot(hops, lane, slot, tags)))),
    );
    const content = array([bin(tagOf(0, tags)), array(sealed.map((slots) => array(slots.map(bin))))]);
    const envelope = await seal(hops[0]!.key, hops[0]!.info, aadOf(0, kindEnvelope), content);
    return array([uint(version), bin(envelope)]);
  }

  async #hop(hop: number, epoch: number, serialized: Bytes): Promise<Hop> {
    return { key: await importKey(serialized), info: await infoOf(this.#taskId, epoch, hop, serialized) };
  }
}

/**
 * Returns the HPKE info string: label ‖ task id ‖ epoch (8 bytes) ‖ hop (1 byte) ‖ key id. The key id is the SHA-256 of
 * KEM id ‖ key.
 */
export async function infoOf(taskId: Bytes, epoch: number, hop: number, key: Bytes): Promise<Bytes> {
  const keyId = await sha256(concat(bigEndian(kemId, 2), key));
  return concat(utf8(`doona-v${version} onion`), taskId, bigEndian(epoch, 8), bigEndian(hop, 1), keyId);
}

/** Seals tag ‖ slot to the verifier, then tag ‖ ciphertext to each relay from the last to the second. */
export async function sealSlot(hops: readonly Hop[], lane: number, slot: Bytes, tags?: Bytes): Promise<Bytes> {
  let inner = slot;
  for (let hop = hops.length - 1; hop >= 1; hop--) {
    const plain = concat(tagOf(hop, tags), inner);
    try {
      inner = await seal(hops[hop]!.key, hops[hop]!.info, aadOf(lane, kindSlot), plain);
    } finally {
      plain.fill(0); // the innermost layer contains the message
    }
  }
  return inner;
}

/** Returns the associated data: lane (2 bytes) ‖ kind (1 byte). */
export function aadOf(lane: number, kind: number): Bytes {
  return concat(bigEndian(lane, 2), bigEndian(kind, 1));
}

/** Returns a hop's tag: the one in `tags`, or a random one. By it, the hop that opens the layer recognizes a replay. */
function tagOf(hop: number, tags?: Bytes): Bytes {
  return tags ? tags.subarray(tagSize * hop, tagSize * hop + tagSize) : randomTags(1);
}

/** Returns the random tags of a number of hops. */
export function randomTags(hops: number): Bytes {
  return crypto.getRandomValues(new Uint8Array(tagSize * hops));
}
