/**
 * The protocol correlated (docs/SPEC.md, section 11).
 * @module
 */

import { type Atom, type Rational, reduced, type Source, toNumber } from './source.ts';
import { checkSlots, isPowerOfTwo, Malformed, oneOf, type Task, whole } from './task.ts';
import { bytesOf, categoryOf, decode, encode, fixed, inLane, numberOf, type Protocol, vectorOf } from './values.ts';

/** A source of noise. It sends its `values` a random number of times. */
interface Noise extends Atom {
  values: bigint[];
}

const unit = 64n;
const bits = (n: bigint) => (n === 0n ? 0n : BigInt(n.toString(2).length));
const half = (n: bigint) => (n + 1n) / 2n;

function dyadic(task: Task, key: string, most: bigint, fits: (p: Rational) => boolean): Rational {
  const p = task.params.get(key);
  if (!p || !isPowerOfTwo(p.den) || p.den > most || !fits(p)) throw new Malformed(`params.${key}`);
  return p;
}

const exponent = (task: Task, key: string, zero: boolean) =>
  dyadic(task, key, 1n << 40n, (p) => p.num <= 16n * p.den && (p.num > 0n || (zero && p.num === 0n)));

/** The noise sources of step 3: each sends v or −v with its two halves, negated. Returns their levels too. */
function atoms(top: bigint): { v: bigint; level: bigint; values: bigint[] }[] {
  const out = [];
  for (let v = 2n; v <= top; v++) {
    for (const sign of [1n, -1n]) {
      let level = -1n;
      for (let l = sign === 1n ? 0n : 1n; (v - 1n) << l <= top - 1n; l += 2n) level = l;
      if (level >= 0n) out.push({ v, level, values: [sign * v, -sign * half(v), -sign * (v / 2n)] });
    }
  }
  return out;
}

/** Returns the noise sources of the rule moments, from the task's parameters. */
function fromParameters(task: Task, top: bigint, zero: boolean): Noise[] {
  const known = new Set(['max', 'central', 'theta', 'cut']);
  for (const key of ['theta', 'cut']) {
    const p = task.params.get(key);
    if (!p || p.num <= 0n) throw new Malformed(`params.${key}`);
  }
  const noise = (name: string) => {
    const max = task.params.has(`${name}.jump`) ? whole(task, `${name}.jump`, 1n, 262144n) : 0n;
    const r = dyadic(task, `${name}.r`, unit, (p) => p.num >= p.den && p.num <= 1_000_000_000n * p.den);
    for (const key of ['r', 's', ...(max > 0n ? ['jump'] : [])]) known.add(`${name}.${key}`);
    return { weight: (unit * r.num) / r.den, jumps: { rate: exponent(task, `${name}.s`, max > 0n), max } };
  };
  const out: Noise[] = [{ ...noise('pair'), values: [-1n, 1n] }];
  if (zero) out.push({ ...noise('zero'), values: [0n] });
  const levels = Array.from({ length: Number(bits(top - 1n)) }, (_, l) => noise(`level.${String(l).padStart(2, '0')}`));
  for (const { level, values } of atoms(top)) out.push({ ...levels[Number(level)]!, values });
  if (task.params.size !== known.size) throw new Malformed('params');
  return out;
}

/** Returns the noise sources of the rule theorem2, from ε and δ. */
function closedForm(task: Task, top: bigint, central: Rational): Noise[] {
  if (task.params.size !== 2) throw new Malformed('params');
  const e = Math.min(task.epsilon - toNumber(central) * Number(top), 1) / 2;
  if (!(e > 0)) throw new Malformed('params.central');
  const D = (0.99 * task.delta) / 2;
  const G = top * (1n + bits(top - 1n));
  const R = (x: number) => BigInt(Math.ceil(64 * 3 * (1 + Math.log(1 / x))));
  const source = (weight: bigint, s: number, values: bigint[]): Noise => {
    const rate = reduced(BigInt(Math.floor(s * 2 ** 40)), 1n << 40n);
    return { weight, jumps: { rate, max: 0n }, values };
  };
  const rest = R(D / Number(2n * top - 1n));
  const exponentOf = (v: bigint) => (0.2 * e) / Number(2n * ((G + v - 1n) / v));
  return [
    source(R(D), (0.2 * e) / Number(top), [-1n, 1n]),
    source(rest, exponentOf(1n), [-1n, 1n]),
    ...atoms(top).map(({ v, values }) => source(rest, exponentOf(v), values)),
  ];
}

