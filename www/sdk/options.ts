/**
 * The options of connect, validated before anything is fetched.
 * @module
 */

import type { Budget, Limit } from './budget.js';
import { type Bytes, fromHex } from './bytes.js';
import { DoonaError, invalidOption } from './errors.js';
import type { ExplainOptions } from './explain.js';
import { parseKey } from './signature.js';
import type { Store } from './store.js';
import { changeable } from './stream.js';
import type { Value } from './value.js';

/**
 * Posts a token request of 259 bytes and returns the issuer's response. A retry calls it again with the same request.
 * `uri` is the issuer's address for requests of the epoch. `signal` aborts when the SDK stops waiting, after 30
 * seconds.
 */
export type TokenSource = (
  request: Bytes,
  about: { readonly task: string; readonly epoch: number; readonly uri: string; readonly signal: AbortSignal },
) => Promise<Response>;

/** All options of `connect`, whichever of them go together. */
export interface AllOptions {
  /**
   * Address of the task at its first relay: https://relay.example/v1/tasks/ and the task's id. Either this or `stream`
   * is required.
   */
  readonly task?: string | URL;
  /**
   * Address of a stream at its first relay: https://relay.example/v1/streams/ and the id of its first task. The page
   * need not change for later tasks. Excludes `task`.
   */
  readonly stream?: string | URL;
  /**
   * The parts that later tasks of the stream may change. The first task must allow the change too. Any of
   * "clients.issuer.url", "clients.origins", "clients.quota", "name", "relays.url" and "verifier.url". Default: none.
   */
  readonly allow?: readonly string[];
  /**
   * The recovery key of a stream, which may replace the owner's key or stop the stream: "ed25519:" and base64url.
   * Default: none.
   */
  readonly recovery?: string;
  /**
   * The keys of further relays of a stream, "ed25519:" and base64url, that you trust as much as the relays of the first
   * task. The owner may replace a relay by one of them, if the first task allows that. Default: none.
   */
  readonly candidates?: readonly string[];
  /** The task owner's key, "ed25519:" and base64url. Required. */
  readonly owner: string;
  /**
   * The most that all reports at this site, of all tasks, may cost together in any window of `days` days. For a daily
   * task that claims (10, 10⁻⁵) for a year: `{ epsilon: 10, delta: 1e-5, days: 365 }`. Either this is required, or both
   * `maxEpsilon` and `maxTotalEpsilon`. ε is above 0; δ is above 0 and at most 1, where 1 means no limit; days is above
   * 0.
   */
  readonly budget?: Budget;
  /** The most ε that all epochs of the task may cost together. Above 0. Default with a budget: Infinity. */
  readonly maxEpsilon?: number;
  /** The limit on the sum of δ over all epochs of the task. Default 0.001. Above 0, at most 1; 1 means no limit. */
  readonly maxDelta?: number;
  /**
   * Instead of a budget: the most ε that all tasks at this site may cost together, forever. For each task, the SDK
   * charges the sum over its reports, but never more than the composed cost of all its epochs. At least `maxEpsilon`.
   */
  readonly maxTotalEpsilon?: number;
  /**
   * The SDK sends a report at a random time within this number of milliseconds, and before the epoch ends. So the time
   * of sending reveals less about what made the page report. Default 2000. Range 0 to 3600000 (one hour).
   */
  readonly spread?: number;
  /**
   * The share of browsers that report in an epoch, 0 to 1. The SDK draws once per browser and epoch, before the engine
   * reads a value. A browser that is left out sends nothing and spends no budget. Counts and sums are then those of the
   * sample: see the README. Default 1.
   */
  readonly sample?: number;
  /**
   * When `connect` begins. `idle` waits until the page has loaded and is idle, at most 2 seconds after it loaded. `now`
   * does not wait. In both cases, a prerendered page waits until it is shown. Default `idle`.
   */
  readonly when?: 'idle' | 'now';
  /**
   * Whether to report if a page of another origin frames this page. The framing page then decides when visitors report.
   * The browser gives the frame a separate storage, so one visitor may report twice: inside and outside the frame.
   * Default false: `connect` throws `frame-refused`.
   */
  readonly frames?: boolean;
  /**
   * Whether to send the reports that earlier visits could not deliver, within `spread` after connecting. Default true.
   */
  readonly flush?: boolean;
  /** Folder of the worker and the WASM modules, ending in "/". Default: this script's folder. */
  readonly modules?: string | URL;
  /**
   * Which protocols the module has that `connect` loads first: `few` (doona-small.wasm: histogram, realsum and
   * augmented) or `all` (doona.wasm). If it lacks the task's protocol, `connect` loads the other too. Default `few`.
   */
  readonly protocols?: 'few' | 'all';
  /** The WASM modules, already compiled, for runtimes that cannot fetch them. */
  readonly compiled?: { readonly browser?: WebAssembly.Module; readonly full?: WebAssembly.Module };
  /**
   * What encrypts reports: WebCrypto, or doona-full.wasm (`wasm`). Default: WebCrypto if it supports the algorithms.
   */
  readonly sealing?: 'webcrypto' | 'wasm';
  /** Where the SDK keeps reports and the ledger. Default: IndexedDB; required in runtimes without it. */
  readonly store?: Store;
  /**
   * For tasks with tokens: a function that posts a token request to the site's backend and returns the issuer's answer.
   * The backend knows the person and passes the request on to the issuer with an API key (docs/issuer.md). Default: the
   * SDK asks the issuer directly, which works if the issuer limits tokens by network.
   */
  readonly tokens?: TokenSource;
  /** Aborts connecting. */
  readonly signal?: AbortSignal;
}

