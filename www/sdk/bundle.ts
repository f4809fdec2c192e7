/**
 * The bundle that a relay serves: a signed task and the key lists that the task names by hash. The SDK trusts nothing
 * in it until signatures and hashes tie it to the owner's key and the task id in the page's options.
 * @module
 */

import { type Bytes, equal } from './bytes.js';
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
  readonly keyLists: readonly Bytes[];
}

export interface Bundle extends BundleFrame {
  readonly task: Task;
}

/** The maximum number of key lists: one for each relay, one for the verifier and one for the issuer. */
const maxKeyLists = maxRelays + 2;

/** Reads the encoded parts of a bundle. @throws FormatError */
export function readFrame(r: Reader): BundleFrame {
  r.array(4);
  const [canonical, owner, signature] = [checkSize(r.bin()), r.bin(32), r.bin(64)];
  return { canonical, owner, signature, keyLists: list(r, () => r.bin(), maxKeyLists) };
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

/** All HPKE keys of a task: `keys[hop][epoch]`. The verifier is the last hop. */
export type Keys = readonly (readonly Bytes[])[];

/**
 * Checks and returns the X25519 keys of every hop. The task contains the hash of each key list, and the party that
 * holds the keys has signed the list. So nobody can give one client other keys to recognize its reports.
 * @throws DoonaError `task-refused`
 */
export async function checkKeys(bundle: Bundle): Promise<Keys> {
  const parties = [...bundle.task.relays, bundle.task.verifier];
  const lists = parties.length + Number(withTokens(bundle.task));
  if (bundle.keyLists.length !== lists) {
    throw taskRefused(`it carries ${bundle.keyLists.length} key lists, want ${lists}`);
  }
  return Promise.all(parties.map((party, hop) => partyKeys(bundle, hop, party, bundle.task.kem, keySize)));
}

/** Whether the task requires a token in each report. */
export function withTokens(task: Task): boolean {
  return task.clients.kind === 'token';
}

/**
 * Returns the ids of the issuer's token keys, one per epoch, for a task with tokens. With `verified` it does not verify
 * the list's signature: doona-full.wasm has done so, and WebCrypto may lack Ed25519.
 * @throws DoonaError `task-refused`
 */
export async function checkIssuer(bundle: Bundle, verified = false): Promise<readonly Bytes[]> {
  // An issuer can fill a batch with fake clients around one real client. An owner who is also the issuer could do so.
  if (equal(bundle.task.clients.issuer.signKey, bundle.owner)) {
    throw taskRefused('its owner is also the issuer of tokens; they must be two parties');
  }
  return partyKeys(bundle, bundle.task.relays.length + 1, bundle.task.clients.issuer, 'rsabssa-2048', 32, verified);
}

async function partyKeys(bundle: Bundle, hop: number, party: Party, kem: string, size: number,
  verified = false): Promise<readonly Bytes[]> {
  const [keyList, signature] = orRefused('key list', () => {
    const r = new Reader(bundle.keyLists[hop]!);
    r.array(2);
    const parts = [r.bin(), r.bin(64)] as const;
    r.end();
    return parts;
  });
  if (!equal(await sha256(keyList), party.keyList)) {
    throw taskRefused(`the keys of hop ${hop} are not those that the task names`);
  }
  if (!verified && !(await verify(party.signKey, 'keys', keyList,
    signature))) throw taskRefused(`the signature of the keys of hop ${hop} is wrong`);
  return orRefused('key list', () => {
    const r = new Reader(keyList);
    r.array(4);
    label(r, 'doona-keys');
    if (r.str() !== kem) throw new FormatError(`want keys for ${kem}`);
    const { count } = bundle.task.epochs;
    const keys = list(r, () => r.bin(size), count);
    r.end();
    // A relay deletes a key after its epoch. A key shared by two epochs would stay able to open the earlier reports.
    const distinct = new Set(keys.map((key) => String.fromCharCode(...key)));
    if (distinct.size !== count) throw new FormatError('want one key per epoch');
    return keys;
  });
}

function orRefused<T>(what: string, read: () => T): T {
  try {
    return read();
  } catch (cause) {
    throw taskRefused(`its ${what} is malformed: ${(cause as Error).message}`, cause);
  }
}
