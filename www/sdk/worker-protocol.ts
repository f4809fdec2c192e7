/**
 * What crosses between the page and its engine, in a worker or not: plain data, because an error
 * loses its class on the way.
 * @module
 */

import type { Engine } from './engine.js';
import type { ErrorCode } from './errors.js';

export interface Call {
  readonly id: number;
  readonly method: keyof Engine;
  readonly args: readonly unknown[];
}

export type Answer =
  | { readonly id: number; readonly result: unknown }
  | { readonly id: number; readonly error: { code: ErrorCode; message: string; field: string | undefined } };

/** The name of the worker, by which its script knows that it is one. */
export const workerName = 'doona';

/** The first thing a worker says: its script runs. */
export const workerReady = 'ready';
