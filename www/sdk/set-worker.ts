/**
 * The script of a set's worker: the engine of sets, which answers the messages of its page.
 * @module
 */

import { type SetCall, setAnswers } from './set-protocol.js';
import { resumeStores, suspendStores } from './store-indexeddb.js';
import { type PageEvent, workerName, workerReady } from './worker-protocol.js';

const run = setAnswers();

// The part of a dedicated worker's scope that this script uses.
const scope = globalThis as unknown as { name?: string; document?: unknown; postMessage(message: unknown): void };
if (scope.name === workerName && scope.document === undefined) {
  addEventListener('message', async ({ data }: MessageEvent<SetCall | PageEvent>) => {
    if (data === 'pagehide') return suspendStores();
    if (data === 'pageshow') return resumeStores();
    scope.postMessage(await run(data));
  });
  scope.postMessage(workerReady);
}
