/**
 * Tests the SDK with the vectors of testdata/v1, which also test the Go implementation (testdata/README.md).
 * @module
 */

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';

import { blind, parseKey as parseTokenKey } from './blind.js';
import { type Bytes, concat, equal, fromHex, toBase64url } from './bytes.js';
import { checkId, checkIssuer, checkKeys, checkOwner, parseBundle, withTokens } from './bundle.js';
import { DoonaError } from './errors.js';
import { Module, ModuleError } from './module.js';
import { FormatError, Reader } from './msgpack.js';
import { aadOf, infoOf } from './seal.js';
import { allowsOrigin } from './origin.js';
import { formatKey, parseKey, sha256, verify } from './signature.js';
import { readStatements } from './statement.js';
import { withSigners } from './stream.js';
import { parseTask } from './task.js';
import { challengeOf } from './token.js';

// The paths are relative to www/, where node --test runs.
const vectors = '../testdata/v1/';
const built = '../build/www/';

function read(name: string): any {
  return JSON.parse(readFileSync(vectors + name, 'utf8'));
}

function hex(text: string): Bytes {
  const bytes = fromHex(text, text.length / 2);
  assert.ok(bytes, 'hexadecimal');
  return bytes;
}

/** Returns the invalid vectors of a kind, which the SDK must refuse: their names and contents. */
function bad(kind: string): [name: string, fault: any][] {
  const names = readdirSync(vectors).filter((name) => name.startsWith(`bad_${kind}_`));
  assert.ok(names.length > 5, `${names.length} vectors of ${kind}`);
  return names.map((name) => [name, read(name)]);
}

async function compile(pattern: RegExp): Promise<WebAssembly.Module> {
  const name = readdirSync(built).find((file) => pattern.test(file))!;
  return WebAssembly.compile(readFileSync(built + name));
}

const compiled = await compile(/^doona-[0-9a-f]+\.wasm$/);
const browser = await Module.start(compiled);
const full = await Module.start(await compile(/^doona-full-[0-9a-f]+\.wasm$/));

/**
 * Returns a getRandomValues that gives `bytes` to the module's randomizer, which asks for 1024 bytes at a time. Other
 * callers get zeros.
 */
function yielding(bytes: Bytes): (into: Uint8Array) => Uint8Array {
  let rest = bytes;
  return (into) => {
    into.fill(0);
    if (into.length === 1024) {
      into.set(rest.subarray(0, 1024));
      rest = rest.subarray(1024);
    }
    return into;
  };
}

for (const file of readdirSync(vectors).filter((name) => name.endsWith('.json'))) {
  const vector = read(file);
  if (!Array.isArray(vector) || !vector[0].reports) continue;
  test(`${file}: on the vector's bytes the module writes the vector's slots`, async (t) => {
    for (const { name, unproven, task, bytes, reports } of vector) {
      if (unproven) continue; // A module refuses unproven tasks; bad_*.json and wasm/vectors_test.go test that.
      const generator = t.mock.method(crypto, 'getRandomValues', yielding(hex(bytes)));
      const module = await Module.start(compiled);
      const handle = module.open(hex(task));
      const size = parseTask(hex(task)).slots.messageBytes;
      for (const { value, slots } of reports) {
        const want = slots.map((lane: string[]) => lane.map((m) => (m ? `01${m}` : '00'.repeat(1 + size))));
        const got = module.randomize(handle, Float64Array.from(value), 1 + size);
        assert.deepEqual(got.map((lane) => lane.map((slot) => Buffer.from(slot).toString('hex'))), want, name);
      }
      generator.mock.restore();
    }
  });
}

test('task.json: canonical forms parse, and hash to their ids', async () => {
  for (const { canonical, document, id } of read('task.json')) {
    const task = parseTask(hex(canonical));
    assert.equal(task.name, document.name);
    assert.equal(task.query, document.query);
    assert.deepEqual(Object.fromEntries(task.params), document.params);
    assert.deepEqual(task.claim, { total: undefined, assumption: 'min-honest', ...document.claim });
    const { stream, noise } = task;
    const rotations = stream?.rotations.map(({ old, key, signature }) => (
      { old: formatKey(old), new: formatKey(key), signature: toBase64url(signature) }));
    assert.deepEqual(stream && { ...stream, rotations, before: Buffer.from(stream.before).toString('hex') },
      document.stream && { before: '', rotations: [], ...document.stream });
    const law = document.noise;
    assert.deepEqual(noise, law && { kind: law.kind, cells: law.cells, batches: law.batches,
      ...(law.rest !== undefined && { rest: true }) });
    const { events } = task.epochs;
    assert.deepEqual(events && { limit: `${events.most}/${events.window}`, default: events.usual }, document.events);
    assert.deepEqual(task.slots, { average: 0, ...document.slots });
    assert.deepEqual(task.clients.origins, document.clients.origins ?? []);
    assert.equal(task.relays.length, document.relays.length);
    assert.ok(equal(await sha256(hex(canonical)), hex(id)));
  }
});

test('origin.json: pages of listed origins may report; without a list, all may', () => {
  const { listed, answers } = read('origin.json');
  for (const { origin, allowed } of answers) assert.equal(allowsOrigin(listed, origin), allowed, origin);
  assert.equal(allowsOrigin([], 'https://any.example'), true);
});

test("rotation.json: a party's key rotation is valid in one stream only", async () => {
  for (const { root, old, new: key, signature } of read('rotation.json')) {
    assert.ok(await verify(hex(old), 'rotation', concat(hex(root), hex(key)), hex(signature)));
    assert.ok(!(await verify(hex(old), 'rotation', concat(hex(key), hex(root)), hex(signature))));
  }
});

