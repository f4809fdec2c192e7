/**
 * The build leaves functions out of doona.wasm that no test has run. Tests that if doona.wasm calls such a function, or
 * stops for another reason, doona-full.wasm takes over and the SDK still makes exactly one report.
 * @module
 */

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';

import { parseBundle } from './bundle.js';
import type { Bytes } from './bytes.js';
import { type Engine, type OpenRequest, localEngine } from './engine.js';
import { DoonaError } from './errors.js';
import { Module, maxGrowth } from './module.js';
import { OpenTask } from './open-task.js';
import { parseKey, sha256 } from './signature.js';
import { parseTask } from './task.js';
import { fakeRelay } from './testing.js';

const built = '../build/www/';
const vectors = '../testdata/v1/';
const bytesOf = (pattern: RegExp): Bytes =>
  new Uint8Array(readFileSync(built + readdirSync(built).find((file) => pattern.test(file))!));
const small = bytesOf(/^doona-[0-9a-f]+\.wasm$/);
const browser = await WebAssembly.compile(small);
const few = await WebAssembly.compile(bytesOf(/^doona-small-[0-9a-f]+\.wasm$/));
const full = await WebAssembly.compile(bytesOf(/^doona-full-[0-9a-f]+\.wasm$/));
const fromHex = (text: string) => new Uint8Array(Buffer.from(text, 'hex'));
const ofBase64 = (text: string) => new Uint8Array(Buffer.from(text, 'base64'));
const long = (globalThis as { doonaLong?: boolean }).doonaLong === true; // www/test.sh --long
const lines = readFileSync(process.env['DOONA_FUZZ_CASES'] ?? '../build/fuzzcases.jsonl', 'utf8').trim().split('\n');
const accepted = lines.map((line) => JSON.parse(line)).find((c) => c.kind === 'bundle' && c.accept);
const [owner, bundle] = [ofBase64(accepted.owner), ofBase64(accepted.bytes)];
const id = await sha256(parseBundle(bundle).canonical);
const request = { bundle, owner, id };

/** Returns where each function body in doona.wasm begins and ends, in bytes. */
function bodies(): { at: number; end: number }[] {
  let at = 8;
  const unsigned = () => {
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = small[at++]!;
      value += (byte & 127) * 2 ** shift;
      if (byte < 128) return value;
    }
  };
  while (small[at++] !== 10) {
    const size = unsigned();
    at += size;
  }
  unsigned();
  return Array.from({ length: unsigned() }, () => {
    const size = unsigned();
    at += size;
    return { at: at - size, end: at };
  });
}

/**
 * Compiles doona.wasm with one function body replaced by a body that traps: no locals, `unreachable`, then `nop` up to
 * the end.
 */
async function stopping({ at, end }: { at: number; end: number }): Promise<WebAssembly.Module> {
  const damaged = small.slice().fill(0x01, at, end);
  damaged.set([0, 0x00], at);
  damaged[end - 1] = 0x0b;
  return WebAssembly.compile(damaged);
}

/**
 * Makes a report as a page does. Returns it, how often doona-full.wasm was started, and how many reports were sealed.
 */
async function report(code: WebAssembly.Module): Promise<{ body: Bytes; started: number; sealed: number }> {
  const engine = localEngine();
  const counted = { started: 0, sealed: 0 };
  const watched: Engine = { ...engine,
    submission: async (...args) => {
      const body = await engine.submission(...args);
      if (body) counted.sealed++;
      return body;
    } };
  const startFull = async () => {
    counted.started++;
    await engine.start('full', full);
  };
  const running = await engine.start('browser', code);
  if (!running) await startFull();
  const task = await OpenTask.open(watched, request, running ? 'browser' : 'full', startFull);
  await task.check();
  return { body: await task.submission(0, Float64Array.of(1)), ...counted };
}

test('if doona.wasm stops at any function, doona-full.wasm makes the one report', async () => {
  const whole = await report(browser);
  assert.deepEqual([whole.started, whole.sealed], [0, 1], 'the unchanged doona.wasm must not stop');
  const all = bodies();
  assert.ok(all.length > 2000, `${all.length} functions`);
  const [least, left] = [long ? all.length : 20, [...all.keys()]];
  let stopped = 0;
  for (let tried = 0; left.length > 0 && (tried < least || stopped === 0); tried++) {
    const [i] = left.splice(Math.floor(Math.random() * left.length), 1) as [number];
    const { body, started, sealed } = await report(await stopping(all[i]!));
    assert.equal(body.length, whole.body.length, `function ${i}`);
    assert.equal(sealed, 1, `function ${i}`);
    assert.ok(started <= 1, `function ${i}`);
    stopped += started;
  }
  assert.ok(stopped > 0, 'none of the replaced functions ran');
});

