/**
 * Tests the record of a set with a fake clock: which tables are due, caps, paces, events, the flat cost in the ledger,
 * forks, lost writes and two tabs. The tests count anew what docs/SPEC.md, section 15, allows.
 * @module
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { type Limit, worstWindow } from './budget.js';
import type { Bytes } from './bytes.js';
import { toHex } from './bytes.js';
import { addEpochs, epochsBetween } from './epochs.js';
import { DoonaError } from './errors.js';
import { type DayClaim, type DayDraft, type SetLine, type TableDay, type ValueChange, claimDay, isDraft, putBody,
  putClosed, putLeft, putToken, putValues, recordOf } from './set-ledger.js';
import { type MemoryRecords, memoryTransact } from './set-memory.js';

const day = 86_400;
const month = 2 ** 32;
const first = Date.UTC(2026, 5, 1) / 1000; // a Monday
const root = 'a'.repeat(64);
const limit: Limit = { epsilon: 10, delta: 1e-5, days: 365, option: 'budget' };

/** The tables: bare, daily with cap and pace, daily with events, weekly with a cap, monthly. */
const kinds: readonly Omit<TableDay, 'open' | 'start'>[] = [
  { length: day, usual: [] },
  { length: day, cap: { reports: 56, window: 365 }, pace: { reports: 4, window: 28 }, usual: [0] },
  { length: day, events: { most: 3, window: 30, usual: 2 }, usual: [2] },
  { length: 7 * day, cap: { reports: 2, window: 4 }, usual: [1] },
  { length: month, usual: [4] },
];

function claimOf(number: number, more: Partial<DayClaim> = {}): DayClaim {
  const start = first + number * day;
  const tables = kinds.map((kind, i) => ({ ...kind, open: i > 0,
    start: addEpochs(kind.length, first, epochsBetween(kind.length, first, start)) }));
  return { root, set: root, position: 0, pin: 'pin', day: number, start, end: start + day,
    length: day, total: { epsilon: 10, delta: 1e-5 }, limit, tables, hops: 2, now: 1000 * start, ...more };
}

const refusedBy = (code: string) => (error: unknown) => error instanceof DoonaError && error.code === code;
const draftOf = async (record: Promise<unknown>): Promise<DayDraft> => {
  const found = await record as DayDraft;
  assert.ok(isDraft(found));
  return found;
};
const lineOf = (records: MemoryRecords) => records.lines.get(root) as SetLine;
const fresh = (): MemoryRecords => ({ lines: new Map(), reports: new Map() });

/** Lists the epochs in which a table was due, by when they begin. */
function startsOf(due: readonly (readonly boolean[])[], days: readonly number[], table: number): number[] {
  return days.filter((_, i) => due[i]![table]).map((n) => claimOf(n).tables[table]!.start);
}

test('over a year: one report per epoch, within caps and paces, and no tag twice', async () => {
  for (const share of [1, .6, .1]) {
    const records = fresh();
    const transact = memoryTransact(records);
    const [days, due]: [number[], boolean[][]] = [[], []];
    const tags = new Set<string>();
    for (let n = 0; n < 400; n++) {
      if (Math.random() >= share) continue;
      const draft = await draftOf(claimDay(transact, claimOf(n)));
      days.push(n);
      due.push([...draft.due]);
      assert.equal(draft.tags.length, 16 * (1 + 5 * 2));
      for (let at = 0; at < draft.tags.length; at += 16) tags.add(toHex(draft.tags.subarray(at, at + 16)));
      assert.ok(draft.leaveAt >= 1000 * (claimOf(n).end - 1800) && draft.leaveAt < 1000 * claimOf(n).end);
      assert.deepEqual(draft.values, kinds.map(({ usual }, i) => (draft.due[i] ? usual : [])));
    }
    assert.equal(tags.size, 11 * days.length);
    assert.ok(due.every(([bare]) => bare === false));
    for (const table of [1, 2, 3, 4]) {
      const starts = startsOf(due, days, table);
      assert.equal(new Set(starts).size, starts.length, 'one report per epoch');
    }
    const entry = startsOf(due, days, 1);
    assert.ok(entry.every((from) => entry.filter((at) => at >= from && at < from + 365 * day).length <= 56));
    const { block } = lineOf(records).set.tables[1]!;
    const blocks = new Map<number, number>();
    for (const at of entry) {
      const n = Math.floor((at - block!) / (28 * day));
      blocks.set(n, (blocks.get(n) ?? 0) + 1);
    }
    assert.ok([...blocks.values()].every((n) => n <= 4));
    if (share === 1) assert.ok([...blocks.values()].filter((n) => n === 4).length >= 12, 'as often as it may');
    const weeks = startsOf(due, days, 3);
    assert.ok(weeks.every((from) => weeks.filter((at) => at >= from && at < from + 28 * day).length <= 2));
    const [months, goals] = [startsOf(due, days, 4), startsOf(due, days, 2)];
    if (share === 1) assert.deepEqual([weeks.length, months.length, goals.length], [30, 14, 400]);
  }
});

