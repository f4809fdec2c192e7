/**
 * From the address of a task to a connection that may be trusted with a value.
 * @module
 */

import { checkDelta, checkTask } from './budget.js';
import { type Bundle, checkId, parseBundle } from './bundle.js';
import type { Bytes } from './bytes.js';
import { Doona } from './doona.js';
import { DoonaError } from './errors.js';
import { guaranteeOf } from './guarantee.js';
import { supported } from './hpke.js';
import { load } from './load.js';
import type { Module } from './module.js';
import { type ConnectOptions, type Pinned, validate } from './options.js';
import { type Reporter, withFullModule, withWebCrypto } from './reporter.js';
import { indexedDBStore } from './store-indexeddb.js';

/**
 * Fetches a task and checks, on this device, all that can be checked before any value is given:
 * that it is the task with this id, signed by this owner; that every relay's keys are those the
 * task names; that its parameters derive the guarantee it claims; and that all its epochs
 * together stay within `maxEpsilon` and `maxDelta`.
 *
 * @throws DoonaError `insecure-context`, `invalid-option`, `task-unreachable`, `task-refused`,
 * `claim-refused`, `epsilon-too-large`, `delta-too-large`, `storage-unavailable`, `module-failed`
 */
export async function connect(options: ConnectOptions): Promise<Doona> {
  if (!globalThis.crypto?.subtle) {
    throw new DoonaError('insecure-context', 'WebCrypto is missing: serve the page over HTTPS or from localhost');
  }
  const pinned = validate(options);
  const [store, raw, native] = await Promise.all([
    options.store ?? indexedDBStore(),
    fetchBundle(pinned.url, options.signal),
    startNative(options),
  ]);
  const bundle = parseBundle(raw);
  const { task } = bundle;
  await checkId(bundle, pinned.id);
  const reporter = await reporterFor(options, pinned, bundle, raw, native);
  const guarantee = guaranteeOf(task, reporter.epsilon0);
  checkTask(guarantee.epsilon, guarantee.epochs, options.maxEpsilon);
  checkDelta(guarantee.totalDelta, pinned.maxDelta);
  const { maxTotalEpsilon } = options;
  return new Doona({ id: pinned.idText, task, guarantee, reporter, store, maxTotalEpsilon, spread: pinned.spread });
}

/** Starts doona.wasm while the task is still being fetched, where WebCrypto can seal. */
async function startNative(options: ConnectOptions): Promise<Module | undefined> {
  if (options.sealing === 'wasm' || !(await supported())) return undefined;
  return load('browser', folder(options), options.compiled?.browser);
}

function folder(options: ConnectOptions): string | URL {
  return options.modules ?? new URL('.', import.meta.url);
}

async function fetchBundle(url: URL, signal?: AbortSignal): Promise<Bytes> {
  try {
    const response = await fetch(url, {
      credentials: 'omit',
      referrerPolicy: 'no-referrer',
      redirect: 'error',
      ...(signal && { signal }),
    });
    if (!response.ok) throw new Error(`the relay answered ${response.status}`);
    return new Uint8Array(await response.arrayBuffer());
  } catch (cause) {
    signal?.throwIfAborted();
    const message = `couldn't fetch the task: ${(cause as Error).message}`;
    throw new DoonaError('task-unreachable', message, 'task', { cause });
  }
}

async function reporterFor(
  options: ConnectOptions,
  pinned: Pinned,
  bundle: Bundle,
  raw: Bytes,
  native: Module | undefined,
): Promise<Reporter> {
  if (native && bundle.task.kem === 'x25519') return withWebCrypto(native, bundle, pinned);
  if (options.sealing === 'webcrypto') {
    throw new DoonaError('invalid-option', `WebCrypto cannot seal for ${bundle.task.kem} here: want sealing wasm`, 'sealing');
  }
  return withFullModule(await load('full', folder(options), options.compiled?.full), raw, pinned);
}
