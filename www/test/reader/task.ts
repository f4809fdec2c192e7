/**
 * Reads the fields of a task that protocols need (docs/SPEC.md, sections 3 and 4).
 * @module
 */

import { rational, type Rational, toNumber } from './source.ts';

/** A task, a client's value or a message is invalid. `field` names the invalid part. */
export class Malformed extends Error {
  readonly field: string;

  constructor(field: string) {
    super(`invalid ${field}`);
    this.field = field;
  }
}

export interface Task {
  query: string;
  protocol: string;
  rule: string;
  params: Map<string, Rational>;
  lo: number;
  hi: number;
  loExact: Rational;
  bins: bigint;
  canonical: Uint8Array;
  labels: boolean;
  clip: boolean;
  epsilon: number;
  delta: number;
  size: bigint;
  min: bigint;
  padding: string;
  lanes: bigint;
  perLane: bigint;
  messageBytes: bigint;
  average: bigint;
  total: { epsilon: string; delta: string } | undefined;
  assumption: string;
  origins: string[];
  /** Limits on one browser, as in a task's JSON form. */
  limits: Limits;
  stream: Stream | undefined;
  noise: Noise | undefined;
}

export interface Limits {
  cap?: string;
  pace?: string;
  events?: { limit: string; default: bigint };
}

export interface Stream {
  name: string;
  position: bigint;
  before: Uint8Array;
  allow: string[];
  rotations?: Rotation[];
}

export interface Rotation {
  old: string;
  new: string;
  signature: string;
}

export interface Noise {
  kind: string;
  cells: bigint;
  batches: bigint;
  pool?: bigint;
  tables?: bigint[][];
  /** Runs of consecutive cells: [number of cells, index of their table]. */
  which?: [bigint, bigint][];
  tilt?: { centre: bigint; zero: bigint; weights: bigint[]; factors: bigint[] } | undefined;
  total?: bigint | undefined;
  /** The cell that gets what the others leave of the total. */
  rest?: bigint;
}

/** Decodes the msgpack of section 3: integers, byte strings, strings and arrays. */
export function decode(bytes: Uint8Array): any {
  let at = 0;
  const uint = (size: number): bigint => {
    let v = 0n;
    for (; size > 0; size--) v = (v << 8n) | BigInt(bytes[at++]!);
    return v;
  };
  const take = (size: number) => bytes.subarray(at, (at += size));
  const text = (size: number) => new TextDecoder().decode(take(size));
  const array = (size: number) => Array.from({ length: size }, value);
  function value(): any {
    const lead = bytes[at++]!;
    if (lead < 0x80) return BigInt(lead);
    if (lead >> 4 === 0x9) return array(lead & 0x0f);
    if (lead >> 5 === 0x5) return text(lead & 0x1f);
    switch (lead) {
      case 0xc4: return take(Number(uint(1)));
      case 0xc5: return take(Number(uint(2)));
      case 0xcc: return uint(1);
      case 0xcd: return uint(2);
      case 0xce: return uint(4);
      case 0xcf: return uint(8);
      case 0xd9: return text(Number(uint(1)));
      case 0xdc: return array(Number(uint(2)));
      default: throw new Error(`lead byte ${lead}`);
    }
  }
  const out = value();
  if (at !== bytes.length) throw new Error('trailing bytes');
  return out;
}

export function parseTask(canonical: Uint8Array): Task {
  const [label, version, , query, protocol, rule, params, input, claim, batch, slots, ...rest] = decode(canonical);
  const [epochs, [, , , origins], , , , stream, noise] = rest; // epochs, clients, relays, verifier, kem, stream, noise
  if (rest.length !== 7) throw new Malformed('task');
  if (label !== 'doona-task' || version !== 1n) throw new Malformed('version');
  const [lo, hi, bins, labels, clip] = input;
  const [size, , min] = batch;
  const [padding, lanes, perLane, messageBytes, average] = slots;
  const [epsilon, delta, total, assumption] = claim;
  return {
    canonical, query, protocol, rule, bins, size, min, padding, lanes, perLane, messageBytes, average,
    params: new Map(params.map(([key, text]: [string, string]) => [key, rational(text)])),
    lo: toNumber(rational(lo)),
    hi: toNumber(rational(hi)),
    loExact: rational(lo),
    labels: labels === 1n,
    clip: clip === 1n,
    epsilon: Number(epsilon),
    delta: Number(delta),
    total: total.length ? { epsilon: total[0], delta: total[1] } : undefined,
    assumption,
    origins: originsOf(origins),
    limits: limitsOf(epochs.slice(3)),
    stream: stream.length ? streamOf(stream) : undefined,
    noise: noise.length ? noiseOf(noise) : undefined,
  };
}

