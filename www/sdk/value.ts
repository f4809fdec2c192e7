/**
 * Converts a page's value into the input of the WASM module. It refuses an invalid value before the SDK looks for an
 * earlier report of the epoch, so a faulty page gets the error on every call. The WASM module checks every value again.
 * @module
 */

import { DoonaError } from './errors.js';
import type { Task } from './task.js';

/**
 * Returns a value as the WASM module's input. The task limits the size of the input, so that the size of the module's
 * memory does not reveal the value.
 * @throws DoonaError `invalid-value`
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

/** Returns what a browser without an event sends, as the WASM module's input, for a task with events. */
export function usualInput({ input, epochs }: Task): Float64Array {
  const { usual } = epochs.events!;
  if (input.bins === 0 || input.labels) return new Float64Array([usual]);
  const [lo, hi] = [numberOf(input.lo), numberOf(input.hi)];
  return new Float64Array([lo + (hi - lo) * (usual + .5) / input.bins]);
}

/** Whether a value is surely that default. At an edge of its bin, where rounding may decide, it counts as an event. */
export function isUsual({ input, epochs }: Task, [x]: Float64Array): boolean {
  const { usual } = epochs.events!;
  if (input.bins === 0 || input.labels) return x === usual;
  const [lo, hi] = [numberOf(input.lo), numberOf(input.hi)];
  const at = (x! - lo) / (hi - lo) * input.bins;
  return (usual === 0 || at > usual + 1e-6) && (usual === input.bins - 1 || at < usual + 1 - 1e-6);
}

/** Returns a rational "a/b" or "a" as a number. */
function numberOf(text: string): number {
  const [above, below = '1'] = text.split('/');
  return Number(above) / Number(below);
}

function invalid(got: unknown, want: string): DoonaError {
  return new DoonaError('invalid-value', `invalid value ${String(got)}: want ${want}`, 'value');
}

/**
 * Returns the bytes of a text in Unicode normal form C, so that equal texts have equal bytes. If the text is longer
 * than `most` bytes, it returns up to 4 bytes more, because the WASM module decides where to cut.
 * @throws DoonaError `invalid-value` if the value is not a text or has a zero byte
 */
export function textBytes(value: unknown, most: number): Float64Array {
  if (typeof value !== 'string') throw invalid(`of type ${typeof value}`, 'a text');
  if (value.includes('\0')) throw invalid('with a zero byte', 'a text without');
  const bytes = new Uint8Array(most + longestCharacter);
  const { written } = new TextEncoder().encodeInto(value.normalize('NFC'), bytes);
  const out = new Float64Array(bytes.subarray(0, written));
  bytes.fill(0);
  return out;
}

/** The length of the longest character in UTF-8, in bytes. */
const longestCharacter = 4;

/** A vector: an array or typed array of numbers. */
export type Vector = readonly number[] | Float64Array | Float32Array | Int32Array | Uint32Array | Int16Array |
  Uint16Array | Int8Array | Uint8Array;

/** What a page may report; which of these, the task says. */
export type Value = number | Vector | string;

/**
 * Copies a value. The engine zeroes the copy once it has randomized it.
 * @throws DoonaError `invalid-value` if the value is neither a number nor a list of numbers
 */
export function toFloat64Array(value: number | Vector): Float64Array {
  if (typeof value === 'number') return new Float64Array([value]);
  const list: readonly unknown[] = Array.isArray(value) ? value
    : ArrayBuffer.isView(value) && Symbol.iterator in value ? [...value] : [undefined];
  if (list.every((x) => typeof x === 'number')) return Float64Array.from(list as readonly number[]);
  throw invalid(`of type ${typeof value}`, 'a number, or an array of numbers');
}
