/**
 * Tests what the SDK does with a set: its document, its total, its keys, and that Go opens what it seals. The sets are
 * signed by www/testserver, whose Go code also refuses each of the invalid ones.
 * @module
 */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, readdirSync } from 'node:fs';
import { after, before, test } from 'node:test';

import { type Bytes, equal, fromHex, toHex } from './bytes.js';
import { DoonaError } from './errors.js';
import { Module } from './module.js';
import { Reader } from './msgpack.js';
import { copiesOf, epochOn, parseKeys, parseSet } from './set.js';
import { type DayRequest, type OpenedSet, type SetEngine, localSetEngine } from './set-engine.js';
import { explainSet } from './set-explain.js';
import { type MemoryRecords, memoryTransact } from './set-memory.js';
import { parseKey, sha256 } from './signature.js';
import { usualInput } from './value.js';

const built = '../build/www/';
const code = (pattern: RegExp) =>
  WebAssembly.compile(readFileSync(built + readdirSync(built).find((file) => pattern.test(file))!));
const wasm = await code(/^doona-set-[0-9a-f]+\.wasm$/);
const full = await code(/^doona-full-/);

interface Offer { url: string; own: string; owner: string; id: string; start: number }
let site = '';
let sets: Record<string, Offer> = {};
let stop = () => {};

before(async () => {
  const child = spawn('../build/testserver', ['-dir', '../build/www'], { stdio: ['ignore', 'pipe', 'inherit'] });
  stop = () => void child.kill();
  let said = '';
  child.stdout.setEncoding('utf8');
  while (!said.includes('\n')) said += (await once(child.stdout, 'data'))[0];
  ({ site, sets } = JSON.parse(said));
});
after(() => stop());

const get = async (url: string): Promise<Bytes> => new Uint8Array(await (await fetch(url)).arrayBuffer());
const idOf = ({ id }: Offer) => fromHex(id, 32)!;
/** The address below which the keys of a set are. */
const blocksOf = ({ own }: Offer) => own.replace('/sets/', '/blocks/');
const ownerOf = ({ owner }: Offer) => parseKey(owner)!;

/** An engine with an open set, and the requests of its days. */
interface Open {
  readonly engine: SetEngine;
  readonly set: OpenedSet;
  readonly on: (day: number, more?: Partial<DayRequest>) => Promise<DayRequest>;
}

async function open(name = 'set', module: 'small' | 'full' = 'small', records?: MemoryRecords): Promise<Open> {
  const offer = sets[name]!;
  const engine = localSetEngine(undefined, memoryTransact(records));
  await engine.start(module, module === 'full' ? full : wasm);
  const set = (await engine.open({ bundle: await get(`${offer.own}?unpacked`), owner: ownerOf(offer), id: idOf(offer), module }))!;
  const usual = set.tables.map(({ bare, task }) => (bare ? [] : task.epochs.events ? [...usualInput(task)] : [0]));
  const clocks = set.tables.reduce((max, { clock }) => Math.max(max, clock + 1), 0);
  const on = async (day: number, more: Partial<DayRequest> = {}) => {
    for (let clock = 0; clock < clocks; clock++) {
      const { epoch } = epochOn(set, set.tables.findIndex((table) => table.clock === clock), day);
      await engine.keys(set.handle, clock, await get(`${blocksOf(offer)}/${clock}/${Math.floor(epoch / 8)}`));
    }
    return { handle: set.handle, day, usual, now: 1000 * (offer.start + day * 86_400),
      limit: { epsilon: 100, delta: .01, days: 30, option: 'budget' as const }, ...more };
  };
  return { engine, set, on };
}

async function opened(name: string, day: number,
  body: Bytes): Promise<{ messages: string[][]; tags: string[]; ciphertexts: string[]; error: string }> {
  return (await fetch(`${site}/test/openset/${name}/${day}`, { method: 'POST', body })).json() as never;
}

