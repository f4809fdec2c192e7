// The fetch handler of the edge workers in these tests. A request posts the name of a case; the answer has the case's
// error, or null.
import { cases } from './cases.mjs';

/** @typedef {import('./cases.mjs').Host} Host */

/**
 * @param {Host['sdk']} sdk
 * @param {Host['options']} options of this runtime
 * @returns {(request: Request) => Promise<Response>}
 */
export function answer(sdk, options = {}) {
  return async (request) => {
    const { name, site, tasks } = /** @type {any} */ (await request.json());
    try {
      await cases[name]?.({ sdk, site, tasks, options: { store: sdk.memoryStore(), ...options } });
      return Response.json({ error: null });
    } catch (error) {
      return Response.json({ error: String(error) + /** @type {Error} */ (error).stack });
    }
  };
}
