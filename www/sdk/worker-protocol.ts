/**
 * The messages between the page and the engine in a worker. Errors travel as plain data, because an error object loses
 * its class when it is posted.
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

/** Tells the worker that the page enters or leaves the back-forward cache. */
export type PageEvent = 'pagehide' | 'pageshow';

/** The worker's name, by which its script recognizes that it runs in a worker. */
export const workerName = 'doona';

/** The worker's first message. It says that its script runs. */
export const workerReady = 'ready';
