/**
 * The engine of sets for the page's thread: the script that the SDK imports where no worker runs. There it shares its
 * builtins with other scripts, so it tests them before each call.
 * @module
 */

import { checkEngineBuiltins, checkWebCrypto } from './engine-builtins.js';
import { checkSetBuiltins } from './set-builtins.js';
import { type SetCall, setAnswers } from './set-protocol.js';
import type { Answer } from './worker-protocol.js';

const run = setAnswers(checkSetBuiltins);

/** Answers a call. Tests the shared builtins first. Never rejects. */
export function answer(call: SetCall): Promise<Answer> {
  return run(call, async () => {
    checkEngineBuiltins();
    await checkWebCrypto();
  });
}
