/**
 * Tests the ledger with the vectors of testdata/v1/ledger.json, which also test the Go client, and with a visitor of
 * 400 days. The test computes the visitor's cost independently, as docs/proofs/budget.md defines it.
 * @module
 */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { type Limit, admit, maxCopies, maxReports, overlapsReport, withoutEpoch } from './budget.js';
import { DoonaError } from './errors.js';
import { type Claim, ledgerOf } from './ledger.js';
import type { Line, Price, Store } from './store.js';
import { memoryStore } from './store-memory.js';
import type { Cap } from './task.js';

interface Spend { line: string; price: Price; start: number; length: number; cap?: Cap; verdict: string }
const vectors: { budget: Limit; spends: Spend[]; lines: Line[] }[] =
  JSON.parse(readFileSync('../testdata/v1/ledger.json', 'utf8'));

/** Asks the ledger to admit a report, as a connection does. */
function spend(lines: Map<string, Line>, { line: id, price, start, length, cap }: Omit<Spend, 'verdict'>,
  limit: Limit): string {
  const old = lines.get(id);
  if (old && overlapsReport(old, start, length)) return 'reported';
  try {
    const line = admit([...lines.values()], { id, price, length }, start, limit, { cap });
    lines.set(line.id, line);
    return 'admitted';
  } catch (error) {
    assert.ok(error instanceof DoonaError);
    if (error.code === 'cap-reached') return 'capped';
    assert.ok(error.code === 'budget-exceeded' && error.field === limit.option);
    return 'budget';
  }
}

test('the ledger admits the same reports as in the Go client', () => {
  const verdicts = new Map<string, number>();
  for (const { budget, spends, lines } of vectors) {
    const ledger = new Map<string, Line>();
    for (const [i, wish] of spends.entries()) {
      assert.equal(spend(ledger, wish, { ...budget, option: 'budget' }), wish.verdict, `report ${i}`);
      verdicts.set(wish.verdict, (verdicts.get(wish.verdict) ?? 0) + 1);
    }
    assert.deepEqual([...ledger.values()], lines);
  }
  assert.equal(verdicts.size, 4);
});

/** Replays visits and events of epochs in an order, and returns the epochs whose report is an event. */
async function replay(order: readonly number[], visits: number, happened: number,
  events: { most: number; window: number; usual: number }): Promise<number[]> {
  const [store, sent]: [Store, number[]] = [memoryStore(), []];
  const ledger = ledgerOf(store);
  const price: Price = { first: { epsilon: 1e-3, delta: 1e-9 }, reports: 99, all: { epsilon: 1, delta: 1e-8 },
    events: true };
  const limit: Limit = { epsilon: 1e6, delta: .5, days: 3650, option: 'budget' };
  for (const epoch of order) {
    if ((visits >> epoch & 1) === 0) continue;
    const start = 1_800_000_000 + 60 * epoch;
    const claim: Claim = { task: 'a', epoch, start, next: start + 60, line: { id: 'a', price, length: 60 }, limit,
      events, sample: 1 };
    assert.equal(await ledger.claim(claim), undefined);
    if ((happened >> epoch & 1) === 0) continue;
    if (await ledger.event(claim)) {
      sent.push(epoch);
      assert.ok(await ledger.event(claim), 'another event of the epoch replaces it');
    }
  }
  const [line] = await store.lines();
  assert.ok((line?.events?.length ?? 0) <= events.most);
  return sent;
}

/** Whether some window has more events than the task allows. */
function isCrowded(sent: readonly number[], { most, window }: { most: number; window: number }): boolean {
  return sent.some((from) => sent.filter((at) => at >= from && at < from + window).length > most);
}

test('events keep their allowance in every pattern of visits and events, up to what the claim covers', async () => {
  for (const [most, window] of [[1, 2], [1, 4], [2, 3]] as const) {
    const events = { most, window, usual: 0 };
    for (let n = 1; n <= 6; n++) {
      let reached = 0;
      const order = Array.from({ length: n }, (_, i) => i);
      for (let visits = 0; visits < 2 ** n; visits++) {
        for (let happened = visits; ; happened = (happened - 1) & visits) {
          const sent = await replay(order, visits, happened, events);
          assert.ok(!isCrowded(sent, events));
          for (const at of order.filter((i) => happened >> i & 1 && !sent.includes(i))) {
            assert.ok(isCrowded([...sent.filter((i) => i < at), at], events), `${visits} ${happened}: ${at} has room`);
          }
          reached = Math.max(reached, sent.length);
          if (happened === 0) break;
        }
      }
      const epochs = { start: 0, length: 60, count: n, events };
      assert.equal(reached, maxCopies({ epochs, noise: { kind: 'cells', cells: 3, batches: 0, rest: true } }, n));
    }
  }
});

