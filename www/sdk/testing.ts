/**
 * A fake relay that runs in the process of your unit tests. It creates a task and all keys, so it can open the reports
 * that arrive and list their values.
 *
 *     const relay = await fakeRelay({ query: 'mean', range: [0, 100] });
 *     const doona = await connect(relay.options);
 *     await doona.report(42);
 *     assert.deepEqual(relay.values, [42]);
 *     relay.close();
 *
 * `connect` and `report` work as in production: they check the signatures and the claim, randomize the value and seal
 * it for two relays and a verifier. Only two things differ: there is almost no noise, and there is no network. This
 * module replaces `globalThis.fetch`. It answers requests to its fake relays, `https://relay-1.test` and so on, and
 * passes on all others. The module `doona` itself has no code for tests.
 * @module
 */

import type { Budget } from './budget.js';
import { type Bytes, concat, joined, toHex, utf8 } from './bytes.js';
import { blockOf, blockSize } from './epochs.js';
import { newKey, open } from './hpke.js';
import { FormatError, Reader, array, bin, uint } from './msgpack.js';
import { tagSize } from './module.js';
import { aadOf, infoOf, kindEnvelope, kindSlot } from './seal.js';
import { formatKey, sha256 } from './signature.js';
import type { Store } from './store.js';
import { memoryStore } from './store-memory.js';
import { version } from './task.js';
import { throwIfAborted } from './timing.js';

/** What the fake relay's task asks. */
export interface Question {
  /** Default `mean`. A histogram counts categories. */
  readonly query?: 'count' | 'sum' | 'mean' | 'histogram';
  /** The smallest and the largest value of a sum or mean. Values outside are clipped. Default [0, 100]. */
  readonly range?: readonly [number, number];
  /** The number of categories of a histogram, 2 to 65536. Its values are 0 to bins-1. Default 10. */
  readonly bins?: number;
}

/**
 * How the fake relay refuses a report: with a problem of SPEC.md, such as `epoch-closed` or `overloaded`, or with
 * `unreachable`, which makes `fetch` fail.
 */
export type Answer = 'epoch-closed' | 'epoch-not-open' | 'limit' | 'malformed' | 'overloaded' | 'unreachable';

/** The options with which a page connects to a fake relay. */
export interface FakeOptions {
  readonly task: string;
  readonly owner: string;
  readonly budget: Budget;
  readonly store: Store;
  readonly spread: number;
  readonly when: 'now';
}

/** A fake relay. */
export interface FakeRelay {
  /**
   * Options for `connect`: the task, its owner, an empty store, and no delays. To change some, copy them: `{
   * ...relay.options, … }`.
   */
  readonly options: FakeOptions;
  /**
   * The values that have arrived, in order; a retry of the same report counts once. The values of a sum or mean are
   * rounded to 1/65536 of the range or finer. Whole numbers stay whole if the range is at most 65536 wide.
   */
  readonly values: readonly number[];
  /** Resolves with the values once at least `count` have arrived, even if your code does not await report(). */
  arrived(count: number): Promise<readonly number[]>;
  /** Refuses the next reports with these answers, one each. */
  answer(...next: readonly Answer[]): void;
  /** Stops the relay: requests to its address go to the network again. */
  close(): void;
}

/** The answer functions of the open relays, by origin. */
const relays = new Map<string, (path: string, body: Bytes) => Promise<Response>>();
let originalFetch: typeof fetch | undefined;
let relayCount = 0;

/**
 * Starts a fake relay. Needs WebCrypto with Ed25519 and X25519, as in Node 22.
 * @throws RangeError for a query, range or number of bins that no task can have
 */