test('a set is read as in Go', async () => {
  const offer = sets.set!;
  const set = await parseSet(await get(`${offer.own}?unpacked`), ownerOf(offer), idOf(offer));
  assert.equal(toHex(set.id), offer.id);
  assert.deepEqual(set.tables.map(({ name, clock, bare }) => [name, clock, bare]), [['visitors', 0, true],
    ['entry', 0, false], ['goals', 0, false], ['vitals', 1, false], ['countries', 2, false]]);
  assert.deepEqual(set.tables.map((table) => copiesOf(set, table)), [0, 4, 2 * 12 + 2, 4, 12]);
  const { epochs } = set.tables[3]!.task;
  for (const day of [0, 6, 7, 13, 20, 35, 60]) {
    const at = offer.start + day * 86_400;
    const epoch = Math.floor((at - epochs.start) / epochs.length);
    assert.deepEqual(epochOn(set, 3, day),
      { epoch: Math.min(Math.max(epoch, 0), epochs.count - 1), open: epoch >= 0 && epoch < epochs.count });
  }
});

test('every set that Go refuses is refused, by the same field', async () => {
  const offer = sets.set!;
  const bad = await (await fetch(`${site}/test/badsets`)).json() as
    { name: string; field: string; id: string; bundle: string }[];
  assert.ok(bad.length >= 35, `${bad.length}`);
  const { engine } = await open();
  for (const { name, field, id, bundle } of bad) {
    await assert.rejects(engine.open({ bundle: fromHex(bundle, bundle.length / 2)!, owner: ownerOf(offer),
      id: fromHex(id, 32)!, module: 'small' }), (error: unknown) => {
      assert.ok(error instanceof DoonaError, `${name}: ${error}`);
      assert.equal(error.field, field, `${name}: ${error.message}`);
      assert.equal(error.code, /claims|total/.test(name) ? 'claim-refused' : 'set-refused', error.message);
      return true;
    });
  }
});

test('the vectors of sets: a renewal with a replaced key is accepted, and each wrong set is refused', async () => {
  const read = (name: string) => JSON.parse(readFileSync(`../testdata/v1/${name}`, 'utf8'));
  const parse = async ({ bundle, owner }: { bundle: string; owner: string }) => {
    const raw = fromHex(bundle, bundle.length / 2)!;
    const r = new Reader(raw);
    r.array(5);
    return parseSet(raw, parseKey(owner)!, await sha256(r.bin()));
  };
  const { owner, bundle, renewal } = read('set.json');
  assert.equal((await parse({ owner, bundle })).position, 0);
  const next = await parse({ owner, bundle: renewal });
  assert.deepEqual([next.position, next.tables[1]!.task.stream!.rotations.length], [1, 1]);
  const names = readdirSync('../testdata/v1').filter((name) => name.startsWith('bad_set_'));
  const bad = names.map(read).filter(({ kind }) => kind === 'set');
  assert.ok(bad.length >= 30, `${bad.length}`);
  for (const { expect, description, ...vector } of bad) {
    await assert.rejects(parse(vector), (error: unknown) => {
      assert.ok(error instanceof DoonaError && error.code === 'set-refused', `${description}: ${error}`);
      if (expect.startsWith('field:')) assert.equal(error.field, expect.slice('field:'.length), description);
      return true;
    });
  }
});

test('another owner, another id and damaged bundles are refused', async () => {
  const offer = sets.set!;
  const good = await get(`${offer.own}?unpacked`);
  const refused = (field: string) => (error: unknown) =>
    error instanceof DoonaError && error.code === 'set-refused' && error.field === field;
  await assert.rejects(parseSet(good, ownerOf(sets.other!), idOf(offer)), refused('owner'));
  await assert.rejects(parseSet(good, ownerOf(offer), idOf(sets.other!)), refused('id'));
  const longer = new Uint8Array([...good, 0]);
  for (const damaged of [new Uint8Array(), good.subarray(0, -1), longer, new Uint8Array(2 ** 21 + 1)]) {
    await assert.rejects(parseSet(damaged, ownerOf(offer), idOf(offer)), refused('bundle'));
  }
  for (let i = 0; i < 300; i++) { // No damaged byte is accepted, or makes another error.
    const damaged = good.slice();
    damaged[Math.floor(Math.random() * good.length)]! ^= 1 << Math.floor(8 * Math.random());
    const error = await parseSet(damaged, ownerOf(offer), idOf(offer)).then(async (set) => {
      for (const clock of [0, 1, 2]) await parseKeys(set, clock, await get(`${blocksOf(offer)}/${clock}/0`));
    }).then(() => undefined, (found) => found);
    assert.ok(error instanceof DoonaError && /refused/.test(error.code), `${error}`);
  }
});

