/**
 * The options of connect, validated before anything is fetched.
 * @module
 */

import type { Budget, Limit } from './budget.js';
import { type Bytes, fromHex } from './bytes.js';
import { invalidOption } from './errors.js';
import { parseKey } from './signature.js';
import type { Store } from './store.js';
import { changeable } from './stream.js';

/**
 * Posts a token request of 259 bytes; may be called again with the same one. `uri` is where the
 * issuer takes requests of the epoch; `signal` ends when the answer is not waited for any longer,
 * after 30 seconds.
 */
export type TokenSource = (
  request: Bytes,
  about: { readonly task: string; readonly epoch: number; readonly uri: string; readonly signal: AbortSignal },
) => Promise<Response>;

export interface ConnectOptions {
  /**
   * Address of the task at its first relay: https://relay.example/v1/tasks/ and the task's id. Required, or
   * `stream`.
   */
  readonly task?: string | URL;
  /**
   * Address of a stream at its first relay: https://relay.example/v1/streams/ and the id of its first task. The
   * tasks that follow need no change of the page. Instead of `task`.
   */
  readonly stream?: string | URL;
  /**
   * What later tasks of the stream may change, where the first task allows it, too: of "clients.issuer.url",
   * "clients.origins", "clients.quota", "name", "relays.url" and "verifier.url". Default: nothing.
   */
  readonly allow?: readonly string[];
  /**
   * Of a stream, the key that may replace the owner's, or stop the stream: "ed25519:" and base64url. Default: none.
   */
  readonly recovery?: string;
  /**
   * Of a stream, the keys of relays, "ed25519:" and base64url, that you trust as you do those of the first task: the
   * owner may put one in the place of a relay that gives up, where the first task allows that. Default: none.
   */
  readonly candidates?: readonly string[];
  /** The task owner's key, "ed25519:" and base64url. Required. */
  readonly owner: string;
  /**
   * What all reports at this site may cost together, of whatever tasks, in any stretch of so many days: of a daily task
   * that claims (10, 10⁻⁵) for a year, `{ epsilon: 10, delta: 1e-5, days: 365 }`. Required, or both of `maxEpsilon` and
   * `maxTotalEpsilon`. ε above 0; δ above 0, at most 1, which bounds nothing; days above 0.
   */
  readonly budget?: Budget;
  /** The most ε that all epochs of the task may cost together. Above 0. Default with a budget: Infinity. */
  readonly maxEpsilon?: number;
  /** The most δ that all epochs of the task may add up to. Default 0.001. Above 0, at most 1, which bounds nothing. */
  readonly maxDelta?: number;
  /**
   * Instead of a budget: the most ε that all tasks at this site may cost together, for all time. Reports of a task add
   * up until that is more than all its epochs cost together. At least maxEpsilon.
   */
  readonly maxTotalEpsilon?: number;
  /**
   * A report leaves at a random moment within so many milliseconds, fixed before the value is
   * randomized, so that its time tells less about what made the page report; within the epoch in
   * any case. Default 2000. 0 to 3600000, an hour.
   */
  readonly spread?: number;
  /**
   * When to begin: `idle`, once the page has loaded and has nothing to do, at the latest 2 seconds
   * after it loaded, or `now`. A page that is only prerendered waits to be shown. Default `idle`.
   */
  readonly when?: 'idle' | 'now';
  /**
   * Whether to report although a page of another origin has framed this one. Who frames it then decides when visitors
   * report, and the site's storage there is another than in its own pages, so that somebody may report in both.
   * Default false: `frame-refused`.
   */
  readonly frames?: boolean;
  /** Whether to send, within `spread` of connecting, what earlier visits left. Default true. */
  readonly flush?: boolean;
  /** Folder of the worker and the WASM modules, ending in "/". Default: that of this script. */
  readonly modules?: string | URL;
  /** The modules already compiled, for runtimes that cannot fetch them. */
  readonly compiled?: { readonly browser?: WebAssembly.Module; readonly full?: WebAssembly.Module };
  /**
   * Who encrypts: WebCrypto, or doona-full.wasm. Default: WebCrypto where it can.
   */
  readonly sealing?: 'webcrypto' | 'wasm';
  /** Where reports are remembered. Default: IndexedDB; required where there is none. */
  readonly store?: Store;
  /**
   * Gets the issuer's answer to a token request, for tasks with tokens: posts the request to the
   * site's own backend, which knows the person and passes it on with an API key (docs/issuer.md),
   * and returns the response. Default: asks the issuer itself, which works where it counts networks.
   */
  readonly tokens?: TokenSource;
  /** Aborts connecting. */
  readonly signal?: AbortSignal;
}

/** The options that need parsing, parsed. */
export interface ParsedOptions {
  readonly url: URL;
  /** What a stream's tasks may change; undefined for a task by itself. */
  readonly allow: readonly string[] | undefined;
  /** The task's id, or that of a stream's first task, in bytes and in hexadecimal. */
  readonly id: Bytes;
  readonly idText: string;
  readonly owner: Bytes;
  readonly recovery: Bytes | undefined;
  readonly candidates: readonly Bytes[];
  readonly spread: number;
  readonly maxDelta: number;
  readonly maxEpsilon: number;
  readonly limit: Limit;
  readonly when: 'idle' | 'now';
  readonly modules: URL | undefined;
}