test('a module that stopped never runs again, and its memory is zeroed', async () => {
  const { instantiate } = WebAssembly;
  let memory: WebAssembly.Memory;
  WebAssembly.instantiate = (async (code: WebAssembly.Module, imports: WebAssembly.Imports) => {
    const instance = await instantiate(code, imports);
    memory = instance.exports['memory'] as WebAssembly.Memory;
    return instance;
  }) as typeof instantiate;
  const module = await Module.start(browser).finally(() => Object.assign(WebAssembly, { instantiate }));
  const { getRandomValues } = crypto;
  const handle = module.open(parseBundle(bundle).canonical);
  const size = 1 + parseBundle(bundle).task.slots.messageBytes;
  crypto.getRandomValues = () => { throw new Error('as the test asked'); };
  try {
    for (let i = 0; i < 1000; i++) module.randomize(handle, Float64Array.of(1), size); // Uses up its buffer.
    assert.fail('the module did not stop although it got no random bytes');
  } catch (error) {
    assert.match((error as Error).message, /as the test asked/);
  } finally {
    crypto.getRandomValues = getRandomValues;
  }
  assert.ok(new Uint8Array(memory!.buffer).every((byte) => byte === 0));
  assert.throws(() => module.randomize(handle, Float64Array.of(1), size), /as the test asked/);
  assert.throws(() => module.alive(), /as the test asked/);
});

test('a task whose protocol doona-small.wasm lacks opens in doona.wasm', async () => {
  const met = new Map<string, string>();
  for (const line of lines) {
    const c = JSON.parse(line);
    if (c.kind !== 'bundle' || !c.accept) continue;
    const [given, key] = [ofBase64(c.bytes), ofBase64(c.owner)];
    const { canonical, task: { protocol } } = parseBundle(given);
    if (met.has(protocol)) continue;
    const engine = localEngine();
    const started: string[] = [];
    await engine.start('small', few);
    const task = await OpenTask.open(engine, { bundle: given, owner: key, id: await sha256(canonical) }, 'small',
      async (name) => {
        started.push(name);
        await engine.start(name, name === 'browser' ? browser : full);
      }).catch((cause) => {
      if (cause.field !== 'protocol' || started.length === 0) throw cause;
      return undefined; // A damaged name, which no module knows.
    });
    if (!task) continue;
    met.set(protocol, started.join());
    assert.equal(task.opened.task.protocol, protocol);
    await task.check();
  }
  for (const [protocol, started] of met) {
    assert.equal(started, ['histogram', 'realsum', 'augmented'].includes(protocol) ? '' : 'browser', protocol);
  }
  assert.deepEqual(new Set(met.values()), new Set(['', 'browser']), 'tasks of both kinds');
  for (const protocol of ['histogram', 'realsum', 'splitmix']) assert.ok(met.has(protocol), protocol);
});

test('a page that connects again uses the task that is open', async () => {
  const engine = localEngine();
  await engine.start('browser', browser);
  await engine.start('full', full);
  const open = (how: Partial<OpenRequest> = {}) => engine.open({ ...request, module: 'browser', ...how });
  const first = await open();
  assert.equal((await open({ bundle: request.bundle.slice() }))?.handle, first?.handle);
  assert.notEqual((await open({ module: 'full' }))?.handle, first?.handle);
  for (const what of ['owner', 'id', 'bundle'] as const) {
    const changed = request[what].slice();
    changed[0]! ^= 1;
    await assert.rejects(open({ [what]: changed }), { code: 'task-refused' }, what);
  }
  assert.ok(await engine.submission(first!.handle, 0, Float64Array.of(1)));
});

test('a report is sealed only for an epoch whose keys are here', async (t) => {
  const relay = await fakeRelay();
  t.after(() => relay.close());
  const served = async (url: string) => new Uint8Array(await (await fetch(url)).arrayBuffer());
  const engine = localEngine();
  await engine.start('browser', browser);
  await engine.start('full', full);
  const [first, last] = [await served(relay.options.task),
    await served(`${relay.options.task.replace('/tasks/', '/blocks/')}/2`)];
  const wanted = { owner: parseKey(relay.options.owner)!, id: await sha256(parseBundle(first).canonical) };
  for (const module of ['browser', 'full'] as const) {
    for (const [given, block] of [[first, 0], [last, 2]] as const) {
      const opened = (await engine.open({ ...wanted, bundle: given, module }))!;
      assert.equal(opened.block, block);
      for (let epoch = 0; epoch < 24; epoch++) {
        const sealing = engine.submission(opened.handle, epoch, Float64Array.of(1));
        if (epoch >= 8 * block && epoch < 8 * block + 8) assert.ok(await sealing);
        else await assert.rejects(sealing, { code: 'task-refused' }, `${module}: epoch ${epoch}`);
      }
    }
    for (const at of [1, 32 + 2 + 1, 32 + 2 + 256]) { // the last party's path, and both ends of its keys
      const damaged = last.slice();
      damaged[damaged.length - at]! ^= 1;
      const opening = engine.open({ ...wanted, bundle: damaged, module });
      await assert.rejects(opening, { code: 'task-refused' }, `${module}: ${at}`);
    }
  }
});