test('events keep their allowance under any clock', async () => {
  const events = { most: 2, window: 4, usual: 0 };
  for (let turn = 0; turn < 300; turn++) {
    const order = Array.from({ length: 10 }, (_, i) => i).sort(() => Math.random() - .5);
    const sent = await replay(order, 1023, Math.floor(1024 * Math.random()), events);
    assert.ok(!isCrowded(sent, events), `${order}: ${sent}`);
  }
});

test('two events that change k letters each cost 2k copies, or k with a rest cell', () => {
  const epochs = { start: 0, length: 60, count: 365, events: { most: 1, window: 30, usual: 0 } };
  const noise = { kind: 'cells', cells: 2, batches: 0 };
  assert.equal(maxCopies({ epochs, noise }, 365), 26);
  assert.equal(maxCopies({ epochs, noise: { ...noise, rest: true } }, 365), 13);
  assert.equal(maxCopies({ epochs: { ...epochs, cap: { reports: 1, window: 73 } }, noise }, 365), 5);
  assert.equal(maxCopies({ epochs: { ...epochs, events: { most: 3, window: 4, usual: 0 } }, noise }, 365), 365);
});

test('a line with events is refused once its price would cover more epochs', () => {
  const price: Price = { first: { epsilon: 1e-3, delta: 1e-9 }, reports: 30, all: { epsilon: 1, delta: 1e-8 },
    events: true };
  const limit: Limit = { epsilon: 10, delta: .5, days: 30, option: 'budget' };
  const line = admit([], { id: 'a', price, length: 60 }, 0, limit);
  assert.equal(admit([line], { id: 'a', price, length: 60 }, 60, limit).runs[0]?.count, 2);
  for (const now of [{ ...price, reports: 31 }, { ...price, all: { epsilon: 1.1, delta: 1e-8 } },
    { ...price, all: { epsilon: .9, delta: 1e-7 } }, { ...price, events: undefined }]) {
    assert.throws(() => admit([line], { id: 'a', price: now, length: 60 }, 60, limit), { code: 'budget-exceeded' });
  }
});

test('a cap limits every pattern of visits to what the claim covers', () => {
  const price: Price = { first: { epsilon: 1e-3, delta: 1e-9 }, reports: 99, all: { epsilon: 1, delta: 1e-8 } };
  for (const cap of [{ reports: 1, window: 2 }, { reports: 2, window: 3 }, { reports: 2, window: 5 }]) {
    for (let n = 1; n <= 10; n++) {
      let most = 0;
      for (let pattern = 0; pattern < 2 ** n; pattern++) {
        const ledger = new Map<string, Line>();
        const made: number[] = [];
        for (let i = 0; i < n; i++) {
          const at = pattern % 3 === 1 ? n - 1 - i : i; // a clock that runs backwards
          if (!(pattern >> at & 1)) continue;
          const tried = [...made, at];
          const fits = tried.every((from) =>
            tried.filter((other) => other >= from && other < from + cap.window).length <= cap.reports);
          const verdict = spend(ledger, { line: 'a', price, start: 60 * at, length: 60, cap },
            { epsilon: 1e6, delta: 0.5, days: 365, option: 'budget' });
          assert.equal(verdict, fits ? 'admitted' : 'capped');
          if (fits) made.push(at);
        }
        most = Math.max(most, made.length);
      }
      assert.equal(most, maxReports({ start: 0, length: 60, count: n, cap }, n));
    }
  }
});

test('a pace limits every pattern of visits in each block, and never more than that', () => {
  const price: Price = { first: { epsilon: 1e-3, delta: 1e-9 }, reports: 99, all: { epsilon: 1, delta: 1e-8 } };
  const limit: Limit = { epsilon: 1e6, delta: 0.5, days: 365, option: 'budget' };
  const pace = { reports: 2, window: 4 };
  const cap = { reports: 6, window: 10 }; // as the pace allows in ten epochs
  const phases = new Set<number>();
  const n = 11;
  for (let pattern = 1; pattern < 2 ** n; pattern++) {
    let line: Line | undefined;
    for (let i = 0; i < n; i++) {
      const at = pattern % 3 === 1 ? n - 1 - i : i; // a clock that runs backwards
      if (!(pattern >> at & 1)) continue;
      const start: number = 60 * (1000 + at);
      const blockOf = (at: number): number => Math.floor((at - line!.block!) / 240);
      const reported = (line?.runs ?? [])
        .flatMap((run) => Array.from({ length: run.count }, (_, j) => run.start + 60 * j));
      const made: number = reported.filter((other) => blockOf(other) === blockOf(start)).length;
      const first = { id: 'a', price, length: 60 };
      const ask = (): Line => admit(line ? [line] : [], first, start, limit, { cap, pace });
      if (made < pace.reports) line = ask();
      else assert.throws(ask, { code: 'cap-reached' }, 'and never by the cap');
      phases.add((start - line!.block!) / 60);
    }
    assert.ok(line!.block! % 60 === 0);
  }
  assert.ok([0, 1, 2, 3].every((phase) => phases.has(phase))); // Missing one by chance: below 0.75^2000.
});

