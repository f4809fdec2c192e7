/**
 * Loads the SDK's scripts that few pages need, at their first use: for tokens (blind.ts), for explanations
 * (explain.ts), and the engine where no worker runs (in-place.ts). The build puts them beside the SDK's script.
 * @module
 */

import type { Asset } from './files.js';
import { checkedScript, runHint, scriptFailed } from './script.js';
import { within } from './timing.js';

/** The longest wait for a script that has passed its check to run, in milliseconds. */
const maxRun = 10_000;

/** Loads the script for tokens from `folder`, by default this script's folder. @throws DoonaError `module-failed` */
export function loadTokens(folder?: URL): Promise<typeof import('./blind.js')> {
  const script = { file: DOONA.tokens.file, integrity: DOONA.tokens.integrity };
  return load(script, () => import('./blind.js'),
    () => (folder ? new URL(DOONA.tokens.file, folder) : new URL(DOONA.tokens.file, import.meta.url)), folder);
}

/** Loads the script for explanations from `folder`, by default this script's folder. @throws as loadTokens */
export function loadWords(folder?: URL): Promise<typeof import('./explain.js')> {
  const script = { file: DOONA.words.file, integrity: DOONA.words.integrity };
  return load(script, () => import('./explain.js'),
    () => (folder ? new URL(DOONA.words.file, folder) : new URL(DOONA.words.file, import.meta.url)), folder);
}

/** Loads the engine from `folder`, by default this script's folder. @throws as loadTokens */
export function loadInPlace(folder?: URL): Promise<typeof import('./in-place.js')> {
  const script = { file: DOONA.inPlace.file, integrity: DOONA.inPlace.integrity };
  return load(script, () => import('./in-place.js'),
    () => (folder ? new URL(DOONA.inPlace.file, folder) : new URL(DOONA.inPlace.file, import.meta.url)), folder);
}

/** Returns a function that loads a script once. After a failure, its next call tries again. */
export function once<T>(load: () => Promise<T>): () => Promise<T> {
  let loading: Promise<T> | undefined;
  return () => {
    loading ??= load();
    loading.catch(() => (loading = undefined));
    return loading;
  };
}

/** Loads a script. Bundlers recognize only the expressions in `usual` and `where`. */
async function load<T>(script: Asset, usual: () => Promise<T>, where: () => URL, folder?: URL): Promise<T> {
  const checked = await checkedScript(script, where);
  const late = () => scriptFailed(script, new Error(`it did not start within ${maxRun / 1000} seconds`));
  try {
    if (!checked && !folder) return await within(usual(), maxRun, late);
    const address = checked ?? where().href;
    return await within(import(addressThatBundlersMustLeaveToTheBrowserItself(address)) as Promise<T>, maxRun, late);
  } catch (cause) {
    throw scriptFailed(script, cause, runHint(checked));
  } finally {
    if (checked?.startsWith('blob:')) URL.revokeObjectURL(checked);
  }
}
