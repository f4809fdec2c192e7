/**
 * The protocols that are randomized response: histogram, realsum and vectorgrid (docs/SPEC.md, section 11).
 * @module
 */

import { type Rational, type Source, toNumber } from './source.ts';
import { checkSlots, isPowerOfTwo, Malformed, oneOf, onlyParams, type Task, whole } from './task.ts';
import {
  ballOf, categoryOf, decode, encode, fixed, inLane, type Lanes, numberOf, type Protocol, symbolBytes, vectorOf,
} from './values.ts';

/** Returns the task's parameter gamma, above 0 and below 1. */
export function gammaOf(task: Task): Rational {
  const p = task.params.get('gamma');
  const fits = p && p.num > 0n && p.num < p.den && p.num < 1n << 53n && p.den <= 1n << 62n && isPowerOfTwo(p.den);
  if (!fits) throw new Malformed('params.gamma');
  return p;
}

/** A protocol in which a client sends one symbol, in the only slot of the only lane. */
class Response {
  readonly gamma: number;
  readonly #exact: Rational;
  readonly #symbols: bigint;

  constructor(task: Task, symbols: bigint) {
    this.#exact = gammaOf(task);
    this.#symbols = symbols;
    this.gamma = toNumber(this.#exact);
    checkSlots(task, 'full', 1n, 1n, symbolBytes(symbols));
  }

  report(source: Source, x: bigint): Lanes {
    return [[encode(source.randomizedResponse(x, this.#symbols, this.#exact), symbolBytes(this.#symbols))]];
  }

  read(lane: number, message: Uint8Array): bigint {
    inLane(lane, 0);
    return decode(message, this.#symbols, symbolBytes(this.#symbols));
  }

  symbols(batches: { lanes: Lanes }[]): bigint[] {
    return batches.flatMap(({ lanes }) => lanes.flatMap((messages, lane) => messages.map((m) => this.read(lane, m))));
  }
}

export function histogram(task: Task): Protocol {
  oneOf('query', task, 'histogram');
  const response = new Response(task, task.bins);
  onlyParams(task, 'gamma');
  return {
    randomize: (source, value) => response.report(source, categoryOf(task, value)),
    check: (lane, message) => void response.read(lane, message),
    estimate: (batches) => {
      const reports = response.symbols(batches);
      const counts = new Array<number>(Number(task.bins)).fill(0);
      for (const y of reports) counts[Number(y)]!++;
      return counts.map((c) => (c - (reports.length * response.gamma) / Number(task.bins)) / (1 - response.gamma));
    },
  };
}

export function realsum(task: Task): Protocol {
  oneOf('query', task, 'count', 'sum', 'mean');
  const k = whole(task, 'k', 1n, task.query === 'count' ? 1n : 65536n);
  const response = new Response(task, k + 1n);
  onlyParams(task, 'gamma', 'k');
  return {
    randomize: (source, value) => response.report(source, source.round(fixed(numberOf(task, value)), k)),
    check: (lane, message) => void response.read(lane, message),
    estimate: (batches) => {
      const reports = response.symbols(batches);
      const sum = reports.reduce((a, b) => a + b, 0n);
      const n = reports.length;
      const z = (Number(sum) / Number(k) - (n * response.gamma) / 2) / (1 - response.gamma);
      return [task.lo * n + (task.hi - task.lo) * z];
    },
  };
}

export function vectorgrid(task: Task): Protocol {
  oneOf('query', task, 'vector', 'vectormean');
  onlyParams(task, 'gamma', 'r');
  const r = whole(task, 'r', 1n, 65536n);
  const places = Array.from({ length: Number(task.bins) }, (_, j) => (r + 1n) ** BigInt(j));
  const points = (r + 1n) ** task.bins;
  if (points >= 1n << 32n) throw new Malformed('params.r');
  const response = new Response(task, points);
  const unit = (value: number[]) => {
    if (task.query === 'vector') return vectorOf(task, value);
    return ballOf(task, value).map((v) => Math.min(Math.max((v + 1) / 2, 0), 1));
  };
  return {
    randomize: (source, value) => {
      const x = unit(value).reduce((sum, u, j) => sum + source.round(fixed(u), r) * places[j]!, 0n);
      return response.report(source, x);
    },
    check: (lane, message) => void response.read(lane, message),
    estimate: (batches) => {
      const reports = response.symbols(batches);
      const n = reports.length;
      return places.map((place) => {
        const sum = reports.reduce((s, y) => s + ((y / place) % (r + 1n)), 0n);
        const z = (Number(sum) / Number(r) - (n * response.gamma) / 2) / (1 - response.gamma);
        return task.lo * n + (task.hi - task.lo) * z;
      });
    },
  };
}