function limitsOf(numbers: bigint[]): Limits {
  if (![0, 2, 4, 5, 7].includes(numbers.length)) throw new Malformed('epochs');
  const pair = (at: number) => `${numbers[at]}/${numbers[at + 1]}`;
  const paced = numbers.length === 4 || numbers.length === 7;
  const first = numbers.length - 3; // of the events
  return {
    ...(numbers[1] && { cap: pair(0) }), // 0 in 0 epochs stands for no cap, before events
    ...(paced && { pace: pair(2) }),
    ...(numbers.length >= 5 && { events: { limit: pair(first), default: numbers[first + 2]! } }),
  };
}

function originsOf(origins: string[]): string[] {
  const ordered = origins.every((origin, i) => i === 0 || origins[i - 1]! < origin);
  if (origins.length > 64 || !ordered || !origins.every(isOrigin)) throw new Malformed('clients.origins');
  return origins;
}

/** Whether a text is an origin in the form that browsers write. A "*." before the domain is also allowed. */
export function isOrigin(text: string): boolean {
  if (text === 'null') return true;
  const [, scheme, wild, host] = /^([a-z][a-z0-9+.-]*):\/\/(\*\.)?([^:]+|\[.*\])(:[0-9]+)?$/.exec(text) ?? [];
  if (!scheme || scheme === 'file' || text.length > 255) return false;
  if (!/^https?$/.test(scheme)) {
    const port = text.split(':')[2] ?? '1';
    return !wild && /^[A-Za-z0-9._~-]+$/.test(host!) && port === String(Number(port)) && +port > 0 && +port < 65536;
  }
  const plain = text.replace('//*.', '//');
  const domain = host!.split('.').every((label) => /^[a-z0-9_-]{1,63}$/.test(label));
  return URL.canParse(plain) && new URL(plain).origin === plain && !plain.endsWith(':0') &&
    (domain || host!.startsWith('[')) && !(wild && /^\[|(^|\.)(\d+|0x[0-9a-f]*)$/.test(host!));
}

/** Whether a page of `origin` may report to a task that lists `origins`. */
export function mayReport(origins: string[], origin: string): boolean {
  return origins.length === 0 || origins.some((listed) => {
    const [, scheme, domain] = /^(.*:\/\/)\*(\..*)$/.exec(listed) ?? [];
    if (!domain || origin.length > 255) return origin === listed;
    const inner = origin.startsWith(scheme!) && origin.endsWith(domain) && origin.slice(scheme!.length, -domain.length);
    return inner !== false && !inner.includes('*') && isOrigin(`https://${inner}.example`);
  });
}

type Fields = [string, bigint, Uint8Array, string[], Uint8Array[]?];

function streamOf([name, position, before, allow, rotations]: Fields): Stream {
  if (before.length !== (position === 0n ? 0 : 32)) throw new Malformed('stream.before');
  return { name, position, before, allow, ...(rotations && { rotations: rotations.map(rotationOf) }) };
}

/** Reads a key rotation: 32 bytes of the old key, 32 of the new key, and 64 of the signature by the old key. */
function rotationOf(raw: Uint8Array): Rotation {
  if (raw.length !== 128) throw new Malformed('stream.rotations');
  const text = (from: number, to: number) => Buffer.from(raw.subarray(from, to)).toString('base64url');
  return { old: `ed25519:${text(0, 32)}`, new: `ed25519:${text(32, 64)}`, signature: text(64, 128) };
}

function noiseOf([kind, cells, batches, ...law]: [string, bigint, bigint, ...any]): Noise {
  if (kind === 'pool') return { kind, cells, batches, pool: law[0] };
  if (kind !== 'cells') throw new Malformed('noise.kind');
  const [tables, which, tilt, [total, rest]] = law;
  return {
    kind, cells, batches, tables, which,
    tilt: tilt.length ? { centre: tilt[0], zero: tilt[1], weights: tilt[2], factors: tilt[3] } : undefined,
    total, ...(rest !== undefined && { rest }),
  };
}

/** Returns a parameter that must be a whole number from lo to hi. */
export function whole(task: Task, key: string, lo: bigint, hi: bigint): bigint {
  const p = task.params.get(key);
  if (!p || p.den !== 1n || p.num < lo || p.num > hi) throw new Malformed(`params.${key}`);
  return p.num;
}

/** Throws Malformed unless the task has exactly these parameters. */
export function onlyParams(task: Task, ...keys: string[]): void {
  if (task.params.size !== keys.length || !keys.every((key) => task.params.has(key))) throw new Malformed('params');
}

export function oneOf(field: 'query' | 'rule', task: Task, ...allowed: string[]): void {
  if (!allowed.includes(task[field])) throw new Malformed(field);
}

/** Throws Malformed unless the task's slots are as its protocol requires. */
export function checkSlots(task: Task, padding: string, lanes: bigint, perLane: bigint, messageBytes: bigint): void {
  const right = task.padding === padding && task.lanes === lanes && task.perLane === perLane;
  if (!right || task.messageBytes !== messageBytes) throw new Malformed('slots');
}

export const isPowerOfTwo = (n: bigint): boolean => (n & (n - 1n)) === 0n;
