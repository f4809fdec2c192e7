/**
 * The protocol augmented: relays' dummies hide the values (docs/SPEC.md, sections 4 and 11).
 * @module
 */

import { gammaOf } from './response.ts';
import { toNumber } from './source.ts';
import { checkSlots, Malformed, type Noise, type Task, whole } from './task.ts';
import { categoryOf, decode, encode, fixed, inLane, numberOf, type Protocol, symbolBytes } from './values.ts';

/**
 * Lists every outcome of the dummies' distribution with its weight. Only for distributions as small as those of the
 * vectors.
 */
function* outcomes(noise: Noise): Generator<[number[], number]> {
  const runs = noise.which!.length ? noise.which! : [[noise.cells, 0n] as const];
  const tables = runs.flatMap(([count, table]) => Array<bigint[]>(Number(count)).fill(noise.tables![Number(table)]!));
  const walk = function* (z: number[], weight: number): Generator<[number[], number]> {
    if (z.length === tables.length) {
      const sum = BigInt(z.reduce((a, b) => a + b, 0));
      if (noise.total !== undefined && sum !== noise.total) return;
      if (noise.tilt) {
        const { centre, zero, weights, factors } = noise.tilt;
        const at = z.reduce((s, n, j) => s + Number(weights[j]! - zero) * n, 0) - Number(centre);
        weight *= Number(factors[Math.abs(at)] ?? 0n);
      }
      if (weight > 0) yield [z, weight];
      return;
    }
    for (const [n, w] of tables[z.length]!.entries()) yield* walk([...z, n], weight * Number(w));
  };
  yield* walk([], 1);
}

/** Returns the mean number of dummies that one draw adds to each cell. */
function means(noise: Noise): number[] {
  const sums = Array<number>(Number(noise.cells)).fill(0);
  let all = 0;
  for (const [z, weight] of outcomes(noise)) {
    all += weight;
    z.forEach((n, j) => { sums[j]! += n * weight; });
  }
  return sums.map((s) => s / all);
}

function cellsOf(task: Task): bigint {
  if (task.query === 'histogram') return task.bins;
  if (task.query === 'count') return 2n;
  if (task.query === 'sum' || task.query === 'mean') return whole(task, 'k', 1n, 1023n) + 1n;
  throw new Malformed('query');
}

export function augmented(task: Task): Protocol {
  const cells = cellsOf(task);
  const summed = task.query === 'sum' || task.query === 'mean';
  const { noise } = task;
  const exact = task.params.has('gamma') ? gammaOf(task) : undefined;
  const gamma = exact ? toNumber(exact) : 0;
  for (const key of task.params.keys()) if (key !== 'gamma' &&
    !(key === 'k' && summed)) throw new Malformed(`params.${key}`);
  if (noise?.kind !== 'cells' || noise.cells !== cells) throw new Malformed('noise');
  if (task.assumption !== 'none') throw new Malformed('claim.assumption');
  if (task.rule !== 'dummies') throw new Malformed('rule');
  if (summed && !noise.tilt) throw new Malformed('noise.tilt');
  if (summed && noise.tilt!.weights.some((w, j) => w !== BigInt(j))) throw new Malformed('noise.tilt.weights');
  if (summed && noise.tilt!.zero && noise.tilt!.zero * 2n !== cells - 1n) throw new Malformed('noise.tilt.zero');
  const size = symbolBytes(cells);
  checkSlots(task, 'full', 1n, 1n, size);
  const read = (lane: number, message: Uint8Array) => {
    inLane(lane, 0);
    return Number(decode(message, cells, size));
  };
  return {
    randomize: (source, value) => {
      const x = task.query === 'histogram' ? categoryOf(task, value) : source.round(fixed(numberOf(task, value)),
        cells - 1n);
      return [[encode(exact ? source.randomizedResponse(x, cells, exact) : x, size)]];
    },
    check: (lane, message) => void read(lane, message),
    estimate: (batches) => {
      const counts = Array<number>(Number(cells)).fill(0);
      for (const { lanes } of batches) {
        lanes.forEach((messages, lane) => messages.forEach((m) => { counts[read(lane, m)]!++; }));
      }
      const draws = batches.reduce((s, b) => s + b.draws!, 0);
      const n = counts.reduce((a, b) => a + b, 0) - batches.reduce((s, b) => s + b.dummies!, 0);
      const own = means(noise).map((mean, j) => counts[j]! - draws * mean);
      if (summed) {
        const zero = Number(noise.tilt!.zero);
        const z = own.reduce((s, c, j) => s + (j - zero) * c, zero * n) / Number(cells - 1n);
        return [task.lo * n + (task.hi - task.lo) * ((z - (n * gamma) / 2) / (1 - gamma))];
      }
      const answers = own.map((c) => (c - (n * gamma) / Number(cells)) / (1 - gamma));
      return task.query === 'count' ? answers.slice(1) : answers;
    },
  };
}