test('task.json: the module refuses unsupported parts by name', () => {
  const names = [];
  for (const { canonical, document } of read('task.json')) {
    const field = document.noise ? 'noise' : document.stream?.allow.length > 0 ? 'stream.allow' : undefined;
    if (!field) continue;
    names.push(field);
    const refused = (error: unknown) => error instanceof ModuleError && error.field === field &&
      /not supported yet|none for protocol/.test(error.message);
    assert.throws(() => browser.open(hex(canonical)), refused);
  }
  assert.deepEqual(names, ['stream.allow', 'noise', 'noise', 'noise', 'noise']);
});

test('signature.json: signatures verify for their own purpose only', async () => {
  for (const { purpose, public: key, body, signature } of read('signature.json')) {
    for (const tried of ['task', 'keys'] as const) {
      assert.equal(await verify(hex(key), tried, hex(body), hex(signature)), tried === purpose);
    }
  }
});

for (const [name, block] of [['bundle', 0], ['block', 2]] as const) {
  test(`${name}.json: every check passes`, async () => {
    const { bundle, owner, id } = read(`${name}.json`);
    const parsed = parseBundle(hex(bundle));
    if (id) await checkId(parsed, hex(id));
    await checkOwner(parsed, parseKey(owner)!);
    const keys = await checkKeys(parsed);
    const { relays, epochs: { count } } = parsed.task;
    assert.equal(keys.first, 8 * block);
    const inBlock = Math.min(8, count - 8 * block);
    assert.deepEqual(keys.hops.map((hop) => hop.length), [...relays, 'verifier'].map(() => inBlock));
    if (withTokens(parsed.task)) assert.equal((await checkIssuer(parsed)).length, keys.hops[0]!.length);
  });
}

test('slot.json: info and aad are the same as in Go', async () => {
  const slot = read('slot.json').find((s: any) => s.kem === 'x25519');
  const id = await sha256(hex(slot.task));
  assert.deepEqual(await infoOf(id, Number(slot.epoch), Number(slot.hop), hex(slot.public)), hex(slot.info));
  assert.deepEqual(aadOf(Number(slot.lane), Number(slot.kind)), hex(slot.aad));
});

test('token.json: challenges, keys and tokens are the same as in Go', async () => {
  for (const { task, epoch, challenge, key, token } of read('token.json')) {
    const id = await sha256(hex(task));
    assert.deepEqual(await challengeOf(parseTask(hex(task)), id, epoch), hex(challenge));
    const imported = await parseTokenKey(hex(key));
    const bytes = hex(token);
    const valid = crypto.subtle.verify({ name: 'RSA-PSS', saltLength: 48 }, imported, bytes.subarray(98),
      bytes.subarray(0, 98));
    assert.equal(await valid, true);
    assert.deepEqual(bytes.subarray(34, 66), await sha256(hex(challenge)));
    const { request, finalize } = await blind(hex(key), await sha256(hex(key)), hex(challenge));
    assert.equal(request.length, 259);
    assert.equal(request[2], (await sha256(hex(key)))[31]);
    await assert.rejects(() => finalize(bytes.subarray(98)), 'another request\'s signature');
    await assert.rejects(() => blind(hex(key), id, hex(challenge)), /not the one/);
  }
});

for (const [name, { key }] of bad('token_key')) {
  test(`${name}: refused`, () => {
    assert.throws(() => parseTokenKey(hex(key)), /2048 bits/);
  });
}

for (const [name, { task, expect }] of bad('task')) {
  test(`${name}: refused by TypeScript where the encoding is at fault, and by the module always`, () => {
    if (expect === 'encoding') assert.throws(() => parseTask(hex(task)), FormatError);
    const field = expect.startsWith('field:') ? expect.slice('field:'.length) : undefined;
    assert.throws(() => browser.open(hex(task)), (error) => error instanceof ModuleError && error.field === field);
  });
}

for (const [name, { bundle, owner }] of [...bad('bundle'), ...bad('block')]) {
  test(`${name}: refused on both paths`, async () => {
    const key = parseKey(owner)!;
    await assert.rejects(async () => {
      const parsed = parseBundle(hex(bundle));
      await checkOwner(parsed, key);
      await checkKeys(parsed);
      await checkIssuer(parsed);
    }, (error) => error instanceof DoonaError && error.code === 'task-refused');
    const { canonical } = parseBundle(hex(read(name.startsWith('bad_block') ? 'block.json' : 'bundle.json').bundle));
    const id = await sha256(canonical);
    assert.throws(() => full.openBundle(key, id, hex(bundle)), ModuleError);
  });
}

/**
 * Returns who may sign after a stream's statements. Throws if the statements or the signers of the stream's tasks are
 * invalid.
 */
async function authorityOf(v: any) {
  const recovery = v.recovery === '' ? undefined : hex(v.recovery);
  const authority = await readStatements(new Reader(hex(v.statements)), { id: hex(v.root), owner: hex(v.owner),
    recovery });
  const links = v.tasks.map(({ id, owner }: any) => ({ id: hex(id), owner: hex(owner) }));
  const foreign = withSigners<{ id: Bytes; owner: Bytes }>(links, authority).findIndex(({ owner }, i) =>
    !equal(owner, links[i].owner));
  if (foreign >= 0) throw new FormatError(`position ${foreign} is another owner's`);
  return authority;
}

test('statement.json: who signs next', async () => {
  for (const v of read('statement.json')) {
    const { era, hashes, about, key, stopped } = await authorityOf(v);
    assert.deepEqual([era, Math.max(0, ...hashes.keys()), about?.position ?? 0], [v.era, v.number, v.position]);
    assert.deepEqual([key, stopped], [hex(v.key), v.key === '']);
  }
});

for (const [name, v] of bad('statement')) {
  test(`${name}: ${v.description}`, () => assert.rejects(authorityOf(v)));
}
