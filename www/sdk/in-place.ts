/**
 * The engine for the page's thread: the script that the SDK imports where no worker runs. There it shares its builtins
 * with other scripts, so it tests them before each call.
 * @module
 */

import { answers } from './answers.js';
import { checkBuiltins } from './builtins.js';
import type { OpenRequest, OpenedTask } from './engine.js';
import { checkEngineBuiltins, checkWebCrypto } from './engine-builtins.js';
import type { Store } from './store.js';
import type { Answer, Call } from './worker-protocol.js';

const run = answers(checkBuiltins);

/** For each task, by its handle: whether WebCrypto seals its reports. */
const seals: boolean[] = [];

/** Answers a call. Tests the shared builtins first. Never rejects. */
export async function answer(call: Call): Promise<Answer> {
  const opens = call.method === 'open' && (call.args[0] as OpenRequest).module !== 'full';
  const reply = await run(call, async () => {
    checkEngineBuiltins();
    if (opens || seals[call.args[0] as number]) await checkWebCrypto();
  });
  if (opens && 'result' in reply && reply.result) seals[(reply.result as OpenedTask).handle] = true;
  return reply;
}

/** Returns a function that answers calls of the ledger in a store that the page passes. A worker cannot use it. */
export function ledgerAnswers(store: Store): (call: Call) => Promise<Answer> {
  const decide = answers(checkBuiltins, store);
  return (call) => decide(call);
}