/** Options that do not go with others. */
type Without<Name extends string> = { readonly [_ in Name]?: never };

type StreamOption = 'allow' | 'recovery' | 'candidates';

type TaskOrStream =
  | Required<Pick<AllOptions, 'task'>> & Without<'stream' | StreamOption>
  | Required<Pick<AllOptions, 'stream'>> & Pick<AllOptions, StreamOption> & Without<'task'>;

type BudgetOrLimits =
  | Required<Pick<AllOptions, 'budget'>> & Pick<AllOptions, 'maxEpsilon'> & Without<'maxTotalEpsilon'>
  | Required<Pick<AllOptions, 'maxEpsilon' | 'maxTotalEpsilon'>> & Without<'budget'>;

type OtherOption = Exclude<keyof AllOptions, 'task' | 'stream' | StreamOption | 'budget' | 'maxEpsilon' |
  'maxTotalEpsilon'>;

/** The key of a property that no object has. It only tells TypeScript what the task's values are. */
declare const valueType: unique symbol;

/**
 * The options of `connect`: a task or a stream, and a budget or both limits. `V` is what `report` takes; TypeScript
 * infers it from a file that `doona task types` has written.
 */
export type ConnectOptions<V extends Value = Value> = Pick<AllOptions, OtherOption> & TaskOrStream & BudgetOrLimits &
  { readonly [valueType]?: V };

/** A task's address, its owner's key and what it asks, as `doona task types` writes them. */
export interface TaskOptions<V extends Value> {
  readonly task: string;
  readonly owner: string;
  readonly [valueType]?: V;
}

/** The same for a stream. */
export interface StreamOptions<V extends Value> {
  readonly stream: string;
  readonly owner: string;
  readonly [valueType]?: V;
}

/** The parsed options. */
export interface ParsedOptions {
  readonly url: URL;
  /** The parts that a stream's tasks may change; undefined for a task without a stream. */
  readonly allow: readonly string[] | undefined;
  /** The id of the task, or of a stream's first task, in bytes and in hexadecimal. */
  readonly id: Bytes;
  readonly idText: string;
  readonly owner: Bytes;
  readonly recovery: Bytes | undefined;
  readonly candidates: readonly Bytes[];
  readonly spread: number;
  readonly sample: number;
  readonly maxDelta: number;
  readonly maxEpsilon: number;
  readonly limit: Limit;
  readonly when: 'idle' | 'now';
  readonly modules: URL | undefined;
}

