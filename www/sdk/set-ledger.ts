/**
 * The record of a set on a device: what was reported to its tables, and the day's submission. One transaction changes
 * both. It is one line of the ledger, whose whole total counts in a window as soon as one of its reports does
 * (docs/proofs/sets.md). By reports alone, a claim of a day decides to which tables the browser reports.
 * @module
 */

import { type Limit, checkCap, checkPace, checkWindows, drawBlock, overlapsReport, withEpoch, withEvent } from './budget.js';
import type { Bytes } from './bytes.js';
import { DoonaError } from './errors.js';
import { tagsOf } from './set-seal.js';
import { randomTags } from './seal.js';
import type { Cost, Line, Report, Run } from './store.js';
import type { Records } from './store-indexeddb.js';
import type { Cap, Events } from './task.js';

/** Runs one transaction over the ledger and the reports. */
export type Transact = <T>(durability: IDBTransactionDurability, work: (records: Records) => Promise<T>) => Promise<T>;

/** What the ledger knows of a table on a day. */
export interface TableDay {
  /** Whether the table takes a value on the day: it has an epoch then, and is not bare. */
  readonly open: boolean;
  /** When its epoch begins, in Unix seconds. */
  readonly start: number;
  /** The length of its epochs, as in its task. */
  readonly length: number;
  readonly cap?: Cap | undefined;
  readonly pace?: Cap | undefined;
  readonly events?: Events | undefined;
  /** What it reports without another value. Empty unless it is open. */
  readonly usual: readonly number[];
}

/** A request to claim a day of a set. */
export interface DayClaim {
  /** The ids of the set at position 0, and of this one, in hexadecimal. */
  readonly root: string;
  readonly set: string;
  readonly position: number;
  /** The fingerprint of what a renewal may not change. */
  readonly pin: string;
  /** The number of the day, when it begins and ends in Unix seconds, and the length of a day as in the first task. */
  readonly day: number;
  readonly start: number;
  readonly end: number;
  readonly length: number;
  readonly total: Cost;
  readonly limit: Limit;
  readonly tables: readonly TableDay[];
  /** The number of hops of a slot. */
  readonly hops: number;
  /** The time, in Unix milliseconds. */
  readonly now: number;
  /** If a page has left on this day: the version of the draft that it sent. */
  readonly left?: number | undefined;
}

/** What a line of the ledger has of a set's table. */
interface TableState {
  /** The epochs with a report, ascending and disjoint. */
  readonly runs: readonly Run[];
  /** When a block of the table's pace begins, in Unix seconds; drawn with the first report. */
  readonly block?: number | undefined;
  /** When the epochs of the last events begin, ascending. */
  readonly events?: readonly number[];
}

/** The ledger's line of a set. Its runs are the days that count: see {@link claimDay}. */
export interface SetLine extends Line {
  readonly set: {
    readonly pin: string;
    /** The last set that was seen: its position and its id. */
    readonly position: number;
    readonly id: string;
    /** When the highest day begins that was claimed, in Unix seconds. */
    readonly day: number;
    readonly tables: readonly TableState[];
  };
}

/**
 * The submission of the highest day that was claimed. It is stored as a report: state `sealed` with tags is a draft,
 * `sealed` without tags has left. Its task is the id of the set at position 0, and its epoch 0.
 */
export interface DayRecord extends Report {
  /** The set's id in hexadecimal, the number of its day, and when that begins, in Unix seconds. */
  readonly set: string;
  readonly day: number;
  readonly start: number;
  /** Counts the changes of this record. */
  readonly version: number;
  /**
   * For each table, whether the browser reports to it on this day, and its value; only in a draft. A later page seals
   * all of them anew.
   */
  readonly due?: readonly boolean[];
  readonly values?: readonly (readonly number[])[];
}

/** A draft: a record whose values a later one may replace. */
export type DayDraft = DayRecord & Required<Pick<DayRecord, 'due' | 'values' | 'tags' | 'leaveAt'>>;

/** A submission leaves within this time before the day ends if the visitor has not left by then, in milliseconds. */
const lastMoments = 1_800_000;

/** More reports than any window has: the line then always costs its whole total. */
const allReports = 2 ** 40;

/** Whether a record is a draft. */
export function isDraft(record: DayRecord | undefined): record is DayDraft {
  return record?.state === 'sealed' && record.tags !== undefined;
}

/**
 * Claims a day: decides which tables are due, marks their epochs, draws the tags and the moment, and stores the
 * defaults as a draft without bytes. If the day is claimed already, returns its record, or undefined if there is none.
 *
 * The line counts the day, and each day on which the epoch of a slow table began to which it reports.
 * @throws DoonaError `set-forked`, `budget-exceeded`, `storage-unavailable`; `cap-reached` for a day before the highest
 * one that was claimed
 */
