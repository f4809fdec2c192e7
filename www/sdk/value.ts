/**
 * What a page reports, as the module takes it. A value that no task of this kind allows is refused here, before it is
 * looked up whether the epoch has its report: a page that is wrong hears of it at every call. The module holds every
 * value against the task again.
 * @module
 */

import { DoonaError } from './errors.js';
import type { Task } from './task.js';

/**
 * A value as the module takes it. Its size is bounded here, by the task: how much memory the module takes must not
 * tell of a value.
 */
export function toInput(task: Task, value: number | Vector | string): Float64Array {
  if (task.query === 'strings') return textBytes(value, task.input.bins);
  const numbers = toFloat64Array(value as number | Vector);
  try {
    checkNumbers(task, numbers);
  } catch (refused) {
    numbers.fill(0);
    throw refused;
  }
  return numbers;
}

function checkNumbers({ query, input }: Task, numbers: Float64Array): void {
  const { bins, labels, clip } = input;
  const want = query === 'vector' || query === 'vectormean' ? bins : 1;
  if (numbers.length !== want) throw invalid(`of ${numbers.length} numbers`, String(want));
  for (const x of numbers) if (!Number.isFinite(x)) throw invalid(x, 'a finite number');
  if (query === 'vectormean') return;
  const [lo, hi] = [Number(input.lo), Number(input.hi)];
  for (const x of numbers) {
    if (labels && query === 'histogram') {
      if (!Number.isInteger(x) || x < 0 || x >= bins) throw invalid(x, `a whole number from 0 to ${bins - 1}`);
    } else if (query === 'count') {
      if (x !== 0 && x !== 1) throw invalid(x, '0 or 1');
    } else if (!clip && (x < lo || x > hi)) throw invalid(x, `${lo} to ${hi}`);
  }
}

function invalid(got: unknown, want: string): DoonaError {
  return new DoonaError('invalid-value', `invalid value ${String(got)}: want ${want}`, 'value');
}

/**
 * The bytes of a text in Unicode normal form C, so that no two ways to write one text are two texts. Of a text that is
 * longer than `most` bytes it is one character more: where to cut is the module's to say.
 * @throws DoonaError `invalid-value` for what is no text
 */
export function textBytes(value: unknown, most: number): Float64Array {
  if (typeof value !== 'string') throw invalid(`of type ${typeof value}`, 'a text');
  if (value.includes('\0')) throw invalid('with a zero byte', 'a text without');
  const bytes = new Uint8Array(most + longestCharacter);
  const { written } = new TextEncoder().encodeInto(value.normalize('NFC'), bytes);
  const out = Float64Array.from(bytes.subarray(0, written));
  bytes.fill(0);
  return out;
}

/** In bytes of UTF-8. */
const longestCharacter = 4;

/** A vector as callers have it. */
export type Vector = readonly number[] | Float64Array | Float32Array | Int32Array | Uint32Array | Int16Array |
  Uint16Array | Int8Array | Uint8Array;

/**
 * Copies a value, which is zeroed once it is randomized.
 * @throws DoonaError `invalid-value` for what is neither a number nor a list of numbers
 */
export function toFloat64Array(value: number | Vector): Float64Array {
  if (typeof value === 'number') return Float64Array.of(value);
  const list: readonly unknown[] = Array.isArray(value) ? value
    : ArrayBuffer.isView(value) && Symbol.iterator in value ? [...value] : [undefined];
  if (list.every((x) => typeof x === 'number')) return Float64Array.from(list as readonly number[]);
  throw invalid(`of type ${typeof value}`, 'a number, or an array of numbers');
}