test('values never decide which tables are due: two worlds have the same days', async () => {
  const worlds = [fresh(), fresh()];
  const seen = await Promise.all(worlds.map(async (records, world) => {
    const transact = memoryTransact(records);
    const all: unknown[] = [];
    for (let n = 0; n < 120; n += 1 + n % 3) {
      const draft = await draftOf(claimDay(transact, claimOf(n)));
      all.push([n, draft.due[2], draft.due[3], draft.due[4]]);
      if (world === 0) await putValues(transact, claimOf(n), [{ table: 2, value: [0], isEvent: true }]);
      await putLeft(transact, draft, new Uint8Array([1]));
    }
    return all;
  }));
  assert.deepEqual(seen[0], seen[1]);
});

test('events keep their allowance under any clock; beyond it the default is sent, never a cover', async () => {
  for (let turn = 0; turn < 200; turn++) {
    const records = fresh();
    const transact = memoryTransact(records);
    const sent: number[] = [];
    for (let n = Math.floor(5 * Math.random()); n < 120; n += 1 + Math.floor(8 * Math.random())) {
      const draft = await draftOf(claimDay(transact, claimOf(n)));
      let last: readonly number[] = draft.values[2]!;
      for (let times = Math.floor(3 * Math.random()); times >= 0; times--) {
        const isEvent = Math.random() < .7;
        const change: ValueChange = { table: 2, value: isEvent ? [0] : [2], isEvent };
        const { record, outcomes } = await putValues(transact, claimOf(n), [change]);
        last = (record as DayDraft).values[2]!;
        assert.deepEqual(last, outcomes[0] === 'allowance' ? [2] : change.value);
        if (isEvent && outcomes[0] === 'kept' && sent.at(-1) !== n) sent.push(n);
      }
    }
    assert.ok(sent.every((from) => sent.filter((at) => at >= from && at < from + 30).length <= 3), `${sent}`);
  }
});

test('an event is counted in the transaction that stores its value, and one that fails changes nothing', async () => {
  const records = fresh();
  const transact = memoryTransact(records);
  await claimDay(transact, claimOf(0));
  const before = structuredClone(records);
  await assert.rejects(memoryTransact(records)('strict', async (held) => {
    await putValues((_, work) => work({ ...held, putReport: () => { throw new Error('disk full'); } }), claimOf(0),
      [{ table: 2, value: [0], isEvent: true }]);
  }), /disk full/);
  assert.deepEqual(records, before);
  await putValues(transact, claimOf(0), [{ table: 2, value: [0], isEvent: true }]);
  assert.deepEqual(lineOf(records).set.tables[2]!.events, [first]);
});

test('the whole total counts in a window as soon as one run lies in it', async () => {
  const records = fresh();
  const transact = memoryTransact(records);
  await claimDay(transact, claimOf(9)); // the second Wednesday: its week and month have begun before
  const starts = (line: SetLine) => line.runs.flatMap(({ start, count }) =>
    Array.from({ length: count }, (_, i) => (start - first) / day + i));
  assert.deepEqual(starts(lineOf(records)), [0, 7, 9], "the day, its week's Monday and its month's first");
  await claimDay(transact, claimOf(10));
  assert.deepEqual(starts(lineOf(records)), [0, 7, 9, 10], 'only epochs with a report');
  for (const [around, want] of [[0, 10], [9, 10], [374, 10], [376, 0], [-365, 0]] as const) {
    assert.equal(worstWindow([lineOf(records)], first + around * day, limit).epsilon, want, `${around}`);
  }
  // Another set does not fit beside it, but a year later it does.
  const other = { root: 'c'.repeat(64), set: 'c'.repeat(64) };
  await assert.rejects(claimDay(transact, claimOf(11, other)), refusedBy('budget-exceeded'));
  assert.equal(records.lines.size, 1);
  await claimDay(transact, claimOf(500, other));
});

test('a day is claimed once, and no earlier day after it', async () => {
  const transact = memoryTransact();
  const draft = await draftOf(claimDay(transact, claimOf(5)));
  assert.deepEqual(await claimDay(transact, claimOf(5)), draft);
  for (const n of [4, 0]) await assert.rejects(claimDay(transact, claimOf(n)), refusedBy('cap-reached'));
  await claimDay(transact, claimOf(5 + 3650)); // The clock leaps by ten years.
  for (const n of [5, 6, 3654]) await assert.rejects(claimDay(transact, claimOf(n)), refusedBy('cap-reached'));
});

