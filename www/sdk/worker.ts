/**
 * The worker's script: the engine, which answers the messages of its page.
 * @module
 */

import { answers } from './answers.js';
import type { Bytes } from './bytes.js';
import { resumeStores, suspendStores } from './store-indexeddb.js';
import { type Call, type PageEvent, workerName, workerReady } from './worker-protocol.js';

const run = answers();

// The part of a dedicated worker's scope that this script uses.
const scope = globalThis as unknown as {
  name?: string; document?: unknown; postMessage(message: unknown, transfer: Transferable[]): void;
};
if (scope.name === workerName && scope.document === undefined) {
  addEventListener('message', async ({ data }: MessageEvent<Call | PageEvent>) => {
    if (data === 'pagehide') return suspendStores();
    if (data === 'pageshow') return resumeStores();
    const reply = await run(data);
    const chain = 'result' in reply && (reply.result as { chain?: Bytes } | null)?.chain;
    scope.postMessage(reply, chain ? [chain.buffer] : []);
  });
  scope.postMessage(workerReady, []);
}