test('three lines of .1 fit into .3 despite binary rounding; four do not', () => {
  const tenth: Price = { first: { epsilon: 0.1, delta: 1e-6 }, reports: 1, all: { epsilon: 0.1, delta: 1e-6 } };
  for (const spent of [{ epsilon: 0.3, delta: 3e-6 }, { epsilon: 0.3, delta: 0.1 }, { epsilon: 3, delta: 3e-6 }]) {
    const ledger = new Map<string, Line>();
    const verdicts = ['a', 'b', 'c', 'd'].map((line, i) =>
      spend(ledger, { line, price: tenth, start: i, length: 60 }, { ...spent, days: 30, option: 'budget' }));
    assert.deepEqual(verdicts, ['admitted', 'admitted', 'admitted', 'budget']);
  }
});

test('a report that was not randomized is removed from the ledger', () => {
  const limit: Limit = { epsilon: 5, delta: 1e-3, days: 30, option: 'budget' };
  const price = { first: { epsilon: 1, delta: 1e-6 }, reports: 30, all: { epsilon: 5, delta: 3e-5 } };
  let line = admit([], { id: 'a', price, length: 60 }, 600, limit);
  for (const start of [660, 720, 780]) line = admit([line], { id: 'a', price, length: 60 }, start, limit);
  assert.deepEqual(line.runs, [{ start: 600, count: 4 }]);
  assert.deepEqual(withoutEpoch(line, 660).runs, [{ start: 600, count: 1 }, { start: 720, count: 2 }]);
  assert.throws(() => admit([line], { id: 'a', price, length: 60 }, 610, limit), /already/);
});

const day = 86_400;

test('a report counts in every window of the budget around it, and in no other', () => {
  const price: Price = { first: { epsilon: 1, delta: 1e-6 }, reports: 1, all: { epsilon: 1, delta: 1e-6 } };
  const limit: Limit = { epsilon: 1, delta: 1e-5, days: 30, option: 'budget' };
  const [at, length] = [1_800_000_000, 3600];
  const lines = [admit([], { id: 'a', price, length }, at, limit)];
  for (const away of [-30 * day, 30 * day]) {
    admit(lines, { id: 'b', price, length }, at + away, limit); // The entry has expired.
    const inside = at + away - Math.sign(away);
    assert.throws(() => admit(lines, { id: 'b', price, length }, inside, limit), { code: 'budget-exceeded' });
  }
});

const single: Price = { first: { epsilon: 1, delta: 1e-6 }, reports: 1, all: { epsilon: 1, delta: 1e-6 } };
/** A claim on an epoch of a day, of a task that costs (1, 10⁻⁶). */
const claimOn = (epoch: number, sample: number): Claim => ({ task: 'a', epoch, start: epoch * day, sample, next: null,
  line: { id: 'a', price: single, length: day },
  limit: { epsilon: 1, delta: 1, days: Infinity, option: 'maxTotalEpsilon' } });

test('a browser takes part in an epoch with the probability sample', async () => {
  const draws = 50_000;
  const empty: Store = { ...memoryStore(), put: async () => {},
    claim: async (_task, _epoch, permit) => void permit([]) };
  for (const sample of [0.1, 0.7]) {
    let drawn = 0;
    for (let i = 0; i < draws; i++) if (!(await ledgerOf(empty).claim(claimOn(7, sample)))) drawn++;
    // Hoeffding: a right draw fails with a probability of at most 2·exp(−2t²/n) = 10⁻⁶ each.
    const most = Math.sqrt((draws * Math.log(2e6)) / 2);
    assert.ok(Math.abs(drawn - draws * sample) <= most, `${drawn} of ${draws} at ${sample}, which may differ by ${most}`);
  }
});

test('two tabs share one draw of an epoch, whatever their probabilities', async () => {
  const seen = new Set<unknown>();
  for (let i = 0; i < 200; i++) {
    const store = memoryStore();
    const [mine, other] = await Promise.all([0.5, 1].map((sample) => ledgerOf(store).claim(claimOn(7, sample))));
    assert.ok(other, 'the other tab drew, too');
    assert.deepEqual((await store.lines()).map(({ runs }) => runs), [mine ? [] : [{ start: 7 * day, count: 1 }]]);
    seen.add(mine?.state);
  }
  assert.equal(seen.size, 2); // A right draw fails with a probability of 2⁻¹⁹⁹.
});

