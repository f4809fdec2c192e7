/**
 * Tests which keys of a block the SDK accepts in a bundle, and that each refusal says what is wrong.
 * @module
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { checkIssuer, checkKeys, parseBundle } from './bundle.js';
import { type Bytes, concat, joined, utf8 } from './bytes.js';
import { DoonaError } from './errors.js';
import { array, bin, uint } from './msgpack.js';
import { sha256 } from './signature.js';

const text = (value: string) => concat(Uint8Array.of(0xa0 | value.length), utf8(value));
const random = (size: number) => crypto.getRandomValues(new Uint8Array(size));

/** The parties of a task: two relays, the verifier and the issuer. */
const hops = [0, 1, 2, 3];
const kems = hops.map((hop) => (hop === 3 ? 'rsabssa-2048' : 'x25519'));
const pairs = (await Promise.all([...hops, 4].map(() =>
  crypto.subtle.generateKey('Ed25519', true, ['sign', 'verify'])))) as CryptoKeyPair[];
const signKeys = await Promise.all(pairs.map(async ({ publicKey }) =>
  new Uint8Array(await crypto.subtle.exportKey('raw', publicKey))));

async function sign(hop: number, body: Bytes, purpose = 'keys'): Promise<Bytes> {
  const signed = concat(utf8(`doona-v1 ${purpose}\0`), body);
  return new Uint8Array(await crypto.subtle.sign('Ed25519', pairs[hop]!.privateKey, signed));
}

/** Returns a Merkle root as in RFC 9162, section 2.1.1, and the proof for a leaf as in section 2.1.3.1. */
async function prove(leaves: readonly Bytes[], index: number): Promise<{ root: Bytes; path: Bytes }> {
  if (leaves.length === 1) return { root: await sha256(concat(Uint8Array.of(0), leaves[0]!)), path: new Uint8Array() };
  const half = 2 ** Math.floor(Math.log2(leaves.length - 1));
  const left = await prove(leaves.slice(0, half), index < half ? index : 0);
  const right = await prove(leaves.slice(half), index < half ? 0 : index - half);
  return { root: await sha256(concat(Uint8Array.of(1), left.root, right.root)),
    path: index < half ? concat(left.path, right.root) : concat(right.path, left.root) };
}

/** What a test changes of a bundle. */
interface Changes {
  readonly count?: number;
  readonly block?: number;
  /** Changes the keys of hop 1 before they are in a tree. */
  readonly keys?: (keys: Bytes[]) => void;
  /** Changes the list of hop 1, which the party then signs and the task names. */
  readonly list?: Partial<Record<'label' | 'kem', string> & Record<'version' | 'count', number>>;
  /** Changes hop 1's list after the task named it. */
  readonly body?: (body: Bytes) => Bytes;
  readonly signature?: (signature: Bytes) => Bytes;
  readonly lists?: (lists: Bytes[]) => Bytes[];
  readonly first?: number;
  /** Changes the keys and path that hop 1's block has. */
  readonly served?: (keys: Bytes, path: Bytes) => readonly [keys: Bytes, path: Bytes];
  readonly blocks?: (blocks: Bytes[]) => Bytes[];
}

/** Returns a bundle with the keys of one block. */
async function bundleOf({ count = 40, block = 2, first = 8 * block, ...change }: Changes): Promise<Bytes> {
  const parties = await Promise.all(hops.map(async (hop) => {
    const mine = hop === 1 ? change : {};
    const keys = Array.from({ length: count }, () => random(32));
    mine.keys?.(keys);
    const leaves = Array.from({ length: Math.ceil(count / 8) }, (_, i) => joined(keys.slice(8 * i, 8 * i + 8)));
    const { root, path } = await prove(leaves, block);
    const { label = 'doona-keys', version = 1, kem = kems[hop]!, count: total = count } = mine.list ?? {};
    const body = array([text(label), uint(version), text(kem), uint(total), bin(root)]);
    const served = (mine.body ?? ((same) => same))(body);
    const signature = (mine.signature ?? ((same) => same))(await sign(hop, served));
    const [some, way] = (mine.served ?? ((...same) => same))(leaves[block]!, path);
    return { list: bin(array([bin(served), bin(signature)])), block: array([bin(some), bin(way)]),
      encoded: array([text(''), bin(signKeys[hop]!), bin(await sha256(body))]) };
  }));
  const [one, two, verifier, issuer] = parties.map(({ encoded }) => encoded) as [Bytes, Bytes, Bytes, Bytes];
  const canonical = array([text('doona-task'), uint(1), text('n'), text('q'), text('p'), text('r'), array([]),
    array([text('0'), text('1'), uint(0), uint(0), uint(0)]),
    array([text('1'), text('1'), array([]), text('min-honest')]),
    array([uint(1), text('1'), uint(1)]), array([text('full'), uint(1), uint(1), uint(1), uint(0)]),
    array([uint(1), uint(1), uint(count)]), array([text('token'), uint(1), issuer, array([])]), array([one, two]),
    verifier, text('x25519'), array([]), array([])]);
  return array([bin(canonical), bin(signKeys[4]!), bin(await sign(4, canonical, 'task')),
    array((change.lists ?? ((same) => same))(parties.map(({ list }) => list))), uint(first),
    array((change.blocks ?? ((same) => same))(parties.map((party) => party.block)))]);
}