test('a renewal goes on with the line, and a fork is refused', async () => {
  const records = fresh();
  const transact = memoryTransact(records);
  await claimDay(transact, claimOf(1));
  for (const more of [{ pin: 'another' }, { set: 'd'.repeat(64) }]) {
    await assert.rejects(claimDay(transact, claimOf(2, more)), refusedBy('set-forked'));
  }
  const next = { set: 'd'.repeat(64), position: 1 };
  const draft = await draftOf(claimDay(transact, claimOf(8, next)));
  assert.ok(draft.due[3] && !draft.due[4], 'a new week, and the same month');
  assert.equal(records.lines.size, 1);
  for (const more of [{ set: 'e'.repeat(64), position: 1 }, {}]) {
    await assert.rejects(claimDay(transact, claimOf(9, more)), refusedBy('set-forked'));
  }
});

test('two tabs: the draft that was changed meanwhile is not overwritten', async () => {
  const transact = memoryTransact();
  const draft = await draftOf(claimDay(transact, claimOf(0)));
  const changed = await draftOf(putValues(transact, claimOf(0), [{ table: 1, value: [9], isEvent: false }])
    .then(({ record }) => record));
  const late = await draftOf(putBody(transact, draft, new Uint8Array([1])));
  assert.deepEqual([late.version, late.body], [1, undefined]);
  const stored = await draftOf(putBody(transact, changed, new Uint8Array([2])));
  assert.deepEqual([stored.version, stored.body, stored.values[1]], [2, new Uint8Array([2]), [9]]);
  assert.deepEqual(stored.tags, draft.tags);
});

test('what has left has neither tags nor values, and no later value replaces it', async () => {
  const records = fresh();
  const transact = memoryTransact(records);
  const draft = await draftOf(claimDay(transact, claimOf(0)));
  await putBody(transact, draft, new Uint8Array([1]));
  const sent = new Uint8Array([1]);
  const left = await putLeft(transact, draft, sent);
  assert.deepEqual(left, { task: root, epoch: 0, state: 'sealed', set: root, day: 0, start: first, version: 1, body: sent });
  const { record, outcomes } = await putValues(transact, claimOf(0), [{ table: 1, value: [3], isEvent: false }]);
  assert.deepEqual([record, outcomes], [left, ['late']]);
  assert.deepEqual(await putLeft(transact, draft, new Uint8Array([2])), left, 'of two tabs, the first');
  const closed = await putClosed(transact, draft, 'delivered');
  assert.deepEqual(closed, { task: root, epoch: 0, state: 'delivered', set: root, day: 0, start: first, version: 1 });
  assert.deepEqual(await claimDay(transact, claimOf(0)), closed);
  assert.ok((await claimDay(transact, claimOf(1)))?.start === first + day);
  assert.equal(await recordOf(transact, draft), undefined);
});

test('a submission keeps its first token until it is delivered or dropped', async () => {
  const transact = memoryTransact();
  const draft = await draftOf(claimDay(transact, claimOf(0)));
  const [token, second]: Bytes[] = [new Uint8Array([1]), new Uint8Array([2])];
  await putToken(transact, draft, token!);
  const { record } = await putValues(transact, claimOf(0), [{ table: 1, value: [3], isEvent: false }]);
  assert.deepEqual((await putBody(transact, record as DayDraft, new Uint8Array([9])))?.token, token);
  assert.deepEqual((await putLeft(transact, draft, new Uint8Array([9])))?.token, token);
  assert.deepEqual((await putToken(transact, draft, second!))?.token, token);
  assert.equal((await putClosed(transact, draft, 'delivered'))?.token, undefined);
  assert.equal((await putToken(transact, draft, second!))?.token, undefined);
});

test('a page that died while it left: its bytes may be sent again, and no others', async () => {
  for (const [version, state] of [[1, 'sealed'], [0, 'dropped'], [2, 'dropped']] as const) {
    const transact = memoryTransact();
    const draft = await draftOf(claimDay(transact, claimOf(0)));
    const body: Bytes = new Uint8Array([7]);
    await putBody(transact, draft, body);
    const found = (await claimDay(transact, claimOf(0, { left: version })))!;
    assert.equal(found.state, state);
    assert.deepEqual([found.tags, found.values], [undefined, undefined]);
    assert.deepEqual(found.body, state === 'sealed' ? body : undefined);
  }
});