export function claimDay(transact: Transact, claim: DayClaim): Promise<DayRecord | undefined> {
  return transact('strict', async (records) => {
    const lines = await records.lines();
    const old = lines.find(({ id }) => id === claim.root) as SetLine | undefined;
    if (old) checkSeen(old, claim);
    if (old && claim.start < old.set.day) {
      throw new DoonaError('cap-reached', "couldn't claim the day: a later one was claimed, so the clock was turned back");
    }
    if (old?.set.day === claim.start) {
      const record = (await records.report(claim.root, 0)) as DayRecord | undefined;
      if (record?.start !== claim.start) return undefined; // It was withdrawn.
      const now = isDraft(record) && claim.left !== undefined ? afterLoss(record, claim.left) : record;
      if (now !== record) records.putReport(now);
      return now;
    }
    const states = claim.tables.map((table, i) => withReport(table, old?.set.tables[i]));
    const due = states.map((state) => state !== undefined);
    records.putLine(admitDay(lines, old, claim, states));
    const values = claim.tables.map(({ usual }, i) => (due[i] ? usual : []));
    const record: DayRecord = { task: claim.root, epoch: 0, state: 'sealed', set: claim.set, day: claim.day,
      start: claim.start, version: 0, due, values, tags: randomTags(tagsOf(claim.tables.length, claim.hops)),
      leaveAt: leaveTime(claim) };
    records.putReport(record);
    return record;
  });
}

/** @throws DoonaError `set-forked` unless a set is the one that was seen, or may follow it */
function checkSeen({ set }: SetLine, { pin, position, set: id }: DayClaim): void {
  if (set.pin !== pin) throw forked('it changes what a renewal may not change');
  if (position < set.position) throw forked(`its position is ${position}, and position ${set.position} was seen`);
  if (position === set.position && id !== set.id) throw forked(`another set was seen at position ${position}`);
}

function forked(why: string): DoonaError {
  return new DoonaError('set-forked', `couldn't accept the set: ${why}`);
}

/** Returns a table's state with a report in the day's epoch; undefined if the table is not due. */
function withReport({ open, start, length, cap, pace }: TableDay,
  old: TableState = { runs: [] }): TableState | undefined {
  const line = lineOf(old, length);
  if (!open || overlapsReport(line, start, length)) return undefined;
  const block = pace && (old.block ?? drawBlock(start, length, pace));
  try {
    if (pace) checkPace(line, start, pace, block!);
    if (cap) checkCap(line, start, cap);
  } catch {
    return undefined;
  }
  return { ...old, runs: withEpoch(old.runs, start, length), ...(block !== undefined && { block }) };
}

/** Returns a table's state as a line of the ledger, for the rules of caps, paces and events. */
function lineOf(state: TableState, length: number): Line {
  const none = { epsilon: 0, delta: 0 };
  return { id: '', price: { first: none, reports: 1, all: none }, stepped: false, length, ...state };
}

/** Returns the set's line with a submission on the day. @throws DoonaError `budget-exceeded` */
function admitDay(lines: readonly Line[], old: SetLine | undefined, claim: DayClaim,
  states: readonly (TableState | undefined)[]): SetLine {
  const { root, set: id, position, pin, start, length, total, limit } = claim;
  const tables = states.map((state, i) => state ?? old?.set.tables[i] ?? { runs: [] });
  let line: SetLine = { id: root, price: { first: total, reports: allReports, all: total }, stepped: false, length,
    runs: old?.runs ?? [], set: { pin, position, id, day: start, tables } };
  const counted = [start, ...claim.tables.filter((_, i) => states[i]).map((table) => table.start)];
  for (const at of counted) {
    if (!overlapsReport(line, at, length)) line = { ...line, runs: withEpoch(line.runs, at, length) };
  }
  const others = lines.filter((one) => one.id !== root);
  for (const at of counted) checkWindows([...others, line], at, limit);
  return line;
}

/** Draws when the day's submission leaves at the latest, in Unix milliseconds. */
function leaveTime({ end, now }: DayClaim): number {
  const last = 1000 * end;
  const first = Math.max(now, last - lastMoments);
  return first + Math.floor((last - first) * (crypto.getRandomValues(new Uint32Array(1))[0]! / 2 ** 32));
}

/**
 * Returns a draft that a page has sent without being able to say so here. If these are the bytes that it sent, they may
 * be sent again. Otherwise nothing more leaves: other bytes would tell the first relay of a later value.
 */
function afterLoss(draft: DayDraft, version: number): DayRecord {
  return version === draft.version && draft.body ? leftRecord(draft, draft.body) : closedRecord(draft, 'dropped');
}

