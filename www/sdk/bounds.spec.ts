/**
 * Tests that hostile input costs no more memory and time than its size, and that the SDK decodes a task only after it
 * has checked the owner's signature.
 * @module
 */

import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';

import { type Bytes, bigEndian, concat, utf8 } from './bytes.js';
import { type Engine, localEngine } from './engine.js';
import { DoonaError } from './errors.js';
import { FormatError, Reader, array, bin, uint } from './msgpack.js';
import { readBody } from './response.js';
import { readStatements } from './statement.js';
import { maxTask, parseTask } from './task.js';

const text = (value: string) => concat(Uint8Array.of(0xa0 | value.length), utf8(value));
const many = (count: number, one: Uint8Array) => array(Array.from({ length: count }, () => one));
const head = (lead: number, count: number) => concat(Uint8Array.of(lead), bigEndian(count, 4));

test('an array longer than the remaining bytes is refused at its head', () => {
  for (const read of [(r: Reader) => r.arrayLength(), (r: Reader) => r.raw()]) {
    for (const count of [2 ** 32 - 1, 1 << 16]) {
      const r = new Reader(concat(head(0xdd, count), new Uint8Array(99)));
      assert.throws(() => read(r), (error) => error instanceof FormatError && error.message === 'truncated');
      assert.equal(r.at, 5);
    }
  }
  assert.equal(new Reader(concat(Uint8Array.of(0x92), new Uint8Array(2))).arrayLength(2), 2);
  assert.throws(() => new Reader(concat(Uint8Array.of(0x93), new Uint8Array(3))).arrayLength(2), /want at most 2/);
});

test('skipping decodes and stores nothing at any depth, and checks every announced length', (t) => {
  const decoded = t.mock.method(TextDecoder.prototype, 'decode');
  for (const value of [new Uint8Array(1 << 20).fill(0x91).fill(0, (1 << 20) - 1), many(1 << 16, text('')),
    array([uint(2 ** 32), bin(new Uint8Array(300)), text('x'), array([])])]) {
    const r = new Reader(concat(value, uint(7)));
    assert.equal(r.raw().length, value.length);
    assert.equal(r.uint(), 7);
  }
  assert.equal(decoded.mock.callCount(), 0);
  const inner = many(3, array([uint(1)]));
  for (const end of [1, 2, inner.length - 1]) {
    assert.throws(() => new Reader(inner.subarray(0, end)).raw(), FormatError);
  }
});

/** Returns a canonical task in which the given encoded lists replace empty ones. */
function taskOf({ params = array([]), origins = array([]), relays = array([]), stream = array([]),
  noise = array([]) } = {}): Bytes {
  const party = array([text(''), bin(new Uint8Array(32)), bin(new Uint8Array(32))]);
  return array([text('doona-task'), uint(1), text('n'), text('q'), text('p'), text('r'), params,
    array([text('0'), text('1'), uint(0), uint(0), uint(0)]), array([text('1'), text('1'), array([]), text('min-honest')]),
    array([uint(1), text('1'), uint(1)]), array([text('full'), uint(1), uint(1), uint(1), uint(0)]),
    array([uint(1), uint(1), uint(1)]), array([text('address'), uint(1), party, origins]), relays, party,
    text('x25519'), stream, noise]);
}

const party = array([text(''), bin(new Uint8Array(32)), bin(new Uint8Array(32))]);
const place = (allow: Bytes, rotations: Bytes) => array([text('s'), uint(1), bin(new Uint8Array(32)), allow, rotations]);
const cells = (tables: Bytes) => array([text('cells'), uint(1), uint(1), tables, array([]), array([]), array([])]);

for (const [what, most, make] of [
  ['parameters', 4096, (n) => ({ params: many(n, array([text('k'), text('v')])) })],
  ['origins', 64, (n) => ({ origins: many(n, text('null')) })],
  ['relays', 8, (n) => ({ relays: many(n, party) })],
  ['parts that may change', 64, (n) => ({ stream: place(many(n, text('')), many(1, bin(new Uint8Array(128)))) })],
  ['rotations', 64, (n) => ({ stream: place(array([]), many(n, bin(new Uint8Array(128)))) })],
  ['tables', 65535, (n) => ({ noise: cells(many(n, array([]))) })],
  ['numbers of a table', 65535, (n) => ({ noise: cells(array([many(n, uint(0))])) })],
] as readonly [string, number, (n: number) => Parameters<typeof taskOf>[0]][]) {
  test(`a task has at most ${most} ${what}`, () => {
    parseTask(taskOf(make(most)));
    assert.throws(() => parseTask(taskOf(make(most + 1))), new RegExp(`want at most ${most}`));
  });
}

test('a task has at most 640 KiB; a longer one is not decoded', (t) => {
  const texts = t.mock.method(Reader.prototype, 'str');
  assert.throws(() => parseTask(new Uint8Array(maxTask + 1)), /want at most 655360/);
  assert.throws(() => parseTask(new Uint8Array(maxTask)), /want an array/);
  assert.equal(texts.mock.callCount(), 0);
});

test('statements have at most 256 bytes each, and there are at most 16', async () => {
  const root = { id: new Uint8Array(32), owner: new Uint8Array(32), recovery: undefined };
  const one = (size: number) => array([bin(new Uint8Array(size)), bin(new Uint8Array(64))]);
  const read = (value: Bytes) => readStatements(new Reader(value), root);
  await assert.rejects(read(many(17, one(9))), /want at most 16/);
  await assert.rejects(read(array([one(256 - 3 - 66 + 1)])), /a statement of 257 bytes, want at most 256/);
  await assert.rejects(read(array([one(256 - 3 - 66)])), /want an array/);
});