/** @throws DoonaError `invalid-option` */
export function parseOptions(options: ConnectOptions): ParsedOptions {
  if (typeof options !== 'object' || options === null) {
    throw invalidOption('options', options, 'an object with task, owner and budget');
  }
  const what = options.stream === undefined ? 'task' : 'stream';
  const url = parseURL(what, options[what] ?? '');
  const [, kind, idText = ''] = /\/v1\/(task|stream)s\/([0-9a-f]{64})$/.exec(url.pathname) ?? [];
  const id = fromHex(idText, 32);
  if (!id || kind !== what) throw invalidOption(what, options[what], `…/v1/${what}s/ and 64 hexadecimal digits`);
  if (what === 'stream' && options.task !== undefined) throw invalidOption('task', options.task, 'none with stream');
  const allow = parseAllow(options, what === 'stream');
  const owner = typeof options.owner === 'string' ? parseKey(options.owner) : undefined;
  if (!owner) throw invalidOption('owner', options.owner, '"ed25519:" and 32 bytes as unpadded base64url');
  const recovery = parseRecovery(options, what === 'stream');
  const candidates = parseCandidates(options, what === 'stream');
  const { maxDelta = 0.001, spread = 2000 } = options;
  const maxEpsilon = options.budget ? options.maxEpsilon ?? Infinity : options.maxEpsilon;
  if (!isBetween(maxEpsilon, Number.MIN_VALUE, Infinity)) throw invalidOption('maxEpsilon', maxEpsilon,
    'a number above 0');
  if (!isBetween(maxDelta, Number.MIN_VALUE, 1)) throw invalidOption('maxDelta', maxDelta, 'a number above 0, at most 1');
  const limit = parseLimit(options, maxEpsilon);
  if (!isBetween(spread, 0, 3_600_000)) throw invalidOption('spread', spread, '0 to 3600000 milliseconds');
  const { when = 'idle', modules, sealing } = options;
  if (when !== 'idle' && when !== 'now') throw invalidOption('when', when, '"idle" or "now"');
  if (sealing !== undefined && sealing !== 'webcrypto' && sealing !== 'wasm') {
    throw invalidOption('sealing', sealing, '"webcrypto" or "wasm"');
  }
  const { frames } = options;
  if (frames !== undefined && typeof frames !== 'boolean') throw invalidOption('frames', frames, 'true or false');
  const folder = modules === undefined ? undefined : parseURL('modules', modules, 'file:');
  return { url, allow, id, idText, owner, recovery, candidates, spread, maxDelta, maxEpsilon, limit, when,
    modules: folder };
}

/** The budget, or what the older option stands for: one over all time, of any δ. */
function parseLimit({ budget, maxTotalEpsilon }: ConnectOptions, maxEpsilon: number): Limit {
  if (budget === undefined) {
    if (isBetween(maxTotalEpsilon, maxEpsilon, Infinity)) {
      return { epsilon: maxTotalEpsilon, delta: 1, days: Infinity, option: 'maxTotalEpsilon' };
    }
    throw invalidOption('maxTotalEpsilon', maxTotalEpsilon,
      `a number of at least maxEpsilon, ${maxEpsilon}, or a budget`);
  }
  if (maxTotalEpsilon !== undefined) throw invalidOption('maxTotalEpsilon', maxTotalEpsilon, 'nothing beside a budget');
  const { epsilon, delta, days } = Object(budget) as Partial<Budget>;
  const valid = isBetween(epsilon, Number.MIN_VALUE, Infinity) && isBetween(delta, Number.MIN_VALUE, 1) &&
    isBetween(days, Number.MIN_VALUE, Infinity);
  if (valid) return { epsilon, delta, days, option: 'budget' };
  throw invalidOption('budget', JSON.stringify(budget), 'epsilon above 0, delta above 0 and at most 1, days above 0');
}

function parseRecovery({ recovery }: ConnectOptions, stream: boolean): Bytes | undefined {
  if (recovery === undefined) return undefined;
  const key = stream && typeof recovery === 'string' ? parseKey(recovery) : undefined;
  if (key) return key;
  throw invalidOption('recovery', recovery, stream ? '"ed25519:" and 32 bytes as unpadded base64url'
    : 'nothing without stream');
}

function parseCandidates({ candidates = [] }: ConnectOptions, stream: boolean): readonly Bytes[] {
  const keys = Array.isArray(candidates) ? candidates.map((key) => typeof key === 'string' && parseKey(key)) : [false];
  if (keys.every((key) => key instanceof Uint8Array) && (stream || keys.length === 0)) return keys;
  throw invalidOption('candidates', candidates, stream ? 'keys, "ed25519:" and 32 bytes as unpadded base64url'
    : 'nothing without stream');
}

/** Returns what later tasks of a stream may change. */
function parseAllow({ allow = [] }: ConnectOptions, stream: boolean): readonly string[] | undefined {
  if (!Array.isArray(allow) || !allow.every((name) => stream && changeable.includes(name))) {
    throw invalidOption('allow', allow, stream ? `names of ${changeable.join(', ')}` : 'nothing without stream');
  }
  return stream ? allow : undefined;
}

/** Whether x is a number from low to high; callers without types pass anything. */
function isBetween(x: unknown, low: number, high: number): x is number {
  return typeof x === 'number' && x >= low && x <= high;
}

function parseURL(option: string, text: string | URL, also?: string): URL {
  try {
    const url = new URL(text, globalThis.location?.href);
    const folder = also === undefined || url.pathname.endsWith('/'); // Else its last part would be replaced.
    if (folder && (url.protocol === 'https:' || url.protocol === 'http:' || url.protocol === also)) return url;
  } catch {
    // Not an address; named below.
  }
  throw invalidOption(option, text, also ? 'an address of a folder, ending in "/"' : 'an http or https address');
}
