/**
 * The engine's script. Started as a worker, it answers the messages of its page. Imported, in runtimes without workers,
 * it exports `answer`.
 * @module
 */

import { type Answer, type Call, workerName, workerReady } from './worker-protocol.js';
import type { Bytes } from './bytes.js';
import { localEngine } from './engine.js';
import { DoonaError } from './errors.js';

const engine = localEngine();

/** Answers a call; never rejects. */
export async function answer({ id, method, args }: Call): Promise<Answer> {
  try {
    const run = engine[method] as (...args: readonly unknown[]) => Promise<unknown>;
    return { id, result: await run(...args) };
  } catch (cause) {
    if (cause instanceof DoonaError) return { id,
      error: { code: cause.code, message: cause.message, field: cause.field } };
    return { id, error: { code: 'module-failed', message: `the engine failed: ${String(cause)}`, field: undefined } };
  }
}

// The part of a dedicated worker's scope that this script uses.
const scope = globalThis as unknown as {
  name?: string; document?: unknown; postMessage(message: unknown, transfer: Transferable[]): void;
};
if (scope.name === workerName && scope.document === undefined) {
  addEventListener('message', async (event: MessageEvent<Call>) => {
    const reply = await answer(event.data);
    const chain = 'result' in reply && (reply.result as { chain?: Bytes } | null)?.chain;
    scope.postMessage(reply, chain ? [chain.buffer] : []);
  });
  scope.postMessage(workerReady, []);
}
