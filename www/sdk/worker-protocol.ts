/**
 * The messages between the page and its engine. They are plain data, because an error loses its class when it is posted
 * to or from a worker.
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

/** The worker's name, by which its script recognizes that it runs in a worker. */
export const workerName = 'doona';

/** The worker's first message: its script runs. */
export const workerReady = 'ready';
