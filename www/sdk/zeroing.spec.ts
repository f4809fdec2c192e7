/**
 * Tests that the SDK overwrites a value and its plaintext messages with zeros everywhere it held them.
 * @module
 */

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';

import type { Bytes } from './bytes.js';
import { parseBundle } from './bundle.js';
import { type Engine, localEngine } from './engine.js';
import { DoonaError } from './errors.js';
import { type Lanes, Module, type ModuleName } from './module.js';
import { sha256 } from './signature.js';

// The paths are relative to www/, where node --test runs. test.sh writes the file of cases.
const built = '../build/www/';
const lines = readFileSync(process.env['DOONA_FUZZ_CASES'] ?? '../build/fuzzcases.jsonl', 'utf8').trim().split('\n');
const cases = lines.map((line) => JSON.parse(line));

function bytes(text: string): Bytes {
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
}

/**
 * A bundle with the keys of epoch 0, whose clients send several messages each: bytes as long as these do not appear in
 * memory by chance.
 */
const { bundle, owner } = cases
  .filter((c) => c.kind === 'bundle' && c.accept)
  .map((c) => ({ bundle: bytes(c.bytes), owner: bytes(c.owner) }))
  .find((c) => parseBundle(c.bundle).task.protocol === 'splitmix' && parseBundle(c.bundle).first === 0)!;

/** A value whose bytes differ, so that they do not appear in memory by chance. */
const secret = 1.2345678901234567;

/** Opens the bundle in a WASM module. Also returns the module's memory. */
async function open(name: ModuleName): Promise<{ engine: Engine; handle: number; memory: () => Uint8Array }> {
  const pattern = name === 'full' ? /^doona-full-[0-9a-f]+\.wasm$/ : /^doona-[0-9a-f]+\.wasm$/;
  const file = readdirSync(built).find((file) => pattern.test(file))!;
  const engine = localEngine();
  const { instantiate } = WebAssembly;
  let instance: WebAssembly.Instance | undefined;
  const kept = async (code: WebAssembly.Module,
    imports: WebAssembly.Imports) => (instance = await instantiate(code, imports));
  WebAssembly.instantiate = kept as typeof instantiate;
  try {
    await engine.start(name, await WebAssembly.compile(readFileSync(built + file)));
  } finally {
    WebAssembly.instantiate = instantiate;
  }
  const id = await sha256(parseBundle(bundle).canonical);
  const { handle } = (await engine.open({ bundle, owner, id, module: name }))!;
  const { memory } = instance!.exports as { memory: WebAssembly.Memory };
  return { engine, handle, memory: () => new Uint8Array(memory.buffer) };
}

const isZero = (bytes: Uint8Array) => bytes.every((byte) => byte === 0);
const raw = (value: Float64Array) => new Uint8Array(value.buffer).slice();

for (const name of ['browser', 'full'] as const) {
  test(`${name}: the value is zeroed, where it was given and on its way into the module`, async (t) => {
    const { engine, handle, memory } = await open(name);
    const value = Float64Array.of(secret);
    const written = raw(value);
    const parts: Uint8Array[] = [];
    const { set } = Uint8Array.prototype;
    const spy = t.mock.method(Uint8Array.prototype, 'set', function (this: Uint8Array, from: Uint8Array, at?: number) {
      if (Buffer.from(from).equals(written)) parts.push(from);
      return Reflect.apply(set, this, [from, at]);
    });
    await engine.submission(handle, 0, value);
    spy.mock.restore();
    assert.ok(isZero(raw(value)));
    assert.equal(parts.length, 1);
    assert.ok(isZero(parts[0]!));
    assert.equal(Buffer.from(memory()).indexOf(written), -1);
  });

  test(`${name}: a value that is refused is zeroed too`, async () => {
    const { engine, handle } = await open(name);
    const value = Float64Array.of(secret, secret);
    const refused = (error: unknown) => error instanceof DoonaError && error.code === 'invalid-value';
    await assert.rejects(() => engine.submission(handle, 0, value), refused);
    assert.ok(isZero(raw(value)));
  });
}

test('browser: messages are zeroed after sealing, in the page and in the module', async (t) => {
  const { engine, handle, memory } = await open('browser');
  let lanes: Lanes = [];
  let message: Bytes = new Uint8Array();
  let kept = 0;
  const { randomize } = Module.prototype;
  type Arguments = Parameters<typeof randomize>;
  const spy = t.mock.method(Module.prototype, 'randomize', function (this: Module, ...args: Arguments) {
    lanes = Reflect.apply(randomize, this, args) as Lanes;
    message = lanes[0]!.map((slot) => [...slot]).flat() as unknown as Bytes;
    kept = Buffer.from(memory()).indexOf(Buffer.from(message));
    return lanes;
  });
  await engine.submission(handle, 0, Float64Array.of(secret));
  spy.mock.restore();
  assert.ok(message.length > 10, `${message.length} bytes`);
  assert.equal(kept, -1);
  assert.ok(lanes.flat().every(isZero));
});

test('browser: the plaintext of a slot is zeroed after sealing', async (t) => {
  const { engine, handle } = await open('browser');
  const plaintexts: Uint8Array[] = [];
  const size = 16 + 1 + parseBundle(bundle).task.slots.messageBytes; // tag ‖ kind ‖ message
  const { set } = Uint8Array.prototype;
  const spy = t.mock.method(Uint8Array.prototype, 'set', function (this: Uint8Array, from: Uint8Array, at?: number) {
    if (this.length === size) plaintexts.push(this);
    return Reflect.apply(set, this, [from, at]);
  });
  await engine.submission(handle, 0, Float64Array.of(secret));
  spy.mock.restore();
  assert.ok(plaintexts.length >= 2);
  assert.ok(plaintexts.every(isZero));
});
