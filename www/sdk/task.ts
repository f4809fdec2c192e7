/**
 * The task: the query, the protocol with its parameters, the claimed guarantee and the parties.
 * @module
 */

import type { Bytes } from './bytes.js';
import { FormatError, Reader } from './msgpack.js';

/** The version of the task format and of the wire format. Every label and signing purpose contains it. */
export const version = 1;

/** The size limit of a canonical task, in bytes. The longest description of noise takes 590,000 bytes. */
export const maxTask = 640 << 10;

/** The maximum number of relays of a task. */
export const maxRelays = 8;

/** The maximum lengths of the lists in a task, as in the Go package wire/task. */
const maxParts = 64;
const maxRotations = 64;
const maxParams = 4096;
const maxNumbers = 65535;

/** The maximum number of origins that a task lists. */
const maxOrigins = 64;

/** A relay, the verifier or the issuer of tokens. */
export interface Party {
  readonly url: string;
  readonly signKey: Bytes;
  /** SHA-256 of the party's list of keys. */
  readonly keyList: Bytes;
}

/** A decoded task. Rational and decimal numbers stay in text form, such as "9/10" and "1e-6". */
export interface Task {
  readonly name: string;
  readonly query: string;
  readonly protocol: string;
  readonly rule: string;
  readonly params: ReadonlyMap<string, string>;
  readonly input: { lo: string; hi: string; bins: number; labels: boolean; clip: boolean };
  readonly claim: Claim;
  readonly batch: { size: number; honest: string; min: number };
  readonly slots: { padding: string; lanes: number; perLane: number; messageBytes: number; average: number };
  readonly epochs: {
    start: number; length: number; count: number;
    cap?: Cap | undefined; pace?: Cap | undefined; events?: Events | undefined;
  };
  readonly clients: Clients;
  readonly relays: readonly Party[];
  readonly verifier: Party;
  readonly kem: string;
  /** The task's position in its stream; undefined for a task without a stream. */
  readonly stream: StreamPosition | undefined;
  /** The noise that every relay adds to every batch; undefined for none. */
  readonly noise: Noise | undefined;
}

/** How the first relay limits how often clients report. */
export interface Clients {
  /** "token" or "address". */
  readonly kind: string;
  readonly quota: number;
  readonly issuer: Party;
  /** The origins of pages that may report. "*." matches all names below a domain; an empty list allows all origins. */
  readonly origins: readonly string[];
}

/** A task's position in a stream. `before` is the previous task's id, empty for the first task. */
export interface StreamPosition {
  readonly name: string;
  readonly position: number;
  readonly before: Bytes;
  readonly allow: readonly string[];
  /** The key rotations of all parties since the first task. */
  readonly rotations: readonly KeyRotation[];
}

/** A party's change from its `old` key to `key`, signed with the old key. */
export interface KeyRotation {
  readonly old: Bytes;
  readonly key: Bytes;
  readonly signature: Bytes;
}

/**
 * Limits the reports of one browser: at most `reports` in any `window` consecutive epochs. As a pace: in each block of
 * `window` epochs.
 */
export interface Cap {
  readonly reports: number;
  readonly window: number;
}

/** Limits rare answers: at most `most` reports of a browser in any `window` epochs differ from cell `usual`. */
export interface Events {
  readonly most: number;
  readonly window: number;
  /** The default, which a browser without an event sends: 0 or 1 of a count, the bin of a histogram. */
  readonly usual: number;
}

/**
 * The claimed guarantee: (ε, δ) of one epoch, optionally `total` for all epochs together, and the assumption behind it.
 */
export interface Claim {
  readonly epsilon: string;
  readonly delta: string;
  readonly total: { epsilon: string; delta: string } | undefined;
  /** "min-honest": n_min honest clients; "none": no other client needs to be honest. */
  readonly assumption: string;
}

/** The distribution of the dummies that relays add. Only the WASM module reads and checks its details. */
export interface Noise {
  /** "cells" or "pool". */
  readonly kind: string;
  readonly cells: number;
  /** The maximum number of batches in an epoch; 0 for no limit. */
  readonly batches: number;
  /** Whether one cell gets what the others leave of a total. */
  readonly rest?: true | undefined;
}

/**
 * Decodes a canonical task. The WASM module decodes the same bytes by the same rules, and also checks the ranges of the
 * fields.
 * @throws FormatError for any other form
 */