test('keys of another clock, of another set and damaged keys are refused', async () => {
  const offer = sets.set!;
  const set = await parseSet(await get(`${offer.own}?unpacked`), ownerOf(offer), idOf(offer));
  const keys = await get(`${blocksOf(offer)}/0/3`);
  const found = await parseKeys(set, 0, keys);
  assert.equal(found.first, 24);
  assert.equal(found.hops.length, 3);
  assert.ok(keys.length < 2048, `${keys.length} bytes`);
  const refused = (error: unknown) => error instanceof DoonaError && /refused/.test(error.code);
  await assert.rejects(parseKeys(set, 1, keys), refused);
  await assert.rejects(parseKeys(set, 0, await get(`${blocksOf(sets.other!)}/0/3`)), refused);
  for (let i = 0; i < 200; i++) {
    const damaged = keys.slice();
    damaged[Math.floor(Math.random() * keys.length)]! ^= 1 << Math.floor(8 * Math.random());
    await assert.rejects(parseKeys(set, 0, damaged), refused);
  }
});

test('Go opens what is sealed: one size, one slot per table, the same tags in all drafts of a day', async () => {
  for (const module of ['small', 'full'] as const) {
    const { engine, on } = await open('set', module);
    const all = new Set<string>();
    const sizes = new Set<number>();
    for (const day of [0, 1, 8, 40]) {
      const request = await on(day);
      const first = (await engine.today(request))!;
      assert.equal(first.state, 'draft');
      const second = (await engine.change(request, [[1, new Float64Array([7])], [4, new Float64Array([29])]]))!;
      const [a, b] = [await opened('set', day, first.body!), await opened('set', day, second.body!)];
      assert.equal(a.error + b.error, '');
      const want = (values: readonly number[]) => first.due.map((due, i) =>
        [due ? values[i]!.toString(16).padStart(2, '0') : '']);
      assert.deepEqual(a.messages, want([0, 0, 3, 0, 0]));
      assert.deepEqual(b.messages, want([0, 7, 3, 0, 29]));
      assert.deepEqual(second.outcomes, [first.due[1] ? 'kept' : 'not-due', first.due[4] ? 'kept' : 'not-due']);
      assert.deepEqual(a.tags, b.tags);
      assert.ok(!equal(first.body!, second.body!));
      assert.equal(new Set(a.tags).size, 1 + 5 * 2);
      for (const tag of a.tags) {
        assert.ok(!all.has(tag), 'no tag twice');
        all.add(tag);
      }
      sizes.add(first.body!.length).add(second.body!.length);
    }
    assert.equal(sizes.size, 1);
  }
});

test('a change seals its table anew and keeps the others, but none that may have left', async () => {
  const records = { lines: new Map(), reports: new Map() };
  const [{ engine, on }, other] = [await open('set', 'small', records), await open('set', 'small', records)];
  const request = await on(8);
  const ciphers = async (body: Bytes) => (await opened('set', 8, body)).ciphertexts;
  const differ = (a: readonly string[], b: readonly string[]) => a.flatMap((text, i) => (text === b[i] ? [] : [i]));
  const all = [0, 1, 2, 3, 4];
  const first = await ciphers((await engine.today(request))!.body!);
  const change = async (of: SetEngine, ...values: [number, Float64Array][]) =>
    ciphers((await of.change(request, values))!.body!);
  const second = await change(engine, [1, new Float64Array([7])]);
  assert.deepEqual(differ(first, second), [1]);
  assert.deepEqual(differ(second, await change(engine)), []);
  await other.on(8);
  const third = await change(other.engine, [1, new Float64Array([3])]); // Another tab has sealed none of it.
  assert.deepEqual(differ(second, third), all);
  const fourth = await change(engine, [4, new Float64Array([2])]); // It must not keep what the other tab has changed.
  assert.deepEqual(differ(third, fourth), all);
  assert.deepEqual(differ(second, fourth), all);
  assert.deepEqual(differ(fourth, (await ciphers((await engine.today(request))!.body!))), []);
  const before = structuredClone(records);
  await engine.left(request.handle, 8, new Uint8Array(1));
  Object.assign(records, before); // The store lost that it has left.
  assert.deepEqual(differ(fourth, await change(engine)), all);
});

