/**
 * The options of connectSet, validated before anything is fetched.
 * @module
 */

import type { Budget, Limit } from './budget.js';
import { type Bytes, fromHex } from './bytes.js';
import { DoonaError, invalidOption } from './errors.js';
import { type TokenSource, isBetween, parseURL } from './options.js';
import { parseKey } from './signature.js';
import type { Value } from './value.js';

/** The options of `connectSet`. */
export interface SetOptions {
  /**
   * Address of the set: https://relay.example/v1/sets/ and its id, or a path of the site's own host that ends so. If
   * the id names the set at position 0, its renewals are followed.
   */
  readonly url: string | URL;
  /** The owner's key, "ed25519:" and base64url. */
  readonly owner: string;
  /** For each table with values and without events: what a visit reports if no value is given. */
  readonly defaults: Readonly<Record<string, Value>>;
  /**
   * The most that all reports at this site, of all sets and tasks, may cost together in any window of `days` days. Its
   * days are at most those of the set's total.
   */
  readonly budget: Budget;
  /**
   * `granted`: the visitor has consented on this page, which overrides the Global Privacy Control signal. Default:
   * without consent, a browser that sends the signal reports nothing.
   */
  readonly consent?: 'granted';
  /** When to begin: see `connect`. Default `idle`. */
  readonly when?: 'idle' | 'now';
  /** Folder of the set's worker and WASM module, ending in "/". Default: this script's folder. */
  readonly modules?: string | URL;
  /** Whether to report if a page of another origin frames this page: see `connect`. Default false. */
  readonly frames?: boolean;
  /**
   * A page that stays open claims the next day, and asks for new keys, at a random moment within this number of
   * milliseconds after the day begins. Default 60000. Range 0 to 3600000.
   */
  readonly spread?: number;
  /** Passes the request for a token on to the issuer, in a set with tokens: see `connect`. */
  readonly tokens?: TokenSource;
  /** Aborts connecting. */
  readonly signal?: AbortSignal;
}

/** The parsed options. */
export interface ParsedSetOptions {
  readonly url: URL;
  readonly id: Bytes;
  readonly idText: string;
  readonly owner: Bytes;
  readonly limit: Limit;
  readonly when: 'idle' | 'now';
  readonly modules: URL | undefined;
  readonly spread: number;
}

const known = ['url', 'owner', 'defaults', 'budget', 'consent', 'when', 'modules', 'frames', 'spread', 'tokens',
  'signal'];

/** Parses the options. @throws DoonaError `invalid-option` */
export function parseSetOptions(options: SetOptions): ParsedSetOptions {
  if (typeof options !== 'object' || options === null) {
    throw invalidOption('options', options, 'an object with url, owner, defaults and budget');
  }
  for (const name in options) {
    if (!known.includes(name) && !(name in {})) {
      throw new DoonaError('invalid-option', `unknown option ${name}: want ${known.join(', ')}`, name);
    }
  }
  const url = parseURL('url', options.url ?? '');
  const [, idText = ''] = /\/v1\/sets\/([0-9a-f]{64})$/.exec(url.pathname) ?? [];
  const id = fromHex(idText, 32);
  if (!id) throw invalidOption('url', options.url, '…/v1/sets/ and 64 hexadecimal digits');
  const owner = typeof options.owner === 'string' ? parseKey(options.owner) : undefined;
  if (!owner) throw invalidOption('owner', options.owner, '"ed25519:" and 32 bytes as unpadded base64url');
  const { when = 'idle', modules, frames, consent, spread = 60_000, defaults } = options;
  if (typeof defaults !== 'object' || defaults === null) {
    throw invalidOption('defaults', defaults, 'an object with a value for each table');
  }
  if (when !== 'idle' && when !== 'now') throw invalidOption('when', when, '"idle" or "now"');
  if (frames !== undefined && typeof frames !== 'boolean') throw invalidOption('frames', frames, 'true or false');
  if (consent !== undefined && consent !== 'granted') throw invalidOption('consent', consent, '"granted", or nothing');
  if (!isBetween(spread, 0, 3_600_000)) throw invalidOption('spread', spread, '0 to 3600000 milliseconds');
  return { url, id, idText, owner, limit: limitOf(options.budget), when, spread,
    modules: modules === undefined ? undefined : parseURL('modules', modules, 'file:') };
}

function limitOf(budget: Budget): Limit {
  const { epsilon, delta, days } = Object(budget) as Partial<Budget>;
  const valid = isBetween(epsilon, Number.MIN_VALUE, Infinity) && isBetween(delta, Number.MIN_VALUE, 1) &&
    isBetween(days, Number.MIN_VALUE, Infinity);
  if (valid) return { epsilon, delta, days, option: 'budget' };
  throw invalidOption('budget', JSON.stringify(budget), 'epsilon above 0, delta above 0 and at most 1, days above 0');
}
