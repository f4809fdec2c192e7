/**
 * The messages between the page and a set's engine in a worker, and what answers them.
 * @module
 */

import { DoonaError } from './errors.js';
import { type SetEngine, localSetEngine } from './set-engine.js';
import type { Answer } from './worker-protocol.js';

export interface SetCall {
  readonly id: number;
  readonly method: keyof SetEngine;
  readonly args: readonly unknown[];
}

/** Returns a function that answers calls: it runs `check`, if any, then the called method. It never rejects. */
export function setAnswers(decides?: () => void): (call: SetCall, check?: () => Promise<void>) => Promise<Answer> {
  const engine = localSetEngine(decides);
  return async ({ id, method, args }, check) => {
    try {
      await check?.();
      const work = engine[method] as (...args: readonly unknown[]) => Promise<unknown>;
      return { id, result: await work(...args) };
    } catch (cause) {
      if (cause instanceof DoonaError) return { id,
        error: { code: cause.code, message: cause.message, field: cause.field } };
      return { id, error: { code: 'module-failed', message: `the engine failed: ${String(cause)}`, field: undefined } };
    }
  };
}