export async function fakeRelay(question: Question = {}): Promise<FakeRelay> {
  const coding = codingOf(question);
  const origin = `https://relay-${++relayCount}.test`;
  const task = await makeTask(coding, [origin, 'https://second.relay.test', '']);
  const relay = new Inbox(task, coding);
  const id = toHex(task.id);
  const path = `/v1/tasks/${id}`;
  listen(origin, async (at, body) => {
    const [, epoch] = new RegExp(`^${path}/epochs/(\\d+)/reports$`).exec(at) ?? [];
    if (epoch !== undefined) return relay.post(Number(epoch), body);
    const now = Math.min(Math.max((Date.now() / 1000 - task.start) / epochLength, 0), epochs - 1);
    const [, block = at === path && blockOf(now)] = new RegExp(`^/v1/blocks/${id}/(\\d+)$`).exec(at) ?? [];
    const bundle = block === false ? undefined : task.bundle(Number(block));
    return bundle ? new Response(bundle) : problem('not-found');
  });
  return {
    options: {
      task: origin + path,
      owner: formatKey(task.owner),
      budget: { epsilon: 1e9, delta: 1, days: 1 },
      store: memoryStore(),
      spread: 0,
      when: 'now',
    },
    values: relay.values,
    arrived: (count) => relay.arrived(count),
    answer: (...next) => void relay.answers.push(...next),
    close: () => unlisten(origin),
  };
}

function listen(origin: string, answer: (path: string, body: Bytes) => Promise<Response>): void {
  relays.set(origin, answer);
  if (globalThis.fetch === fakeFetch) return;
  originalFetch = globalThis.fetch;
  globalThis.fetch = fakeFetch;
}

function unlisten(origin: string): void {
  relays.delete(origin);
  if (relays.size > 0 || globalThis.fetch !== fakeFetch) return; // Other code may have replaced fetch.
  globalThis.fetch = originalFetch!;
}

async function fakeFetch(input: RequestInfo | URL, init?: RequestInit): Promise<Response> {
  const url = new URL(input instanceof Request ? input.url : input, globalThis.location?.href);
  const answer = relays.get(url.origin);
  if (!answer) return originalFetch!(input, init);
  throwIfAborted(init?.signal ?? undefined);
  const body = init?.body ? await new Response(init.body).arrayBuffer() : new ArrayBuffer();
  return answer(url.pathname, new Uint8Array(body));
}

/** The reports that have arrived at a fake relay. */
class Inbox {
  readonly values: number[] = [];
  readonly answers: Answer[] = [];
  readonly #seen = new Set<string>();
  #waiting: { readonly count: number; readonly resolve: (values: readonly number[]) => void }[] = [];

  constructor(readonly task: SignedTask, readonly coding: Coding) {}