test('where the store was cleared, no slot of the draft before is kept: it has other tags', async () => {
  const records = { lines: new Map(), reports: new Map() };
  const [a, b] = [await open('set', 'small', records), await open('set', 'small', records)];
  const [request] = [await a.on(8), await b.on(8)];
  await a.engine.today(request);
  Object.assign(records, { lines: new Map(), reports: new Map() });
  await b.engine.today(request);
  const { body } = (await a.engine.change(request, [[1, new Float64Array([7])]]))!;
  const { tags, error } = await opened('set', 8, body!);
  assert.equal(error, '');
  assert.deepEqual(tags, (await opened('set', 8, (await b.engine.change(request, []))!.body!)).tags);
});

test('doona-full.wasm takes over from a module that stops, and the draft goes on', async () => {
  const { engine, on, set } = await open();
  const request = await on(2);
  await engine.today(request);
  await engine.start('full', full);
  await engine.move(set.handle);
  const { state, body } = (await engine.change(request, [[1, new Float64Array([4])]]))!;
  assert.equal(state, 'draft');
  assert.deepEqual((await opened('set', 2, body!)).messages[1], ['04']);
  const broken = localSetEngine(undefined, memoryTransact());
  await broken.start('small', await code(/^doona-small-/)); // It has no set_delta, so it stops there.
  const asked = { bundle: await get(`${sets.set!.own}?unpacked`), owner: ownerOf(sets.set!), id: idOf(sets.set!) };
  assert.equal(await broken.open({ ...asked, module: 'small' }), null);
  await broken.start('full', full);
  assert.equal((await broken.open({ ...asked, module: 'full' }))!.id, sets.set!.id);
});

test('an invalid value is refused and the default stays', async () => {
  const { engine, on } = await open();
  const request = await on(0);
  await engine.today(request);
  await assert.rejects(engine.change(request, [[1, new Float64Array([20])]]),
    (error: unknown) => error instanceof DoonaError && error.code === 'invalid-value');
  assert.deepEqual((await opened('set', 0, (await engine.change(request, []))!.body!)).messages[1], ['00']);
});

test('a set on trial shows no epsilon, and a budget of more days than the total is refused', async () => {
  const trial = explainSet((await open('trial')).set, { epsilon: 100, delta: .01, days: 30 });
  assert.equal(trial.total, null);
  assert.match(trial.text, /trust that one operator/);
  assert.doesNotMatch(trial.text, /epsilon|60|differential/);
  const { engine, set } = await open();
  const usual = explainSet(set, { epsilon: 100, delta: .01, days: 30 });
  assert.match(usual.text, /in any 365 days.*epsilon 60/s);
  assert.match(usual.text, /goals: one answer each day, at most 1 answers in 30 of them differ/);
  assert.match(usual.text, /vitals: one answer each week/);
  assert.match(usual.text, /countries: one answer each month/);
  const budget = { epsilon: 100, delta: .01, days: 366, option: 'budget' as const };
  await assert.rejects(engine.fit(set.handle, budget), (error: unknown) => error instanceof DoonaError &&
    error.field === 'budget' && /366.*365/.test(error.message));
  await assert.rejects(engine.fit(set.handle, { ...budget, days: 365, epsilon: 59 }),
    (error: unknown) => error instanceof DoonaError && error.code === 'epsilon-too-large');
  assert.equal(await engine.fit(set.handle, { ...budget, days: 365 }), true);
});

test('doona-small.wasm has no set_delta, so pages without sets do not load it', async () => {
  const small = await code(/^doona-small-/);
  const names = (module: WebAssembly.Module) => WebAssembly.Module.exports(module).map(({ name }) => name);
  assert.ok(!names(small).includes('set_delta'));
  assert.deepEqual(names(wasm).filter((name) => !names(small).includes(name)), ['set_delta']);
  assert.ok(names(full).includes('set_delta'));
  await Module.start(wasm);
});