test('a claim that is taken back leaves no charge, and its draw stands', async () => {
  const store = memoryStore();
  const [ledger, claim] = [ledgerOf(store), claimOn(7, 1)];
  assert.equal(await ledger.claim(claim), undefined);
  await ledger.release(claim);
  assert.deepEqual((await store.lines()).map(({ runs, latest }) => [runs, latest]), [[[], undefined]]);
  assert.equal(await ledger.claim(claimOn(7, 0)), undefined, 'drawn anew');
  await store.update('a', 7, (old) => ({ ...old, state: 'dropped' })); // Another tab withdraws it.
  await ledger.release(claim);
  assert.equal((await ledger.claim(claim))?.state, 'dropped', 'a withdrawn epoch is reported');
  assert.equal((await ledger.claim(claimOn(8, 0)))?.state, 'left-out', 'the draw of another epoch');
});

test('an epoch that the draw leaves out costs nothing, and does not fix how its line is charged', async () => {
  const price: Price = { first: { epsilon: 1, delta: 1e-6 }, reports: 30, all: { epsilon: 5, delta: 3e-5 } };
  const limit: Limit = { epsilon: 5, delta: 1e-3, days: 30, option: 'budget' };
  const store = memoryStore();
  const claim = (id: string, epoch: number, sample: number) => ledgerOf(store).claim({ task: id, epoch,
    start: epoch * day, next: null, sample, line: { id, price, length: day }, limit });
  assert.equal((await claim('a', 0, 0))?.state, 'left-out');
  assert.equal((await claim('b', 0, 1)), undefined, 'all of the budget is left for another task');
  await assert.rejects(claim('a', 1, 1), { code: 'budget-exceeded' });
  const stepped = memoryStore();
  const small = { ...limit, epsilon: 4 };
  const first = { id: 'a', price, length: day };
  await ledgerOf(stepped).claim({ task: 'a', epoch: 0, start: 0, next: null, sample: 0, line: first, limit: small });
  await ledgerOf(stepped).claim({ task: 'a', epoch: 1, start: day, next: null, sample: 1, line: first, limit: small });
  assert.deepEqual((await stepped.lines()).map((line) => line.stepped), [true], 'all its epochs do not fit');
});
const monthly: Price = { first: { epsilon: 1, delta: 1e-6 }, reports: 30, all: { epsilon: 5.25, delta: 3e-5 } };
const limit: Limit = { epsilon: 10.5, delta: 6e-5, days: 90, option: 'budget' };

/**
 * Returns on which days a daily visitor reports, with each day's task. A new task begins every 30 days. `wiped` says on
 * which days the storage is emptied.
 */
function visit(days: number, wiped: (day: number) => boolean): [task: number, day: number][] {
  let lines = new Map<string, Line>();
  const made: [number, number][] = [];
  for (let today = 0; today < days; today++) {
    if (wiped(today)) lines = new Map();
    const task = Math.floor(today / 30);
    if (spend(lines, { line: `${task}`, price: monthly, start: today * day, length: day }, limit) === 'admitted') {
      made.push([task, today]);
    }
  }
  return made;
}

/**
 * Returns the ε of the most expensive window. The costs of different tasks add up, and each task counts with the cost
 * of all its epochs.
 */
function dearest(made: [task: number, day: number][]): number {
  return Math.max(...made.map(([, first]) => {
    const tasks = new Set(made.filter(([, at]) => at >= first && at < first + limit.days).map(([task]) => task));
    return tasks.size * monthly.all.epsilon;
  }));
}

test('400 days, a task a month: no window is above the budget, unless the storage is wiped weekly', () => {
  const kept = visit(400, () => false);
  assert.ok(dearest(kept) <= limit.epsilon);
  assert.ok(kept.length > 60 && kept.length < 400, `${kept.length} reports`);
  const wiped = visit(400, (today) => today % 7 === 0);
  assert.equal(wiped.length, 400);
  console.log(`the worst ${limit.days} days cost ε ${dearest(kept)}, with storage wiped every 7 days ` +
    `ε ${dearest(wiped)}; budget ε ${limit.epsilon}`);
  assert.equal(dearest(wiped), 4 * monthly.all.epsilon);
});

test('years of daily reports are one run', async () => {
  const store = memoryStore();
  const limit: Limit = { epsilon: 10, delta: 1e-5, days: 365, option: 'budget' };
  const price = { first: { epsilon: 1, delta: 1e-8 }, reports: 365, all: { epsilon: 10, delta: 1e-5 } };
  for (let today = 0; today < 800; today++) {
    await store.claim('task', today, (lines) => admit(lines, { id: 'a', price, length: day }, today * day, limit));
  }
  assert.deepEqual((await store.lines()).map(({ runs }) => runs), [[{ start: 0, count: 800 }]]);
});