function leftRecord({ task, set, day, start, version, token }: DayRecord, body: Bytes): DayRecord {
  return { task, epoch: 0, state: 'sealed', set, day, start, version, body, ...(token && { token }) };
}

function closedRecord({ task, set, day, start, version }: DayRecord, state: 'delivered' | 'dropped'): DayRecord {
  return { task, epoch: 0, state, set, day, start, version };
}

/** A later value of a table. */
export interface ValueChange {
  readonly table: number;
  readonly value: readonly number[];
  /** Whether it counts against the table's allowance. */
  readonly isEvent: boolean;
}

/**
 * What became of a value: `kept` in the draft. `not-due`: the browser does not report to this table on this day.
 * `allowance`: the allowance of events is used up, so the default is sent. `late`: the submission has left.
 */
export type Outcome = 'kept' | 'not-due' | 'allowance' | 'late';

/**
 * Puts values into the day's draft, and counts events in the same transaction. Returns the record, and what became of
 * each value. `claim` names the day.
 * @throws DoonaError `storage-unavailable`
 */
export function putValues(transact: Transact, claim: Pick<DayClaim, 'root' | 'start' | 'tables'>,
  changes: readonly ValueChange[]): Promise<{ readonly record: DayRecord | undefined; readonly outcomes: Outcome[] }> {
  return transact('strict', async (records) => {
    const record = (await records.report(claim.root, 0)) as DayRecord | undefined;
    const line = (await records.lines()).find(({ id }) => id === claim.root) as SetLine | undefined;
    if (!line || !isDraft(record) || record.start !== claim.start) {
      return { record: record?.start === claim.start ? record : undefined, outcomes: changes.map(() => 'late' as const) };
    }
    const [values, tables] = [[...record.values], [...line.set.tables]];
    const outcomes = changes.map(({ table, value, isEvent }): Outcome => {
      const { start, length, events, usual } = claim.tables[table]!;
      if (!record.due[table]) return 'not-due';
      const counted = isEvent ? withEvent(lineOf(tables[table]!, length), start, events!) : undefined;
      if (counted) tables[table] = { ...tables[table]!, events: counted.events! };
      const isAllowed = !isEvent || counted !== undefined;
      values[table] = isAllowed ? value : usual;
      return isAllowed ? 'kept' : 'allowance';
    });
    const next: DayDraft = { ...record, values, version: record.version + 1 };
    records.putLine({ ...line, set: { ...line.set, tables } } as SetLine);
    records.putReport(next);
    return { record: next, outcomes };
  });
}

/**
 * Stores the bytes that were sealed from a draft, unless it has changed since. Returns the record that the store then
 * has; its version is one above the draft's if the bytes are stored.
 * @throws DoonaError `storage-unavailable`
 */
export function putBody(transact: Transact, draft: DayDraft, body: Bytes): Promise<DayRecord | undefined> {
  return change(transact, draft, (now) => (isDraft(now) && now.version === draft.version
    ? { ...now, body, version: now.version + 1 } : undefined));
}

/** Records that bytes of the day leave. No later value replaces them; tags and values are deleted. */
export function putLeft(transact: Transact, day: Pick<DayRecord, 'task' | 'start'>,
  body: Bytes): Promise<DayRecord | undefined> {
  return change(transact, day, (now) => (isDraft(now) ? leftRecord(now, body) : undefined));
}

/** Stores the token of a submission that has none and was not delivered. */
export function putToken(transact: Transact, day: Pick<DayRecord, 'task' | 'start'>,
  token: Bytes): Promise<DayRecord | undefined> {
  return change(transact, day, (now) => (now.state === 'sealed' && !now.token ? { ...now, token } : undefined));
}

/** Records that the day's submission was delivered or dropped. */
export function putClosed(transact: Transact, day: Pick<DayRecord, 'task' | 'start'>,
  state: 'delivered' | 'dropped'): Promise<DayRecord | undefined> {
  return change(transact, day, (now) => (now.state === 'sealed' ? closedRecord(now, state) : undefined));
}

/** Returns the day's record; undefined if it was withdrawn. */
export function recordOf(transact: Transact, day: Pick<DayRecord, 'task' | 'start'>): Promise<DayRecord | undefined> {
  return change(transact, day, () => undefined);
}

function change(transact: Transact, { task, start }: Pick<DayRecord, 'task' | 'start'>,
  next: (now: DayRecord) => DayRecord | undefined): Promise<DayRecord | undefined> {
  return transact('relaxed', async (records) => {
    const now = (await records.report(task, 0)) as DayRecord | undefined;
    if (now?.start !== start) return undefined;
    const record = next(now);
    if (record) records.putReport(record);
    return record ?? now;
  });
}