/**
 * The names of all options, to refuse misspelled ones: callers without TypeScript may misspell `budget`, for example.
 */
const known: Readonly<Record<keyof AllOptions, true>> = {
  task: true, stream: true, allow: true, recovery: true, candidates: true, owner: true, budget: true, maxEpsilon: true,
  maxDelta: true, maxTotalEpsilon: true, spread: true, sample: true, when: true, frames: true, flush: true,
  modules: true, protocols: true, compiled: true, sealing: true, store: true, tokens: true, signal: true,
};

/** The names of the options that `init` takes besides. */
const knownToInit: Readonly<Record<string, true>> = { consent: true, onReceipt: true, onError: true, debug: true };

const storeMethods = ['claim', 'release', 'lines', 'put', 'update', 'sealed'] as const;

/** Parses the options of `connect`, or with `init` those of `init`. @throws DoonaError `invalid-option` */
export function parseOptions(options: AllOptions, init = false): ParsedOptions {
  if (typeof options !== 'object' || options === null) {
    throw invalidOption('options', options, 'an object with task, owner and budget');
  }
  checkNames(options, init);
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
  const { maxDelta = 0.001, spread = 2000, sample = 1 } = options;
  const maxEpsilon = options.budget ? options.maxEpsilon ?? Infinity : options.maxEpsilon;
  if (!isBetween(maxEpsilon, Number.MIN_VALUE, Infinity)) throw invalidOption('maxEpsilon', maxEpsilon,
    'a number above 0');
  if (!isBetween(maxDelta, Number.MIN_VALUE, 1)) throw invalidOption('maxDelta', maxDelta, 'a number above 0, at most 1');
  const limit = parseLimit(options, maxEpsilon);
  if (!isBetween(spread, 0, 3_600_000)) throw invalidOption('spread', spread, '0 to 3600000 milliseconds');
  if (!isBetween(sample, 0, 1)) throw invalidOption('sample', sample, 'a number from 0 to 1');
  const { when = 'idle', modules, protocols = 'few', sealing } = options;
  if (when !== 'idle' && when !== 'now') throw invalidOption('when', when, '"idle" or "now"');
  if (protocols !== 'few' && protocols !== 'all') throw invalidOption('protocols', protocols, '"few" or "all"');
  if (sealing !== undefined && sealing !== 'webcrypto' && sealing !== 'wasm') {
    throw invalidOption('sealing', sealing, '"webcrypto" or "wasm"');
  }
  const { frames, store } = options;
  if (store !== undefined && !storeMethods.every((name) => typeof store?.[name] === 'function')) {
    throw invalidOption('store', store, `an object with the methods ${storeMethods.join(', ')}`);
  }
  if (frames !== undefined && typeof frames !== 'boolean') throw invalidOption('frames', frames, 'true or false');
  const folder = modules === undefined ? undefined : parseURL('modules', modules, 'file:');
  return { url, allow, id, idText, owner, recovery, candidates, spread, sample, maxDelta, maxEpsilon, limit, when,
    modules: folder };
}

/** Refuses unknown options. It uses no builtins, only syntax: a library may have replaced them. */
function checkNames(options: object, init: boolean): void {
  for (const name in options) {
    if (known[name as keyof AllOptions] === true || name in {}) continue; // A library may extend all objects.
    if (knownToInit[name] === true && init) continue;
    let want = '';
    let nearest = '';
    let least = 4;
    for (const one in init ? { ...known, ...knownToInit } : known) {
      if (one in {}) continue;
      want += `${want && ', '}${one}`;
      const far = distance(name, one);
      if (far >= least || far >= one.length / 2) continue;
      nearest = one;
      least = far;
    }
    const hint = knownToInit[name] === true ? ' of connect, which init takes'
      : nearest && `, did you mean ${nearest}?`;
    throw new DoonaError('invalid-option', `unknown option ${name}${hint}: want ${want}`, name);
  }
}

