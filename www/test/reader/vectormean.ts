/**
 * The protocol vectormean (docs/SPEC.md, section 11).
 * @module
 */

import { Frame } from './frame.ts';
import { type Rational, type Source, toNumber } from './source.ts';
import { checkSlots, isPowerOfTwo, Malformed, oneOf, type Task, whole } from './task.ts';
import { ballOf, bytesOf, decode, encode, type Protocol } from './values.ts';

const one = 1n << 53n;

/** The tolerated relative rounding error of a norm. */
const slack = 1e-9;

/** Noise with the binomial distribution Bin(trials, chance). */
interface Noise {
  trials: bigint;
  chance: Rational;
}

function noiseOf(task: Task, trials: string, chance: string): Noise {
  const q = task.params.get(chance);
  const m = whole(task, trials, 1n, 65535n);
  const fits = q && q.num > 0n && q.num < q.den && q.num < one && isPowerOfTwo(q.den);
  if (!fits) throw new Malformed(`params.${chance}`);
  return { trials: m, chance: q };
}

const mean = ({ trials, chance }: Noise): number => Number(trials) * toNumber(chance);

/** Rounds f to 2^53 with probability f/2^53, otherwise to 0. */
const roundAtRandom = (source: Source, f: bigint): bigint => (source.below(one) < f ? one : 0n);

/** Rounds each f at random to 0 or 2^53, so that the sum becomes one of the two nearest multiples of 2^53. */
function roundTogether(source: Source, fractions: readonly bigint[]): bigint[] {
  const f = [...fractions];
  let open = -1;
  for (let k = 0; k < f.length; k++) {
    if (f[k] === 0n) continue;
    if (open < 0) {
      open = k;
      continue;
    }
    const j = open;
    const sum = f[j]! + f[k]!;
    const most = sum > one ? one : 0n;
    const rest = sum - most;
    const first = most === 0n ? source.below(sum) >= f[j]! : source.below(2n * one - sum) < one - f[k]!;
    [f[j], f[k]] = first ? [most, rest] : [rest, most];
    open = first ? k : j;
    if (rest === one) open = -1;
  }
  if (open >= 0) f[open] = roundAtRandom(source, f[open]!);
  return f;
}

export function vectormean(task: Task): Protocol {
  oneOf('query', task, 'vectormean');
  const d = Number(task.bins);
  if (d < 1 || d > 8192) throw new Malformed('input.dim');
  const s = task.params.get('units');
  if (!s || toNumber(s) < 1 || toNumber(s) > 4096) throw new Malformed('params.units');
  const units = toNumber(s);

  let [frame, bound]: [Frame | undefined, number] = [undefined, 1];
  const known = ['units', 'm', 'q'];
  if (task.lanes > 1n) {
    frame = new Frame(d, whole(task, 'seed', 0n, (1n << 63n) - 1n));
    const kashin = task.params.get('kashin');
    const fits = kashin && toNumber(kashin) >= 1 && toNumber(kashin) <= Math.sqrt(frame.size);
    if (!fits) throw new Malformed('params.kashin');
    bound = toNumber(kashin) / Math.sqrt(frame.size);
    if (s.den !== 1n) throw new Malformed('params.units');
    known.push('kashin', 'seed');
  }
  const noise = noiseOf(task, 'm', 'q');
  let nulls: Noise | undefined;
  if (task.padding === 'none') {
    nulls = noiseOf(task, 'm0', 'q0');
    known.push('m0', 'q0');
  }
  if (task.params.size !== known.length || !known.every((key) => task.params.has(key))) throw new Malformed('params');

  const size = frame?.size ?? d;
  const lanes = frame ? size : 1;
  const counters = frame ? 1 : 2 * d; // different messages in a lane, without null messages
  const kinds = counters + (nulls ? 1 : 0); // different messages in a lane
  const count = BigInt(kinds * lanes);
  const most = frame ? BigInt(units) : BigInt(Math.floor(units * Math.sqrt(d) * (1 + slack)) + 1);
  if (task.lanes !== 1n && task.lanes !== BigInt(lanes)) throw new Malformed('slots.lanes');
  const perLane = most + BigInt(counters) * noise.trials + (nulls?.trials ?? 0n);
  checkSlots(task, nulls ? 'none' : 'full', BigInt(lanes), perLane, bytesOf(count));

  /** Returns the coefficients in units, rounded at random to whole numbers. Without a frame they keep their sign. */
  const roundedOf = (source: Source, value: number[]): bigint[] => {
    const v = ballOf(task, value);
    const a = frame ? frame.represent(v, bound) : v;
    const shifted = (x: number) => ((Math.max(-1, Math.min(x / bound, 1)) + 1) * units) / 2;
    const t = a.map((x) => (frame ? shifted(x) : Math.min(Math.abs(x), 1) * units));
    const fractions = t.map((x) => BigInt(Math.floor((x - Math.floor(x)) * 2 ** 53)));
    const up = frame ? fractions.map((f) => roundAtRandom(source, f)) : roundTogether(source, fractions);
    return t.map((x, j) => (!frame && a[j]! < 0 ? -1n : 1n) * (BigInt(Math.floor(x)) + up[j]! / one));
  };

  const read = (lane: number, message: Uint8Array): number => {
    const number = Number(decode(message, count, bytesOf(count)));
    if (Math.floor(number / kinds) !== lane) throw new Malformed('message');
    return number;
  };

  return {
    randomize: (source, value) => {
      const counts = new Array<bigint>(Number(count)).fill(0n);
      const x = roundedOf(source, value);
      for (let lane = 0; lane < lanes; lane++) {
        let left = most;
        const sent = frame ? [x[lane]!] : x.flatMap((own) => (own < 0n ? [0n, -own] : [own, 0n]));
        sent.forEach((n, i) => {
          counts[lane * kinds + i]! += n;
          left -= n;
        });
        if (nulls) counts[lane * kinds + kinds - 1]! += left;
      }
      return Array.from({ length: lanes }, (_, lane) => {
        const out: Uint8Array[] = [];
        for (let i = 0; i < kinds; i++) {
          const { trials, chance } = nulls && i === kinds - 1 ? nulls : noise;
          const copies = counts[lane * kinds + i]! + source.binomial(trials, chance);
          for (let c = 0n; c < copies; c++) out.push(encode(BigInt(lane * kinds + i), bytesOf(count)));
        }
        return out;
      });
    },
    check: (lane, message) => void read(lane, message),
    estimate: (batches) => {
      const counts = new Array<number>(Number(count)).fill(0);
      let users = 0;
      for (const { users: n, lanes } of batches) {
        users += n;
        lanes.forEach((messages, lane) => messages.forEach((m) => counts[read(lane, m)]!++));
      }
      const a = Array.from({ length: size }, (_, j) => {
        if (!frame) return (counts[2 * j]! - counts[2 * j + 1]!) / units;
        const difference = nulls
          ? counts[2 * j]! - counts[2 * j + 1]! - users * (mean(noise) - mean(nulls))
          : 2 * counts[j]! - users * (units + 2 * mean(noise));
        return (difference * bound) / units;
      });
      return frame ? frame.synthesize(a) : a;
    },
  };
}