  async post(epoch: number, body: Bytes): Promise<Response> {
    const answer = this.answers.shift();
    if (answer === 'unreachable') throw new TypeError('fetch failed');
    if (answer) return problem(answer);
    let value: number;
    try {
      value = this.coding.value(await openBody(this.task, epoch, body));
    } catch (cause) {
      return problem('malformed', String(cause));
    }
    const bytes = toHex(body);
    if (!this.#seen.has(bytes)) { // Equal bytes are a retry.
      this.#seen.add(bytes);
      this.values.push(value);
      for (const { resolve } of this.#waiting.filter(({ count }) => count <= this.values.length)) resolve(this.values);
      this.#waiting = this.#waiting.filter(({ count }) => count > this.values.length);
    }
    return new Response(null, { status: 201 });
  }

  arrived(count: number): Promise<readonly number[]> {
    if (count <= this.values.length) return Promise.resolve(this.values);
    return new Promise((resolve) => this.#waiting.push({ count, resolve }));
  }
}

/** The HTTP status of each problem, as in SPEC.md. All other problems have status 409. */
const statuses: Readonly<Record<string, number>> = { limit: 429, overloaded: 503, malformed: 400, 'not-found': 404 };

function problem(name: string, detail = 'as the test asked'): Response {
  return new Response(JSON.stringify({ type: `urn:doona:error:${name}`, title: name, detail }), {
    status: statuses[name] ?? 409,
    headers: { 'Content-Type': 'application/problem+json' },
  });
}

/** How the protocol encodes a question's values as symbols 0 to `symbols`-1. */
interface Coding {
  readonly question: Required<Question>;
  readonly protocol: string;
  readonly symbols: number;
  readonly params: readonly (readonly [key: string, value: string])[];
  value(symbol: number): number;
}

/** The protocol's γ. It is so small that at most one report in 2⁶¹ has another value than the reported one. */
const gamma = `1/${2n ** 62n}`;

function codingOf({ query = 'mean', range = [0, 100], bins = 10 }: Question): Coding {
  const complete = { query, range, bins };
  if (query === 'histogram') {
    if (!Number.isInteger(bins) || bins < 2 || bins > 65536) throw new RangeError(`bins ${bins}: want 2 to 65536`);
    return { question: complete, protocol: 'histogram', symbols: bins, params: [['gamma', gamma]],
      value: (symbol) => symbol };
  }
  if (query !== 'count' && query !== 'sum' && query !== 'mean') {
    throw new RangeError(`query ${String(query)}: want count, sum, mean or histogram`);
  }
  const [lo, hi] = query === 'count' ? [0, 1] : range;
  if (![lo, hi].every(Number.isSafeInteger) || lo >= hi || Math.max(-lo, hi) > 1e9) {
    throw new RangeError(`range ${lo}, ${hi}: want two whole numbers within ±1e9, the lower one first`);
  }
  const width = hi - lo;
  const k = query === 'count' ? 1 : width * Math.max(1, Math.floor(65536 / width));
  const steps = Math.min(k, 65536);
  return { question: { ...complete, range: [lo, hi] }, protocol: 'realsum', symbols: steps + 1,
    params: [['gamma', gamma], ['k', String(steps)]], value: (symbol) => lo + (symbol * width) / steps };
}

type KeyPair = Awaited<ReturnType<typeof newKey>>;

/** A signed task, with the private keys of all hops by epoch. */
interface SignedTask {
  readonly id: Bytes;
  readonly owner: Bytes;
  /** When the first epoch begins, in Unix seconds. */
  readonly start: number;
  /** Returns the bundle with the keys of a block; undefined if there is no such block. */
  readonly bundle: (block: number) => Bytes | undefined;
  readonly keys: readonly (readonly KeyPair[])[];
}

/** The task's number of epochs, and the length of each in seconds. The first began a minute ago. */
const epochs = 24;
const epochLength = 3600;

async function makeTask(coding: Coding, urls: readonly string[]): Promise<SignedTask> {
  const { query, range: [lo, hi] } = coding.question;
  const labels = query === 'histogram';
  const parties = await Promise.all(urls.map(makeParty));
  const owner = await Signer.make();
  const start = Math.floor(Date.now() / 1000) - 60;
  const width = coding.symbols <= 256 ? 1 : coding.symbols <= 65536 ? 2 : 4;
  const nobody = array([text(''), bin(new Uint8Array(32)), bin(new Uint8Array(32))]);
  const canonical = array([
    text('doona-task'), uint(version), text('a fake for tests'), text(query), text(coding.protocol),
    text(coding.symbols === 2 ? 'others' : 'exact'),
    array(coding.params.map(([key, value]) => array([text(key), text(value)]))),
    array([text(labels ? '0' : String(lo)), text(labels ? '1' : String(hi)), uint(labels ? coding.symbols : 0),
      uint(Number(labels)), uint(Number(query === 'sum' || query === 'mean'))]),
    array([text('100'), text('1e-9'), array([]), text('min-honest')]),
    array([uint(1), text('1'), uint(1)]),
    array([text('full'), uint(1), uint(1), uint(width), uint(0)]),
    array([uint(start), uint(epochLength), uint(epochs)]),
    array([text('address'), uint(65535), nobody, array([])]),
    array(parties.slice(0, -1).map((party) => party.encoded)),
    parties.at(-1)!.encoded,
    text('x25519'), array([]), array([]),
  ]);
  const signature = await owner.sign('task', canonical);
  const bundle = (block: number) => block in parties[0]!.blocks ? array([bin(canonical), bin(owner.publicKey),
    bin(signature), array(parties.map(({ list }) => bin(list))), uint(blockSize * block),
    array(parties.map(({ blocks }) => blocks[block]!))]) : undefined;
  return { id: await sha256(canonical), owner: owner.publicKey, start, bundle, keys: parties.map(({ keys }) => keys) };
}

async function makeParty(url: string) {
  const signer = await Signer.make();
  const keys = await Promise.all(Array.from({ length: epochs }, newKey));
  const leaves: Bytes[] = [];
  for (let first = 0; first < epochs; first += blockSize) {
    leaves.push(joined(keys.slice(first, first + blockSize).map(({ serialized }) => serialized)));
  }
  const { root, paths } = await treeOf(leaves);
  const body = array([text('doona-keys'), uint(version), text('x25519'), uint(epochs), bin(root)]);
  return {
    keys,
    list: array([bin(body), bin(await signer.sign('keys', body))]),
    blocks: leaves.map((leaf, block) => array([bin(leaf), bin(paths[block]!)])),
    encoded: array([text(url), bin(signer.publicKey), bin(await sha256(body))]),
  };
}

/** Returns the root of a Merkle tree, and the path to it from each leaf (RFC 9162, section 2.1). */
async function treeOf(leaves: readonly Bytes[]): Promise<{ root: Bytes; paths: readonly Bytes[] }> {
  if (leaves.length === 1) return { root: await sha256(concat(Uint8Array.of(0), leaves[0]!)), paths: [concat()] };
  let half = 1;
  while (2 * half < leaves.length) half *= 2;
  const [left, right] = await Promise.all([treeOf(leaves.slice(0, half)), treeOf(leaves.slice(half))]);
  return {
    root: await sha256(concat(Uint8Array.of(1), left.root, right.root)),
    paths: [...left.paths.map((path) => concat(path, right.root)),
      ...right.paths.map((path) => concat(path, left.root))],
  };
}

class Signer {
  private constructor(readonly publicKey: Bytes, readonly key: CryptoKey) {}

  static async make(): Promise<Signer> {
    const pair = (await crypto.subtle.generateKey('Ed25519', true, ['sign', 'verify'])) as CryptoKeyPair;
    return new Signer(new Uint8Array(await crypto.subtle.exportKey('raw', pair.publicKey)), pair.privateKey);
  }

  async sign(purpose: 'task' | 'keys', body: Bytes): Promise<Bytes> {
    const signed = concat(utf8(`doona-v${version} ${purpose}\0`), body);
    return new Uint8Array(await crypto.subtle.sign('Ed25519', this.key, signed));
  }
}

/** Opens a submission with the keys of all hops and returns the one symbol in it. */
async function openBody({ id, keys }: SignedTask, epoch: number, body: Bytes): Promise<number> {
  const opened = async (hop: number, aad: Bytes, sealed: Bytes): Promise<Bytes> => {
    const pair = keys[hop]![epoch]!;
    return open(pair.key, await infoOf(id, epoch, hop, pair.serialized), aad, sealed);
  };
  const submission = new Reader(body);
  submission.array(2);
  if (submission.uint() !== version) throw new FormatError(`not of version ${version}`);
  const envelope = new Reader(await opened(0, aadOf(0, kindEnvelope), submission.bin()));
  submission.end();
  envelope.array(2);
  envelope.bin(tagSize);
  envelope.array(1);
  envelope.array(1);
  let slot = envelope.bin();
  envelope.end();
  for (let hop = 1; hop < keys.length; hop++) {
    slot = (await opened(hop, aadOf(0, kindSlot), slot)).subarray(tagSize);
  }
  return slot.subarray(1).reduce((symbol, byte) => symbol * 256 + byte, 0); // The message follows the kind.
}

/** Encodes a string of less than 256 bytes as msgpack. */
function text(value: string): Bytes {
  const bytes = utf8(value);
  return concat(bytes.length < 32 ? Uint8Array.of(0xa0 | bytes.length) : Uint8Array.of(0xd9, bytes.length), bytes);
}
