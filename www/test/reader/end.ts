/**
 * Reads signed ends of epochs and signed times (docs/SPEC.md, sections 5, 7 and 8).
 * @module
 */

import { createHash, createPublicKey, verify } from 'node:crypto';

import { toHex } from './files.ts';
import { decode } from './task.ts';

/** An end or a time is invalid. `expect` says why: its signature is wrong, or its content. */
export class Refused extends Error {
  readonly expect: 'signer' | 'manifest';

  constructor(expect: 'signer' | 'manifest', what: string) {
    super(what);
    this.expect = expect;
  }
}

/** The counts of one lane: messages in, added, out and dropped. */
type Counts = [bigint, bigint, bigint, bigint];

export interface End {
  hop: bigint;
  batches: bigint;
  submissions: bigint;
  lanes: Counts[];
  source: Uint8Array;
}

const below = 1n << 53n;
// The bytes of a SubjectPublicKeyInfo before an Ed25519 key of 32 bytes (RFC 8410).
const prefix = Buffer.from('302a300506032b6570032100', 'hex');

export class Task {
  readonly id: Uint8Array;
  readonly #keys: Uint8Array[];
  readonly #full: boolean;
  readonly #noise: boolean;
  readonly #lanes: bigint;
  readonly #perLane: bigint;

  constructor(canonical: Uint8Array) {
    this.id = createHash('sha256').update(canonical).digest();
    const fields = decode(canonical);
    const [padding, lanes, perLane] = fields[10];
    this.#full = padding === 'full';
    this.#lanes = lanes;
    this.#perLane = perLane;
    this.#keys = fields[13].map(([, key]: [string, Uint8Array]) => key);
    this.#noise = fields[17].length > 0;
  }

  /** Checks the signature of the relay at a hop and decodes the body. */
  open(signed: Uint8Array, hop: number, purpose: string): any {
    const [body, signature] = decode(signed);
    const key = createPublicKey({ key: Buffer.concat([prefix, this.#keys[hop]!]), format: 'der', type: 'spki' });
    const message = Buffer.concat([Buffer.from(`doona-v1 ${purpose}\0`), body]);
    if (!verify(null, message, key, signature)) throw new Refused('signer', purpose);
    return decode(body);
  }

  /** Checks a signed end of an epoch. Returns the ends of all relays up to this hop. */
  end(signed: Uint8Array, epoch: bigint, hop: number): End[] {
    const [label, version, id, of, by, batches, submissions, lanes, source] = this.open(signed, hop, 'end');
    const check = (good: boolean, what: string) => {
      if (!good) throw new Refused('manifest', what);
    };
    check(label === 'doona-end' && version === 1n, 'version');
    check(toHex(id) === toHex(this.id) && of === epoch && by === BigInt(hop), 'place');
    check(BigInt(lanes.length) === this.#lanes, 'lanes');
    for (const [into, added, out, dropped] of lanes as Counts[]) {
      check(into + added === out + dropped && [into, added, out, dropped].every((n) => n < below), 'counts');
      check(added === 0n || this.#noise, 'added');
      if (hop > 0) continue;
      const most = submissions * this.#perLane;
      check(into <= most && into >= (this.#full ? most : submissions), 'in');
    }
    const slots = (lanes as Counts[]).reduce((sum, [into, added]) => sum + into + added, 0n);
    check(batches > 0n || (hop === 0 ? submissions === 0n : slots === 0n), 'batches');
    const mine: End = { hop: by, batches, submissions, lanes, source };
    if (source.length === 0) return [mine];
    check(hop > 0, 'source');
    const chain = this.end(source, epoch, hop - 1);
    const before = chain[chain.length - 1]!;
    check(before.batches === batches && before.submissions === submissions, 'source');
    (lanes as Counts[]).forEach(([into], lane) => check(into === before.lanes[lane]![2], 'source'));
    return [...chain, mine];
  }

  /**
   * Checks a signed time. Returns the time of the relay's clock in Unix seconds. The signature covers the nonce of the
   * request.
   */
  time(signed: Uint8Array, hop: number, nonce: Uint8Array): bigint {
    const [label, version, id, by, asked, unix] = this.open(signed, hop, 'time');
    const right = label === 'doona-time' && version === 1n && toHex(id) === toHex(this.id) && by === BigInt(hop);
    if (!right || toHex(asked) !== toHex(nonce)) throw new Refused('manifest', 'time');
    return unix;
  }
}
