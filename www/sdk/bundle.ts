/**
 * The bundle that a relay serves: a signed task, the key lists that the task names by hash, and the keys of one block
 * of epochs with their paths to the lists' Merkle roots. The SDK trusts nothing in it until signatures and hashes tie
 * it to the owner's key and the task id in the page's options.
 * @module
 */

import { type Bytes, concat, equal } from './bytes.js';
import { blockOf, blockSize } from './epochs.js';
import { taskRefused } from './errors.js';
import { keySize } from './hpke.js';
import { FormatError, Reader } from './msgpack.js';
import { formatKey, sha256, verify } from './signature.js';
import { type Party, type Task, checkSize, label, list, maxRelays, parseTask } from './task.js';

/** The encoded parts of a bundle. The reader finds them by their lengths and does not decode or verify them. */
export interface BundleFrame {
  /** The task's canonical form, which the owner hashes and signs. */
  readonly canonical: Bytes;
  readonly owner: Bytes;
  readonly signature: Bytes;
  /** The signed key list of each party, without its keys. */
  readonly keyLists: readonly Bytes[];
  /** The first epoch whose keys it has. */
  readonly first: number;
  /** Each party's keys of the block, concatenated, and their path to the root in its key list. */
  readonly blocks: readonly { readonly keys: Bytes; readonly path: Bytes }[];
}

export interface Bundle extends BundleFrame {
  readonly task: Task;
}

/** The maximum number of key lists: one for each relay, one for the verifier and one for the issuer. */
const maxKeyLists = maxRelays + 2;

/** Reads the encoded parts of a bundle. @throws FormatError */
export function readFrame(r: Reader): BundleFrame {
  r.array(6);
  const [canonical, owner, signature] = [checkSize(r.bin()), r.bin(32), r.bin(64)];
  return { canonical, owner, signature, keyLists: list(r, () => r.bin(), maxKeyLists), first: r.uint(),
    blocks: list(r, () => (r.array(2), { keys: r.bin(), path: r.bin() }), maxKeyLists) };
}

/** Splits a bundle into its encoded parts. @throws DoonaError `task-refused` if the bytes are not a bundle */
export function parseFrame(input: Bytes): BundleFrame {
  return orRefused('bundle', () => {
    const r = new Reader(input);
    const frame = readFrame(r);
    r.end();
    return frame;
  });
}

/** Decodes the task of a bundle. @throws DoonaError `task-refused` if its encoding is not canonical */
export function withTask(frame: BundleFrame): Bundle {
  return { ...frame, task: orRefused('task', () => parseTask(frame.canonical)) };
}

/** Decodes a bundle and verifies nothing. @throws DoonaError `task-refused` if the bytes are not a canonical bundle */
export function parseBundle(input: Bytes): Bundle {
  return withTask(parseFrame(input));
}

/** Checks that `id` is the SHA-256 of the task. @throws DoonaError `task-refused` */
export async function checkId({ canonical }: BundleFrame, id: Bytes): Promise<void> {
  if (!equal(await sha256(canonical), id)) throw taskRefused('its hash is not the id in its address');
}

/** Checks that the given owner signed the task. @throws DoonaError `task-refused` */
export async function checkOwner(bundle: BundleFrame, owner: Bytes): Promise<void> {
  if (!equal(bundle.owner, owner)) {
    throw taskRefused(`its owner is ${formatKey(bundle.owner)}, want the key in the option owner`);
  }
  if (!(await verify(owner, 'task', bundle.canonical, bundle.signature))) {
    throw taskRefused("the owner's signature is wrong");
  }
}

/** The HPKE keys of one block of epochs, from the epoch `first` on. The verifier is the last hop. */
export interface Keys {
  readonly first: number;
  /** `hops[hop][i]` is the key of epoch `first + i`. */
  readonly hops: readonly (readonly Bytes[])[];
}

/**
 * Checks and returns the X25519 keys of every hop. The task contains the hash of each key list, and the party that
 * holds the keys has signed the list. The list contains the Merkle root of its keys, and a path leads there from those
 * of the block. So nobody can give one client other keys to recognize its reports.
 * @throws DoonaError `task-refused`
 */
