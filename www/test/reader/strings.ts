/**
 * The protocol strings, which finds frequent texts (docs/SPEC.md, section 11).
 * @module
 */

import { gammaOf } from './response.ts';
import { toNumber } from './source.ts';
import { checkSlots, Malformed, type Task, whole } from './task.ts';
import { decode, encode, inLane, type Protocol } from './values.ts';

const mask = (1n << 64n) - 1n;

/** Continues the 64-bit hash FNV-1a from a state. */
function absorb(state: bigint, bytes: Uint8Array): bigint {
  return bytes.reduce((h, byte) => ((h ^ BigInt(byte)) * 1099511628211n) & mask, state);
}

function finish(state: bigint, table: number): bigint {
  let z = (state + BigInt(table + 1) * 0x9e3779b97f4a7c15n) & mask;
  z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & mask;
  z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & mask;
  return z ^ (z >> 31n);
}

/** Cuts a text to `length` bytes, between two characters, and pads it with zero bytes. */
function padded(value: number[], length: number): Uint8Array {
  if (value.some((c) => !Number.isInteger(c) || c < 1 || c > 255)) throw new Malformed('value');
  const bytes = Uint8Array.from(value);
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new Malformed('value');
  }
  const out = new Uint8Array(length);
  let at = 0;
  for (const character of text) {
    const more = new TextEncoder().encode(character);
    if (at + more.length > length) break;
    out.set(more, at);
    at += more.length;
  }
  return out;
}

export function strings(task: Task): Protocol {
  if (task.query !== 'strings') throw new Malformed('query');
  const length = Number(task.bins);
  const b = whole(task, 'b', 3n, 1n << 22n);
  const checks = Number(whole(task, 'checks', 1n, 64n));
  const maxLevels = task.bins < 3n ? 1n : task.bins * 8n - 15n;
  const levels = Number(whole(task, 'levels', 1n, maxLevels < 128n ? maxLevels : 128n));
  const tables = levels + checks;
  const cells = b * BigInt(tables);
  const { noise } = task;
  if (cells > 1n << 22n) throw new Malformed('params.b');
  const exact = noise ? undefined : gammaOf(task);
  if (noise) {
    if (noise.kind !== 'pool' || noise.cells !== cells) throw new Malformed('noise');
    if (task.assumption !== 'none') throw new Malformed('claim.assumption');
    if (task.rule !== 'pool') throw new Malformed('rule');
  }
  if (task.params.size !== (noise ? 3 : 4)) throw new Malformed('params');
  const size = BigInt(Math.max(1, Math.ceil((cells - 1n).toString(16).length / 2)));
  checkSlots(task, 'full', 1n, 1n, size);
  const seed = absorb(14695981039346656037n, task.canonical);
  const cell = (text: Uint8Array, table: number) => {
    const bits = table < levels - 1 ? 16 + Math.ceil((table * (8 * length - 16)) / (levels - 1)) : 8 * length;
    const whole = Math.floor(bits / 8);
    const rest = bits % 8 ? [text[whole]! >> (8 - (bits % 8))] : [];
    return finish(absorb(seed, Uint8Array.of(...text.subarray(0, whole), ...rest)), table) % b;
  };
  const read = (lane: number, message: Uint8Array) => {
    inLane(lane, 0);
    return Number(decode(message, cells, size));
  };
  return {
    randomize: (source, value) => {
      const text = padded(value, length);
      const table = source.below(BigInt(tables));
      const own = cell(text, Number(table));
      return [[encode(table * b + (exact ? source.randomizedResponse(own, b, exact) : own), size)]];
    },
    check: (lane, message) => void read(lane, message),
    estimate: (batches) => {
      const counts = Array<number>(Number(cells)).fill(0);
      for (const { lanes } of batches) {
        lanes.forEach((messages, lane) => messages.forEach((m) => { counts[read(lane, m)]!++; }));
      }
      const gamma = exact ? toNumber(exact) : 0;
      const n = counts.reduce((s, c) => s + c, 0) - batches.reduce((s, batch) => s + batch.dummies!, 0);
      const added = batches.reduce((s, batch) => s + batch.draws!, 0) * Number(noise?.pool ?? 0n);
      const background = (n * gamma + added) / Number(cells);
      return counts.map((c) => ((c - background) * tables) / (1 - gamma));
    },
  };
}