test('the keys of every block lead to the root, for any number of epochs', async () => {
  for (const count of [1, 7, 8, 9, 16, 17, 24, 40, 49, 100, 365]) {
    for (let block = 0; 8 * block < count; block++) {
      const kept: Bytes[] = [];
      const bundle = parseBundle(await bundleOf({ count, block, keys: (keys) => kept.push(...keys) }));
      const keys = await checkKeys(bundle);
      assert.equal(keys.first, 8 * block);
      assert.deepEqual(keys.hops[1], kept.slice(8 * block, 8 * block + 8), `block ${block} of ${count} epochs`);
      assert.equal(keys.hops.length, 3);
      assert.equal((await checkIssuer(bundle)).length, Math.min(8, count - 8 * block));
    }
  }
});

const flip = (at: number) => (bytes: Bytes) => {
  const out = bytes.slice();
  out[at < 0 ? out.length + at : at]! ^= 1;
  return out;
};
const paths = (change: (path: Bytes) => Bytes): Changes => ({ served: (keys, path) => [keys, change(path)] });
const keys = (change: (keys: Bytes) => Bytes): Changes => ({ served: (some, path) => [change(some), path] });
const [notListed, notBlock, malformed] = [/the keys of hop 1 are not those of its key list/,
  /the keys of hop \d are not those of one block/, /its key list is malformed/];

const refusals: Readonly<Record<string, readonly [Changes, RegExp]>> = {
  'another key': [keys(flip(77)), notListed],
  'the first node of the path': [paths(flip(0)), notListed],
  'the last node of the path': [paths(flip(-1)), notListed],
  'a path without its last node': [paths((path) => path.subarray(32)), notListed],
  'a path without its first node': [paths((path) => path.subarray(0, -32)), notListed],
  'a path with a node more': [paths((path) => concat(path, random(32))), notListed],
  'a path with a byte more': [paths((path) => concat(path, random(1))), notListed],
  'a path without a byte': [paths((path) => path.subarray(0, -1)), notListed],
  'no path': [paths(() => new Uint8Array()), notListed],
  'a path where there is one leaf': [{ count: 8, block: 0, ...paths(() => random(32)) }, notListed],
  'the keys in another order': [keys((some) => concat(some.subarray(32), some.subarray(0, 32))), notListed],
  'the next block': [{ first: 24 }, /the keys of hop \d are not those of its key list/],
  'an epoch inside a block': [{ first: 17 }, notBlock],
  'an epoch after the last': [{ first: 40 }, notBlock],
  'a block after the last': [{ first: 2 ** 40 }, notBlock],
  'a key too few': [keys((some) => some.subarray(32)), /hop 1 are not those of one block/],
  'a byte too many': [keys((some) => concat(some, random(1))), /hop 1 are not those of one block/],
  'no keys': [keys(() => new Uint8Array()), /hop 1 are not those of one block/],
  'all keys': [{ count: 16, block: 0, served: (some) => [concat(some, some), new Uint8Array()] },
    /hop 1 are not those of one block/],
  'one key for two epochs': [{ keys: (all) => all[17] = all[23]! }, /the keys of hop 1 are not those of one block/],
  'another count': [{ list: { count: 41 } }, /malformed: want 40 keys for x25519/],
  'another KEM': [{ list: { kem: 'mlkem768x25519' } }, /malformed: want 40 keys for x25519/],
  'another label': [{ list: { label: 'doona-task' } }, malformed],
  'another version': [{ list: { version: 2 } }, malformed],
  'a list that the task does not name': [{ body: flip(-1) },
    /the key list of hop 1 is not the one that the task names/],
  'a wrong signature': [{ signature: flip(5) }, /the signature of the key list of hop 1 is wrong/],
  'a list too few': [{ lists: (lists) => lists.slice(1) }, /3 key lists and 4 blocks of keys, want 4/],
  'a list too many': [{ lists: (lists) => [...lists, lists[0]!] }, /5 key lists and 4 blocks of keys, want 4/],
  'the keys of a party too few': [{ blocks: (blocks) => blocks.slice(1) }, /4 key lists and 3 blocks of keys, want 4/],
  'the keys of a party too many': [{ blocks: (blocks) => [...blocks, blocks[0]!] },
    /4 key lists and 5 blocks of keys, want 4/],
  'nothing but a task': [{ lists: () => [], blocks: () => [] }, /0 key lists and 0 blocks of keys, want 4/],
};

for (const [name, [changes, message]] of Object.entries(refusals)) {
  test(`refused: ${name}`, async () => {
    const refused = (error: unknown) => error instanceof DoonaError && error.code === 'task-refused' &&
      message.test(error.message);
    await assert.rejects(async () => checkKeys(parseBundle(await bundleOf(changes))), refused);
  });
}

test('refused: an empty block after the last', async () => {
  const bundle = parseBundle(await bundleOf({ block: 4, first: 40 }));
  const blocks = bundle.blocks.map(({ path }) => ({ keys: new Uint8Array(), path }));
  await assert.rejects(checkKeys({ ...bundle, blocks }), notBlock);
});

test("the issuer's keys are checked in the same way", async () => {
  const bundle = parseBundle(await bundleOf({}));
  assert.equal((await checkIssuer(bundle)).length, 8);
  const blocks = bundle.blocks.slice(0, 3);
  const { keys: some, path } = bundle.blocks[3]!;
  for (const block of [{ keys: flip(0)(some), path }, { keys: some, path: flip(0)(path) }]) {
    await assert.rejects(checkIssuer({ ...bundle, blocks: [...blocks, block] }), /the keys of hop 3 are not those/);
  }
  await assert.rejects(checkIssuer({ ...bundle, owner: signKeys[3]! }), /its owner is also the issuer/);
});