export function correlated(task: Task): Protocol {
  const { query, padding } = task;
  oneOf('query', task, 'count', 'sum', 'mean', 'histogram', 'vector');
  if (query === 'vector' && task.loExact.num !== 0n) throw new Malformed('input.range');
  oneOf('rule', task, 'moments', 'theorem2');
  const sparse = query === 'histogram' || query === 'vector';
  if (task.rule === 'theorem2' && (sparse || padding === 'none')) throw new Malformed('rule');
  const top = whole(task, 'max', 1n, query === 'count' || query === 'histogram' ? 1n : 8192n);
  const d = sparse ? task.bins : 1n;
  const zero = padding === 'none' && query !== 'histogram';
  const central = exponent(task, 'central', false);
  const sources = task.rule === 'moments' ? fromParameters(task, top, zero) : closedForm(task, top, central);
  for (const v of [1n, -1n]) sources.push({ weight: unit, jumps: { rate: central, max: 0n }, values: [v] });
  for (const s of sources) if (s.values[0] !== 0n) s.weight *= d;

  const values = top + half(top) + 1n;
  const room = task.perLane;
  if (room < 2n) throw new Malformed('slots.perLane');
  checkSlots(task, padding, 1n, room, bytesOf(values * d));
  const message = (a: bigint, v: bigint) => encode(a * values + v + half(top), bytesOf(values * d));

  const read = (lane: number, bytes: Uint8Array) => {
    inLane(lane, 0);
    const index = decode(bytes, values * d, bytesOf(values * d));
    const [a, v] = [index / values, (index % values) - half(top)];
    if (v === 0n && !(zero && a === 0n)) throw new Malformed('message');
    return { a, v };
  };

  /** Draws noise once. Returns its messages; undefined if they do not fit into the slots. */
  const noise = (source: Source): Uint8Array[] | undefined => {
    const out: Uint8Array[] = [];
    let fits = true;
    source.eachEvent(sources, unit * task.min, ({ atom, size }) => {
      const { values } = sources[atom]!;
      fits &&= size * BigInt(values.length) + BigInt(out.length) <= room - 1n;
      if (!fits) return;
      const a = values[0] === 0n ? 0n : source.below(d);
      for (const v of values) for (let i = 0n; i < size; i++) out.push(message(a, v));
    });
    return fits ? out : undefined;
  };

  const input = (value: number[]): { a: bigint; u: number } => {
    if (query === 'histogram') return { a: categoryOf(task, value), u: 1 };
    if (query !== 'vector') return { a: 0n, u: numberOf(task, value) };
    const u = vectorOf(task, value);
    const used = u.flatMap((x, l) => (x === 0 ? [] : [l]));
    if (used.length > 1) throw new Malformed('value');
    return { a: BigInt(used[0] ?? 0), u: u[used[0] ?? 0]! };
  };

  return {
    randomize: (source, value) => {
      const { a, u } = input(value);
      const x = source.round(fixed(u), top);
      let out: Uint8Array[] | undefined;
      do out = noise(source);
      while (!out);
      if (x > 0n) out.push(message(a, x));
      else if (zero) out.push(message(0n, 0n));
      return [out];
    },
    check: (lane, bytes) => void read(lane, bytes),
    estimate: (batches) => {
      const sums = new Array<bigint>(Number(d)).fill(0n);
      for (const bytes of batches.flatMap((b) => b.lanes[0]!)) {
        const { a, v } = read(0, bytes);
        sums[Number(a)]! += v;
      }
      const n = batches.reduce((sum, b) => sum + b.users, 0);
      const worth = query === 'histogram' ? 1 : (task.hi - task.lo) / Number(top);
      const from = query === 'sum' || query === 'mean' ? task.lo * n : 0;
      return sums.map((s) => Number(s) * worth + from);
    },
  };
}
