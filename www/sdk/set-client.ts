/**
 * The page's client of a set's engine. It starts the engine in a worker, or in this thread if none can start.
 * @module
 */

import { type Port, maxCall, start } from './engine-client.js';
import { DoonaError } from './errors.js';
import type { SetEngine } from './set-engine.js';
import { within } from './timing.js';
import type { Call } from './worker-protocol.js';

/** An engine that knows where it runs. */
export interface SetEngineClient extends SetEngine {
  /** Why the engine runs in the page's thread; undefined if it does not. */
  readonly inPlace: string | undefined;
  /** Stops the worker. */
  stop(): void;
}

/**
 * Starts an engine whose script is in `folder`, by default this script's folder. The build gives this script the
 * worker of sets, and the engine of sets for the page's thread.
 * @throws DoonaError `module-failed`
 */
export async function startSetEngine(folder?: URL): Promise<SetEngineClient> {
  const port: Port = await start(folder);
  let last = 0;
  async function call<T>(method: keyof SetEngine, args: readonly unknown[], transfer: Transferable[] = []): Promise<T> {
    const sent = { id: ++last, method, args } as unknown as Call;
    const answer = await within(port.post(sent, transfer), maxCall, () =>
      new DoonaError('module-failed', `the engine did not answer ${method} within ${maxCall / 1000} seconds`));
    if (!('error' in answer)) return answer.result as T;
    throw new DoonaError(answer.error.code, answer.error.message, answer.error.field);
  }
  return {
    inPlace: port.inPlace,
    stop: () => port.stop(),
    start: (name, code) => call('start', [name, code], code instanceof Uint8Array ? [code.buffer] : []),
    open: (request) => call('open', [request]),
    move: (handle) => call('move', [handle]),
    keys: (handle, clock, bytes) => call('keys', [handle, clock, bytes]),
    fit: (handle, limit) => call('fit', [handle, limit]),
    today: (request) => call('today', [request]),
    change: (request, values) => call('change', [request, values]),
    state: (handle, day) => call('state', [handle, day]),
    tokenKey: (handle, day) => call('tokenKey', [handle, day]),
    token: (handle, day, token) => call('token', [handle, day, token]),
    left: (handle, day, body) => call('left', [handle, day, body]),
    closed: (handle, day, state) => call('closed', [handle, day, state]),
  };
}