test('if doona-full.wasm stops too, the error says so', async () => {
  const engine = localEngine();
  await engine.start('full', full);
  const task = await OpenTask.open(engine, request, 'full', () => assert.fail('doona-full.wasm runs already'));
  const { getRandomValues } = crypto;
  crypto.getRandomValues = () => { throw new Error('as the test asked'); };
  const failed = (error: unknown) => error instanceof DoonaError && error.code === 'module-failed';
  try {
    await assert.rejects(async () => {
      for (let i = 0; i < 1000; i++) await task.submission(0, Float64Array.of(1));
    }, failed);
  } finally {
    crypto.getRandomValues = getRandomValues;
  }
  await assert.rejects(() => task.check(), failed);
});

/** Returns the valid tasks from the vectors of all protocols, with the values of their reports. */
function soakTasks(): { canonical: Bytes; values: number[][]; size: number }[] {
  return readdirSync(vectors).filter((name) => name.endsWith('.json')).flatMap((name) => {
    const vector = JSON.parse(readFileSync(vectors + name, 'utf8'));
    if (!Array.isArray(vector) || !vector[0].reports) return [];
    return vector.filter(({ unproven }) => !unproven).map(({ task, reports }) => ({
      canonical: fromHex(task), values: reports.map(({ value }: { value: number[] }) => value),
      size: 1 + parseTask(fromHex(task)).slots.messageBytes }));
  });
}

test('one instance makes many reports for every protocol and never stops', async () => {
  const tasks = soakTasks();
  assert.ok(tasks.length > 10);
  const module = await Module.start(browser);
  const handles = tasks.map(({ canonical }) => module.open(canonical));
  const reports = long ? 1_000_000 : 20_000;
  for (let i = 0; i < reports; i++) {
    const j = i % tasks.length;
    const { canonical, values, size } = tasks[j]!;
    if (i % 2003 === 0) handles[j] = module.open(canonical);
    module.randomize(handles[j]!, Float64Array.from(values[i % values.length]!), size);
  }
});

test('a fresh instance replaces one whose memory has grown, and tasks keep their handles', async () => {
  const instances: WebAssembly.Memory[] = [];
  const { Instance, instantiate } = WebAssembly;
  WebAssembly.Instance = class extends Instance {
    constructor(...given: ConstructorParameters<typeof Instance>) {
      super(...given);
      instances.push(this.exports['memory'] as WebAssembly.Memory);
    }
  };
  WebAssembly.instantiate = (async (code: WebAssembly.Module, imports: WebAssembly.Imports) => {
    const instance = await instantiate(code, imports);
    instances.push(instance.exports['memory'] as WebAssembly.Memory);
    return instance;
  }) as typeof instantiate;
  try {
    assert.equal(maxGrowth, 64 * 2 ** 20);
    const size = () => instances.at(-1)!.buffer.byteLength;
    const module = await Module.start(browser);
    const tasks = soakTasks();
    const grown = tasks.map(({ canonical }) => {
      const before = size();
      module.open(canonical);
      return size() - before;
    });
    const largest = tasks[grown.indexOf(Math.max(...grown))]!.canonical;
    while (instances.length < 3) { // Until two replacements.
      module.open(largest);
      assert.ok(size() < 4 * maxGrowth, 'no fresh instance has replaced the grown one');
    }
    const [first, second] = instances;
    assert.ok(new Uint8Array(first!.buffer).every((byte) => byte === 0), 'the old memory is not zeroed');
    assert.ok(second!.buffer.byteLength > maxGrowth);
    tasks.forEach(({ values, size }, i) => module.randomize(i, Float64Array.from(values[0]!), size));
    assert.equal(instances.length, 3, 'a call replaced the instance again although memory did not grow');
  } finally {
    Object.assign(WebAssembly, { Instance, instantiate });
  }
});
