/**
 * Makes one report with Doona's SDK, from value to request body, without sending it. Runs in Chromium and in node.
 * @module
 */

import { parseBundle } from '../../www/sdk/bundle.js';
import type { Bytes } from '../../www/sdk/bytes.js';
import { Module } from '../../www/sdk/module.js';
import { withWebCrypto } from '../../www/sdk/reporter.js';
import { sha256 } from '../../www/sdk/signature.js';
import type { Once } from './sample.js';

export { sample } from './sample.js';

/** Returns a function that makes one report of `value` to the task of a bundle. */
export async function prepare(module: Bytes, raw: Bytes, value: readonly number[]): Promise<Once> {
  const bundle = parseBundle(raw);
  const id = await sha256(bundle.canonical);
  const starting = WebAssembly.compile(module).then((code) => Module.start(code));
  const reporter = await withWebCrypto(starting, bundle, id);
  return async () => (await reporter.submission(0, Float64Array.from(value))).length;
}