export function parseTask(canonical: Bytes): Task {
  checkSize(canonical);
  const r = new Reader(canonical);
  r.array(18);
  label(r, 'doona-task');
  const task: Task = {
    name: r.str(),
    query: r.str(),
    protocol: r.str(),
    rule: r.str(),
    params: params(r),
    input: group(r, 5, () => ({ lo: r.str(), hi: r.str(), bins: r.uint(), labels: r.flag(), clip: r.flag() })),
    claim: group(r, 4, () => ({
      epsilon: r.str(),
      delta: r.str(),
      total: optional(r, 2, () => ({ epsilon: r.str(), delta: r.str() })),
      assumption: r.str(),
    })),
    batch: group(r, 3, () => ({ size: r.uint(), honest: r.str(), min: r.uint() })),
    slots: group(r, 5, () => ({
      padding: r.str(),
      lanes: r.uint(),
      perLane: r.uint(),
      messageBytes: r.uint(),
      average: r.uint(),
    })),
    epochs: epochs(r),
    clients: group(r, 4, () => ({
      kind: r.str(),
      quota: r.uint(),
      issuer: party(r),
      origins: list(r, () => r.str(), maxOrigins),
    })),
    relays: list(r, () => party(r), maxRelays),
    verifier: party(r),
    kem: r.str(),
    stream: streamPosition(r),
    noise: noise(r),
  };
  r.end();
  return task;
}

/** Returns its argument. @throws FormatError if it is longer than a canonical task may be */
export function checkSize(canonical: Bytes): Bytes {
  const size = canonical.length;
  if (size <= maxTask) return canonical;
  throw new FormatError(`a task of ${size} bytes, want at most ${maxTask}`);
}

/** Reads a label and the version that follows it. */
export function label(r: Reader, want: string): void {
  if (r.str() !== want || r.uint() !== version) throw new FormatError(`not ${want} of version ${version}`);
}

function group<T>(r: Reader, length: number, read: () => T): T {
  r.array(length);
  return read();
}

/** Reads an optional part of `length` values. An empty array means that the part is absent. */
function optional<T>(r: Reader, length: number, read: () => T): T | undefined {
  const got = r.arrayLength();
  if (got !== 0 && got !== length) throw new FormatError(`want an array of 0 or ${length}`);
  return got === 0 ? undefined : read();
}

/** Reads an array of at most `most` values. */
export function list<T>(r: Reader, read: () => T, most: number): T[] {
  const out: T[] = [];
  for (let n = r.arrayLength(most); n > 0; n--) out.push(read());
  return out;
}

function streamPosition(r: Reader): StreamPosition | undefined {
  const parts = r.arrayLength();
  if (parts === 0) return undefined;
  if (parts !== 4 && parts !== 5) throw new FormatError('want an array with 0, 4 or 5 elements');
  const [name, position] = [r.str(), r.uint()];
  const [before, allow] = [r.bin(position > 0 ? 32 : 0), list(r, () => r.str(), maxParts)];
  const rotation = () => {
    const raw = r.bin(128);
    return { old: raw.slice(0, 32), key: raw.slice(32, 64), signature: raw.slice(64) };
  };
  const rotations = parts === 5 ? list(r, rotation, maxRotations) : [];
  if (parts === 5 && rotations.length === 0) throw new FormatError('want no rotations to be absent');
  return { name, position, before, allow, rotations };
}

function epochs(r: Reader): Task['epochs'] {
  const parts = r.arrayLength();
  const out = { start: r.uint(), length: r.uint(), count: r.uint() };
  if (parts === 3) return out;
  if (parts !== 5 && parts !== 7 && parts !== 8 && parts !== 10) {
    throw new FormatError('want an array of 3, 5, 7, 8 or 10 elements');
  }
  const limit = () => ({ reports: r.uint(), window: r.uint() });
  const [cap, pace] = [limit(), parts === 7 || parts === 10 ? limit() : undefined];
  const events = parts >= 8 ? { most: r.uint(), window: r.uint(), usual: r.uint() } : undefined;
  return { ...out, ...(cap.window > 0 && { cap }), ...(pace && { pace }), ...(events && { events }) };
}

function noise(r: Reader): Noise | undefined {
  const parts = r.arrayLength();
  if (parts === 0) return undefined;
  const law: Noise = { kind: r.str(), cells: r.uint(), batches: r.uint() };
  const number = () => r.uint();
  const numbers = () => list(r, number, maxNumbers);
  if (law.kind === 'pool' && parts === 4) r.uint();
  else if (law.kind === 'cells' && parts === 7) {
    list(r, numbers, maxNumbers); // tables
    list(r, () => group(r, 2, () => [r.uint(), r.uint()]), maxNumbers); // runs of cells with one table
    optional(r, 4, () => [r.uint(), r.uint(), numbers(), numbers()]); // tilt
    if (list(r, number, 2).length === 2) return { ...law, rest: true }; // total and rest
  } else throw new FormatError('noise of no known kind');
  return law;
}

function params(r: Reader): Map<string, string> {
  const out = new Map<string, string>();
  for (let n = r.arrayLength(maxParams); n > 0; n--) {
    r.array(2);
    out.set(r.str(), r.str());
  }
  return out;
}

function party(r: Reader): Party {
  r.array(3);
  return { url: r.str(), signKey: r.bin(32), keyList: r.bin(32) };
}