/** Returns how many letters must be added, left out or changed to turn one word into another. */
function distance(from: string, to: string): number {
  const row = [0];
  for (let j = 0; j < to.length; j++) row[j + 1] = j + 1;
  for (let i = 0; i < from.length; i++) {
    let diagonal = i;
    row[0] = i + 1;
    for (let j = 0; j < to.length; j++) {
      const above = row[j + 1]!;
      let least = from[i] === to[j] ? diagonal : diagonal + 1;
      if (above + 1 < least) least = above + 1;
      if (row[j]! + 1 < least) least = row[j]! + 1;
      diagonal = above;
      row[j + 1] = least;
    }
  }
  return row[to.length]!;
}

/**
 * Returns the budget. The older option maxTotalEpsilon stands for a budget with an endless window and no limit on δ.
 */
function parseLimit({ budget, maxTotalEpsilon }: AllOptions, maxEpsilon: number): Limit {
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

function parseRecovery({ recovery }: AllOptions, stream: boolean): Bytes | undefined {
  if (recovery === undefined) return undefined;
  const key = stream && typeof recovery === 'string' ? parseKey(recovery) : undefined;
  if (key) return key;
  throw invalidOption('recovery', recovery, stream ? '"ed25519:" and 32 bytes as unpadded base64url'
    : 'nothing without stream');
}

function parseCandidates({ candidates = [] }: AllOptions, stream: boolean): readonly Bytes[] {
  const keys = Array.isArray(candidates) ? candidates.map((key) => typeof key === 'string' && parseKey(key)) : [false];
  if (keys.every((key) => key instanceof Uint8Array) && (stream || keys.length === 0)) return keys;
  throw invalidOption('candidates', candidates, stream ? 'keys, "ed25519:" and 32 bytes as unpadded base64url'
    : 'nothing without stream');
}

/** Returns the parts that later tasks of a stream may change; undefined without a stream. */
function parseAllow({ allow = [] }: AllOptions, stream: boolean): readonly string[] | undefined {
  if (!Array.isArray(allow) || !allow.every((name) => stream && changeable.includes(name))) {
    throw invalidOption('allow', allow, stream ? `names of ${changeable.join(', ')}` : 'nothing without stream');
  }
  return stream ? allow : undefined;
}

/** Checks the options of `explain`. @throws DoonaError `invalid-option` */
export function checkExplainOptions({ devices = 2, language = '' }: ExplainOptions): void {
  if (!(Number.isInteger(devices) && isBetween(devices, 1, 1000))) {
    throw invalidOption('devices', devices, 'a whole number from 1 to 1000');
  }
  if (typeof language !== 'string') throw invalidOption('language', language, 'a tag such as "de"');
}

/** Whether x is a number from low to high. Callers without TypeScript may pass anything. */
export function isBetween(x: unknown, low: number, high: number): x is number {
  return typeof x === 'number' && x >= low && x <= high;
}

export function parseURL(option: string, text: string | URL, also?: string): URL {
  try {
    const url = new URL(text, globalThis.location?.href);
    const folder = also === undefined || url.pathname.endsWith('/'); // Else new URL() replaces its last part.
    const isKnown = url.protocol === 'https:' || url.protocol === 'http:' || url.protocol === also;
    // A browser extension or app serves its pages and files under a scheme of its own.
    if (folder && (isKnown || (also && url.protocol === globalThis.location?.protocol))) return url;
  } catch {
    // Not a URL: the error below names it.
  }
  throw invalidOption(option, text, also ? 'an address of a folder, ending in "/", of https, http, file or the page\'s scheme'
    : 'an http or https address');
}
