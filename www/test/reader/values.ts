/**
 * Converts values and messages (docs/SPEC.md, section 11).
 * @module
 */

import { Malformed, type Task } from './task.ts';

/** Messages by lane. */
export type Lanes = Uint8Array[][];

/** A protocol with the parameters of one task. */
export interface Protocol {
  randomize(source: import('./source.ts').Source, value: number[]): Lanes;
  /** Throws Malformed for a message that the verifier must ignore. */
  check(lane: number, message: Uint8Array): void;
  /** Returns sums over the clients, from valid messages. */
  estimate(batches: Batch[]): number[];
}

/**
 * The messages of a batch and its number of clients. If relays add noise: how often they drew, and how many dummies
 * they added.
 */
export interface Batch {
  users: number;
  lanes: Lanes;
  draws?: number;
  dummies?: number;
}

function finite(value: number[], count: bigint): void {
  if (BigInt(value.length) !== count || !value.every(Number.isFinite)) throw new Malformed('value');
}

function unit(task: Task, x: number): number {
  if ((x < task.lo || x > task.hi) && !task.clip) throw new Malformed('value');
  return Math.min(Math.max((x - task.lo) / (task.hi - task.lo), 0), 1);
}

/** Returns u, the value mapped from the task's range to [0, 1]. */
export function numberOf(task: Task, value: number[]): number {
  finite(value, 1n);
  const u = unit(task, value[0]!);
  if (task.query === 'count' && u !== 0 && u !== 1) throw new Malformed('value');
  return u;
}

export function categoryOf(task: Task, value: number[]): bigint {
  finite(value, 1n);
  const x = value[0]!;
  if (!task.labels) {
    const bin = BigInt(Math.floor(unit(task, x) * Number(task.bins)));
    return bin < task.bins ? bin : task.bins - 1n;
  }
  if (!Number.isInteger(x) || x < 0 || x >= Number(task.bins)) throw new Malformed('value');
  return BigInt(x);
}

export function vectorOf(task: Task, value: number[]): number[] {
  finite(value, task.bins);
  return value.map((x) => unit(task, x));
}

/** Returns a vector of Euclidean norm at most 1. Scales longer ones if the task clips. */
export function ballOf(task: Task, value: number[]): number[] {
  finite(value, task.bins);
  const largest = Math.max(...value.map(Math.abs));
  if (largest === 0) return value;
  const sum = value.reduce((s, x) => s + (x / largest) * (x / largest), 0);
  const norm = largest * Math.sqrt(sum);
  if (norm > 1 + 1e-9 && !task.clip) throw new Malformed('value');
  return norm > 1 ? value.map((x) => x / largest / Math.sqrt(sum)) : value;
}

/** Returns u·2^53, rounded to a whole number; halves are rounded to even. The product itself is exact. */
export function fixed(u: number): bigint {
  const scaled = u * 2 ** 53;
  const down = Math.floor(scaled);
  const rest = scaled - down;
  return BigInt(rest > 0.5 || (rest === 0.5 && down % 2 === 1) ? down + 1 : down);
}

/** Returns how many bytes a whole number below `count` needs. */
export function bytesOf(count: bigint): bigint {
  let n = 1n;
  while (1n << (8n * n) < count) n++;
  return n;
}

/** Returns how many bytes encode one of `k` symbols: 1, 2 or 4. */
export const symbolBytes = (k: bigint): bigint => (k <= 256n ? 1n : k <= 65536n ? 2n : 4n);

export function encode(v: bigint, size: bigint): Uint8Array {
  return Uint8Array.from({ length: Number(size) }, (_, i) => Number((v >> (8n * (size - 1n - BigInt(i)))) & 0xffn));
}

export function decode(message: Uint8Array, count: bigint, size: bigint): bigint {
  if (BigInt(message.length) !== size) throw new Malformed('message');
  const v = message.reduce((sum, b) => (sum << 8n) | BigInt(b), 0n);
  if (v >= count) throw new Malformed('message');
  return v;
}

export function inLane(lane: number, right: number): void {
  if (lane !== right) throw new Malformed('message');
}
