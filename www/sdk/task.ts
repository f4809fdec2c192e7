/**
 * The task: what is asked, how it is randomized, what is promised and who carries it.
 * @module
 */

import type { Bytes } from './bytes.js';
import { FormatError, Reader } from './msgpack.js';

/** The version of the task, of the wire format and of every label in them. */
export const version = 1;

/** A relay, the verifier or the issuer of tokens. */
export interface Party {
  readonly url: string;
  readonly signKey: Bytes;
  /** SHA-256 of the party's list of keys. */
  readonly keyList: Bytes;
}

/** A task's canonical form, decoded. Rationals and decimals stay text: "9/10", "1e-6". */
export interface Task {
  readonly name: string;
  readonly query: string;
  readonly protocol: string;
  readonly rule: string;
  readonly params: ReadonlyMap<string, string>;
  readonly input: { lo: string; hi: string; bins: number; labels: boolean; clip: boolean };
  readonly claim: { epsilon: string; delta: string };
  readonly batch: { size: number; honest: string; min: number };
  readonly slots: { padding: string; lanes: number; perLane: number; messageBytes: number };
  readonly epochs: { start: number; length: number; count: number };
  readonly clients: { kind: string; quota: number; issuer: Party };
  readonly relays: readonly Party[];
  readonly verifier: Party;
  readonly kem: string;
}

/**
 * Reads the canonical form. The ranges of the fields are checked by the WASM module, which reads
 * the same bytes with the same rules.
 * @throws FormatError for any other form
 */
export function parseTask(canonical: Bytes): Task {
  const r = new Reader(canonical);
  r.array(16);
  label(r, 'doona-task');
  const task: Task = {
    name: r.str(),
    query: r.str(),
    protocol: r.str(),
    rule: r.str(),
    params: params(r),
    input: group(r, 5, () => ({ lo: r.str(), hi: r.str(), bins: r.uint(), labels: r.flag(), clip: r.flag() })),
    claim: group(r, 2, () => ({ epsilon: r.str(), delta: r.str() })),
    batch: group(r, 3, () => ({ size: r.uint(), honest: r.str(), min: r.uint() })),
    slots: group(r, 4, () => ({ padding: r.str(), lanes: r.uint(), perLane: r.uint(), messageBytes: r.uint() })),
    epochs: group(r, 3, () => ({ start: r.uint(), length: r.uint(), count: r.uint() })),
    clients: group(r, 3, () => ({ kind: r.str(), quota: r.uint(), issuer: party(r) })),
    relays: Array.from({ length: r.arrayLength() }, () => party(r)),
    verifier: party(r),
    kem: r.str(),
  };
  r.end();
  return task;
}

/** Reads a label and the version that follows it. */
export function label(r: Reader, want: string): void {
  if (r.str() !== want || r.uint() !== version) throw new FormatError(`not ${want} of version ${version}`);
}

function group<T>(r: Reader, length: number, read: () => T): T {
  r.array(length);
  return read();
}

function params(r: Reader): Map<string, string> {
  const out = new Map<string, string>();
  for (let n = r.arrayLength(); n > 0; n--) {
    r.array(2);
    out.set(r.str(), r.str());
  }
  return out;
}

function party(r: Reader): Party {
  r.array(3);
  return { url: r.str(), signKey: r.bin(32), keyList: r.bin(32) };
}