/** Returns the error of a call to an engine. Fails if the engine decoded a string or a flag of a task before it. */
async function refusal(t: TestContext, ask: (engine: Engine) => Promise<unknown>): Promise<string> {
  const [texts, flags] = [t.mock.method(Reader.prototype, 'str'), t.mock.method(Reader.prototype, 'flag')];
  try {
    await ask(localEngine());
    return 'accepted';
  } catch (error) {
    assert.ok(error instanceof DoonaError, String(error));
    assert.deepEqual([texts.mock.callCount(), flags.mock.callCount()], [0, 0], 'nothing is decoded');
    return error.message;
  } finally {
    t.mock.restoreAll();
  }
}

const key = (await crypto.subtle.generateKey('Ed25519', true, ['sign', 'verify'])) as CryptoKeyPair;
const owner = new Uint8Array(await crypto.subtle.exportKey('raw', key.publicKey));
const bundle = (canonical: Bytes, lists: Bytes, blocks = array([]), signature = new Uint8Array(64)) =>
  array([bin(canonical), bin(owner), bin(signature), lists, uint(0), blocks]);

test('a bundle is decoded only after its hash and signature are checked', async (t) => {
  const canonical = taskOf({ params: many(4096, array([text('k'), text('v')])) });
  const id = new Uint8Array(await crypto.subtle.digest('SHA-256', canonical));
  const open = (raw: Bytes, wanted: Bytes) => refusal(t, (engine) => engine.open({ bundle: raw, owner, id: wanted,
    module: 'browser' }));
  assert.match(await open(bundle(canonical, array([])), new Uint8Array(32)), /its hash is not the id/);
  assert.match(await open(bundle(canonical, array([])), id), /signature is wrong/);
  assert.match(await open(bundle(new Uint8Array(maxTask + 1), array([])), id), /want at most 655360/);
  assert.match(await open(bundle(canonical, many(11, bin(canonical))), id), /an array of 11, want at most 10/);
  assert.match(await open(bundle(canonical, many(4, text(''))), id), /want bytes/);
  const keys = array([bin(canonical), bin(canonical)]);
  assert.match(await open(bundle(canonical, array([]), many(10, keys)), id), /signature is wrong/);
  assert.match(await open(bundle(canonical, array([]), many(11, keys)), id), /an array of 11, want at most 10/);
  assert.match(await open(bundle(canonical, array([]), many(4, array([bin(canonical)]))), id), /want an array of 2/);
});

test('a stream is decoded only after its signature is checked, and its key lists never', async (t) => {
  const root = { id: new Uint8Array(32), owner, recovery: undefined, candidates: [], allow: [] };
  const read = (tasks: Bytes) => refusal(t, (engine) => engine.stream({ chain: array([tasks, array([])]), root, now: 0,
    fetched: 0 }));
  const canonical = taskOf();
  assert.match(await read(many(3, bundle(canonical, many(10, bin(new Uint8Array(1 << 16)))))), /signature is wrong/);
  assert.match(await read(many(1, bundle(canonical, many(1 << 20, text(''))))), /want at most 10/);
  assert.match(await read(many(1, bundle(canonical, array([]), many(1 << 20, array([]))))), /want at most 10/);
  assert.match(await read(many(1, bundle(canonical, many(10, text(''))))), /want bytes/);
  assert.match(await read(many(4097, bundle(new Uint8Array(), array([])))), /want at most 4096/);
});

test('a task that the newest task does not name is not decoded', async (t) => {
  const stream = (position: number, before: Bytes) =>
    array([text('s'), uint(position), bin(before), array([])]);
  const newest = taskOf({ stream: stream(1, new Uint8Array(32)) });
  const signed = concat(utf8('doona-v1 task\0'), newest);
  const signature = new Uint8Array(await crypto.subtle.sign('Ed25519', key.privateKey, signed));
  const tasks = array([bundle(taskOf({ stream: stream(0, new Uint8Array()) }), array([])),
    bundle(newest, array([]), array([]), signature)]);
  const arrays = t.mock.method(Reader.prototype, 'flag');
  const root = { id: new Uint8Array(32), owner, recovery: undefined, candidates: [], allow: [] };
  await assert.rejects(localEngine().stream({ chain: array([tasks, array([])]), root, now: 0, fetched: 0 }),
    /position 1 follows another task/);
  assert.equal(arrays.mock.callCount(), 2, 'only one task was decoded: its two flags');
});

test('a body is read up to its limit, into one buffer', async () => {
  let pulled = 0;
  const body = (size: number, part: number) => new Response(new ReadableStream({
    pull(controller) {
      if (pulled >= size) return controller.close();
      pulled += part;
      controller.enqueue(new Uint8Array(part).fill(pulled));
    },
  }, { highWaterMark: 0 }));
  for (const [size, part] of [[0, 1], [1, 1], [40_000, 1], [100_000, 50_000]] as const) {
    pulled = 0;
    const got = await readBody(body(size, part), 100_000);
    assert.deepEqual([got.length, got.at(-1)], [size, size ? pulled & 255 : undefined]);
    assert.ok(got.buffer.byteLength <= 100_000, 'the buffer is larger than the limit');
  }
  pulled = 0;
  await assert.rejects(readBody(body(1 << 30, 1000), 100_000), /longer than 100000 bytes/);
  assert.equal(pulled, 101_000);
});
