/**
 * The engine's script. As a worker, it answers the messages of its page. If no worker can run, the SDK imports this
 * script and calls `answer`. The engine then shares its builtins with other scripts, so `answer` tests them before each
 * call.
 * @module
 */

import { type Answer, type Call, workerName, workerReady } from './worker-protocol.js';
import type { Bytes } from './bytes.js';
import { type OpenRequest, type OpenedTask, localEngine } from './engine.js';
import { checkEngineBuiltins, checkWebCrypto } from './engine-builtins.js';
import { DoonaError } from './errors.js';

const engine = localEngine();

/** For each task, by its handle: whether WebCrypto seals its reports. */
const seals: boolean[] = [];

/** Answers a call if the engine runs in its caller's thread. Tests the shared builtins first. Never rejects. */
export async function answer(call: Call): Promise<Answer> {
  const opens = call.method === 'open' && (call.args[0] as OpenRequest).module !== 'full';
  const reply = await run(call, async () => {
    checkEngineBuiltins();
    if (opens || seals[call.args[0] as number]) await checkWebCrypto();
  });
  if (opens && 'result' in reply && reply.result) seals[(reply.result as OpenedTask).handle] = true;
  return reply;
}

/** Runs `check`, then the called method. Never rejects. */
async function run({ id, method, args }: Call, check?: () => Promise<void>): Promise<Answer> {
  try {
    await check?.();
    const work = engine[method] as (...args: readonly unknown[]) => Promise<unknown>;
    return { id, result: await work(...args) };
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
    const reply = await run(event.data);
    const chain = 'result' in reply && (reply.result as { chain?: Bytes } | null)?.chain;
    scope.postMessage(reply, chain ? [chain.buffer] : []);
  });
  scope.postMessage(workerReady, []);
}
