/**
 * Answers calls to the engine, in the worker and in the page's thread alike.
 * @module
 */

import { localEngine } from './engine.js';
import { DoonaError } from './errors.js';
import type { Store } from './store.js';
import type { Answer, Call } from './worker-protocol.js';

/**
 * Returns a function that answers calls: it runs `check`, if any, then the called method. It never rejects. For
 * `decides` and `store` see {@link localEngine}.
 */
export function answers(decides?: () => void,
  store?: Store): (call: Call, check?: () => Promise<void>) => Promise<Answer> {
  const engine = localEngine(decides, store);
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