export async function checkKeys(bundle: Bundle): Promise<Keys> {
  const { relays, verifier, kem } = bundle.task;
  const parties = [...relays, verifier];
  const want = parties.length + Number(withTokens(bundle.task));
  const { keyLists, blocks, first } = bundle;
  if (keyLists.length !== want || blocks.length !== want) {
    throw taskRefused(`it carries ${keyLists.length} key lists and ${blocks.length} blocks of keys, want ${want}`);
  }
  const hops = await Promise.all(parties.map((party, hop) => partyKeys(bundle, hop, party, kem, keySize)));
  return { first, hops };
}

/** Whether the task requires a token in each report. */
export function withTokens(task: Task): boolean {
  return task.clients.kind === 'token';
}

/**
 * Returns the ids of the issuer's token keys, one per epoch of the block, for a task with tokens. With `verified` it
 * does not verify the list's signature: doona-full.wasm has done so, and WebCrypto may lack Ed25519.
 * @throws DoonaError `task-refused`
 */
export async function checkIssuer(bundle: Bundle, verified = false): Promise<readonly Bytes[]> {
  // An issuer can fill a batch with fake clients around one real client. An owner who is also the issuer could do so.
  if (equal(bundle.task.clients.issuer.signKey, bundle.owner)) {
    throw taskRefused('its owner is also the issuer of tokens; they must be two parties');
  }
  return partyKeys(bundle, bundle.task.relays.length + 1, bundle.task.clients.issuer, 'rsabssa-2048', 32, verified);
}

/** Returns a party's keys of the block. It checks the list's hash and signature before it decodes anything. */
async function partyKeys(bundle: Bundle, hop: number, party: Party, kem: string, size: number,
  verified = false): Promise<readonly Bytes[]> {
  const { first, task: { epochs: { count } } } = bundle;
  const [keyList, signature] = orRefused('key list', () => {
    const r = new Reader(bundle.keyLists[hop]!);
    r.array(2);
    const parts = [r.bin(), r.bin(64)] as const;
    r.end();
    return parts;
  });
  if (!equal(await sha256(keyList), party.keyList)) {
    throw taskRefused(`the key list of hop ${hop} is not the one that the task names`);
  }
  if (!verified && !(await verify(party.signKey, 'keys', keyList,
    signature))) throw taskRefused(`the signature of the key list of hop ${hop} is wrong`);
  const root = orRefused('key list', () => {
    const r = new Reader(keyList);
    r.array(5);
    label(r, 'doona-keys');
    if (r.str() !== kem || r.uint() !== count) throw new FormatError(`want ${count} keys for ${kem}`);
    const root = r.bin(32);
    r.end();
    return root;
  });
  const { keys, path } = bundle.blocks[hop]!;
  if (first % blockSize !== 0 || first >= count || keys.length !== size * Math.min(blockSize, count - first)) {
    throw taskRefused(`the keys of hop ${hop} are not those of one block`);
  }
  if (!equal(await rootOf(keys, path, blockOf(first), blockOf(count - 1)), root)) {
    throw taskRefused(`the keys of hop ${hop} are not those of its key list`);
  }
  // A relay deletes a key after its epoch. A key shared by two epochs would stay able to open the earlier reports.
  const out: Bytes[] = [];
  for (let at = 0; at < keys.length; at += size) {
    const key = keys.subarray(at, at + size);
    if (out.some((other) => equal(other, key))) throw taskRefused(`the keys of hop ${hop} are not those of one block`);
    out.push(key);
  }
  return out;
}

/**
 * Returns the root of the Merkle tree in which `path` belongs to the leaf at `index`; empty if no path has its length
 * (RFC 9162, section 2.1.3.2). `last` is the index of the last leaf.
 */
async function rootOf(leaf: Bytes, path: Bytes, index: number, last: number): Promise<Bytes> {
  let node = await sha256(concat(Uint8Array.of(0), leaf));
  let at = 0;
  for (; last > 0; index >>= 1, last >>= 1) {
    if (index % 2 === 0 && index === last) continue; // It has no sibling.
    const sibling = path.subarray(at, at += 32);
    node = await sha256(index % 2 ? concat(Uint8Array.of(1), sibling, node) : concat(Uint8Array.of(1), node, sibling));
  }
  return at === path.length ? node : new Uint8Array();
}

function orRefused<T>(what: string, read: () => T): T {
  try {
    return read();
  } catch (cause) {
    throw taskRefused(`its ${what} is malformed: ${(cause as Error).message}`, cause);
  }
}
