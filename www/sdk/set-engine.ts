/**
 * The engine of a page with a set. On a page it runs in a worker if one can start. It checks the set, its total and its
 * keys, claims days, and seals every value. The page fetches documents and sends what is sealed.
 * @module
 */

import { type Limit, checkBudget } from './budget.js';
import { type Bytes, equal, toHex } from './bytes.js';
import { type ModuleCode, compile, nullIfStopped } from './engine.js';
import { addEpochs, blockOf } from './epochs.js';
import { DoonaError } from './errors.js';
import { type ModuleName, ModuleStopped } from './module.js';
import { withOpenErrors, withRandomizeErrors } from './reporter.js';
import { type ClockKeys, type TableSet, copiesOf, epochOn, parseKeys, parseSet } from './set.js';
import { type DayClaim, type DayDraft, type DayRecord, type Outcome, type Transact, type ValueChange, claimDay, isDraft,
  putBody, putClosed, putLeft, putToken, putValues, recordOf } from './set-ledger.js';
import { SetModule } from './set-module.js';
import { SetSealer } from './set-seal.js';
import { transact as withIndexedDB } from './store-indexeddb.js';
import { isUsual, usualInput } from './value.js';

/** A bundle of a set, and the owner and id that it must have. */
export interface SetRequest {
  readonly bundle: Bytes;
  readonly owner: Bytes;
  readonly id: Bytes;
  readonly module: ModuleName;
}

/** A set that passed every check: what the page needs of it. */
export interface OpenedSet extends Pick<TableSet, 'name' | 'trial' | 'total' | 'tables' | 'through'> {
  readonly handle: number;
  /** The ids of the set and of the set at position 0, in hexadecimal. */
  readonly id: string;
  readonly root: string;
}

/** A day of an open set. */
export interface DayRequest {
  readonly handle: number;
  readonly day: number;
  readonly limit: Limit;
  /** What each table reports without another value; empty for a bare table. */
  readonly usual: readonly (readonly number[])[];
  /** The time, in Unix milliseconds. */
  readonly now: number;
  /** If a page has left on this day: the version of the draft that it sent. */
  readonly left?: number | undefined;
}

/** The submission of a day. */
export interface DayView {
  /** `none`: it was withdrawn. `left`: only the same bytes may be sent again. */
  readonly state: 'draft' | 'left' | 'delivered' | 'dropped' | 'none';
  /** The bytes to send; of a draft those that this call sealed. */
  readonly body?: Bytes;
  readonly version: number;
  /** When a draft leaves at the latest, in Unix milliseconds. */
  readonly leaveAt: number;
  /** For each table of a draft, whether the browser reports to it. */
  readonly due: readonly boolean[];
  readonly outcomes: readonly Outcome[];
  /** The submission's token, once the issuer has signed it. */
  readonly token?: Bytes | undefined;
}

/**
 * The interface of the engine, in this thread or in a worker. A result of null means that the caller must start
 * doona-full.wasm and call `move`: the module stopped, or lacks the protocol of a table.
 */
export interface SetEngine {
  /** Starts a module unless it runs. @throws DoonaError `module-failed` */
  start(name: ModuleName, code: ModuleCode): Promise<true | null>;
  /** Checks a set, each table's claim and the total. @throws DoonaError `set-refused` or `claim-refused` */
  open(request: SetRequest): Promise<OpenedSet | null>;
  /** Opens the set's tables in doona-full.wasm. @throws DoonaError `module-failed` */
  move(handle: number): Promise<true>;
  /** Checks the keys of a block of a clock. Returns the block. @throws DoonaError `set-refused` or `task-refused` */
  keys(handle: number, clock: number, bytes: Bytes): Promise<number>;
  /** Checks that the total fits into the budget. @throws DoonaError `epsilon-too-large` or `invalid-option` */
  fit(handle: number, limit: Limit): Promise<true>;
  /** Claims the day unless it is claimed, and seals its draft anew. @throws DoonaError as claimDay */
  today(request: DayRequest): Promise<DayView | null>;
  /** Puts values into the draft and seals it anew; also without values. @throws DoonaError `invalid-value` */
  change(request: DayRequest,
    values: readonly (readonly [table: number, value: Float64Array])[]): Promise<DayView | null>;
  /** Returns the day's state, and bytes that have left. */
  state(handle: number, day: number): Promise<DayView>;
  left(handle: number, day: number, body: Bytes): Promise<void>;
  /** Returns the id of the issuer's key of a day, in a set with tokens. The day's keys must be here. */
  tokenKey(handle: number, day: number): Promise<Bytes>;
  /** Stores the submission's token, unless it has one. Returns the day's state. */
  token(handle: number, day: number, token: Bytes): Promise<DayView>;
  closed(handle: number, day: number, state: 'delivered' | 'dropped'): Promise<void>;
}

/** A set that is open in a module. */
interface Held {
  readonly set: TableSet;
  readonly root: string;
  /** The keys of the blocks that were given, by clock and block. */
  readonly keys: Map<string, ClockKeys>;
  module: ModuleName;
  /** The tables' handles in the module. */
  handles: readonly number[];
  /** What seals the submissions of a day. */
  sealer?: { readonly day: number; readonly sealer: SetSealer } | undefined;
  /** The sealed slots of the draft that this engine stored last. */
  kept?: Kept | undefined;
  /** The last day on which this page has sent its submission. */
  left?: number | undefined;
}

/** The sealed slots of a stored draft, with its version and tags. */
interface Kept {
  readonly version: number;
  readonly tags: Bytes;
  readonly slots: readonly Bytes[];
}

/** What a call has changed: the version of the draft before, and the tables. */
interface Changed {
  readonly version: number;
  readonly tables: readonly number[];
}

/** How often one call seals the day at most: each turn takes a change by another tab. */
const maxTurns = 8;

/** Returns an engine that runs in the calling thread. It calls `decides` before each decision. */
export function localSetEngine(decides: () => void = () => {}, transact: Transact = withIndexedDB): SetEngine {
  const modules = new Map<ModuleName, Promise<SetModule>>();
  const sets: Held[] = [];
  const running = (name: ModuleName) => {
    const found = modules.get(name);
    if (!found) throw new DoonaError('module-failed', `couldn't open the set: module ${name} has not been started`);
    return found;
  };
  const nullIfNeeded = <T>(handle: number, work: (held: Held) => Promise<T>) =>
    nullIfStopped(sets[handle]!.module, () => (decides(), work(sets[handle]!)));
  return {
    start: (name, code) => nullIfStopped<true>(name, async () => {
      let module = modules.get(name);
      if (!module) {
        module = compile(name, code).then((compiled) => SetModule.start(compiled, name === 'full'));
        modules.set(name, module);
        module.catch((cause) => {
          if (name === 'full' || !(cause instanceof ModuleStopped)) modules.delete(name); // A retry may succeed.
        });
      }
      await module;
      return true;
    }),
    open: ({ bundle, owner, id, module: name }) => nullIfStopped<OpenedSet | null>(name, async () => {
      const set = await parseSet(bundle, owner, id);
      checkUsable(set);
      const handles = openTables(await running(name), set, name);
      if (!handles) return null;
      checkTotal(await running(name), set, handles);
      const root = toHex(set.root);
      sets.push({ set, root, keys: new Map(), module: name, handles });
      const { name: title, trial, total, tables, through } = set;
      return { handle: sets.length - 1, id: toHex(set.id), root, name: title, trial, total, tables, through };
    }),
    async move(handle) {
      const held = sets[handle]!;
      held.handles = openTables(await running('full'), held.set, 'full')!;
      held.module = 'full';
      return true;
    },
    async keys(handle, clock, bytes) {
      const { set, keys } = sets[handle]!;
      const found = await parseKeys(set, clock, bytes);
      const block = blockOf(found.first);
      keys.set(`${clock} ${block}`, found);
      return block;
    },
    async fit(handle, limit) {
      const { total } = sets[handle]!.set;
      if (limit.days > total.days) {
        throw new DoonaError('invalid-option', `invalid budget.days ${limit.days}: want at most ${total.days}, the days ` +
          "of the set's total", 'budget');
      }
      checkBudget({ first: total, reports: 1, all: total }, limit);
      return true;
    },
    today: (request) => nullIfNeeded(request.handle, async (held) => {
      sealerOf(held, request.day); // It imports the keys while the store answers.
      const record = await claimDay(transact, claimOf(held, request));
      return sealed(transact, held, await running(held.module), record, { version: record?.version ?? 0, tables: [] });
    }),
    change: (request, values) => nullIfNeeded(request.handle, async (held) => {
      const module = await running(held.module);
      try {
        const changes = values.map(([table, value]) => changeOf(held, module, table, value));
        const { record, outcomes } = await putValues(transact, claimOf(held, request), changes);
        const changed = { version: (record?.version ?? 0) - 1, tables: values.map(([table]) => table) };
        return { ...await sealed(transact, held, module, record, changed), outcomes };
      } finally {
        for (const [, value] of values) value.fill(0);
      }
    }),
    state: async (handle, day) => viewOf(await recordOf(transact, nameOf(sets[handle]!, day))),
    async tokenKey(handle, day) {
      const { first, tokenKeys } = sets[handle]!.keys.get(`0 ${blockOf(day)}`)!;
      return tokenKeys[day - first]!;
    },
    token: async (handle, day, token) => viewOf(await putToken(transact, nameOf(sets[handle]!, day), token)),
    async left(handle, day, body) {
      sets[handle]!.left = day;
      await putLeft(transact, nameOf(sets[handle]!, day), body);
    },
    closed: async (handle, day, state) => void (await putClosed(transact, nameOf(sets[handle]!, day), state)),
  };
}

/** @throws DoonaError `set-refused` for a set that this version cannot use */
function checkUsable({ tables }: TableSet): void {
  const { kem } = tables[0]!.task;
  if (kem === 'x25519') return;
  throw new DoonaError('set-refused', `couldn't use the set: invalid kem ${kem}: want x25519: this version seals no set ` +
    'by another KEM', 'kem');
}

/**
 * Opens the set's tables in a module, which checks their claims. Returns their handles, or undefined if the module
 * lacks a protocol.
 * @throws DoonaError `claim-refused` or `task-refused`
 */
function openTables(module: SetModule, { tables }: TableSet, name: ModuleName): number[] | undefined {
  const handles: number[] = [];
  for (const table of tables) {
    try {
      handles.push(withOpenErrors(() => module.open(table.canonical)));
    } catch (cause) {
      if (!(cause instanceof DoonaError)) throw cause;
      if (name !== 'full' && cause.field === 'protocol') return undefined;
      const field = cause.field === undefined ? `tables.${table.name}` : `tables.${table.name}.${cause.field}`;
      throw new DoonaError(cause.code, `table ${table.name}: ${cause.message}`, field, { cause });
    }
  }
  return handles;
}

/** @throws DoonaError `claim-refused` unless all copies of all tables' laws have the total */
function checkTotal(module: SetModule, set: TableSet, handles: readonly number[]): void {
  const { epsilon, delta, days } = set.total;
  const copies = set.tables.map((table, i) => [handles[i]!, copiesOf(set, table)] as const);
  const found = copies.every(([, count]) => count < 2 ** 32) ? module.setDelta(epsilon, delta, copies) : 1;
  if (found <= delta) return;
  throw new DoonaError('claim-refused', `couldn't accept the set: invalid total.delta ${delta}: want at least ${found}, ` +
    `the delta of all tables together in ${days} days at epsilon ${epsilon}`, 'total.delta');
}

function claimOf({ set, root }: Held, { day, limit, usual, now, left }: DayRequest): DayClaim {
  const days = set.tables[0]!.task.epochs;
  const { epsilon, delta } = set.total;
  const tables = set.tables.map(({ task: { epochs }, bare }, i) => {
    const { epoch, open } = epochOn(set, i, day);
    return { open: open && !bare, start: addEpochs(epochs.length, epochs.start, epoch), length: epochs.length,
      cap: epochs.cap, pace: epochs.pace, events: epochs.events, usual: open && !bare ? usual[i]! : [] };
  });
  const [start, end] = [day, day + 1].map((n) => addEpochs(days.length, days.start, n));
  return { root, set: toHex(set.id), position: set.position, pin: set.pin,
    day, start: start!, end: end!, length: days.length, total: { epsilon, delta }, limit, tables,
    hops: set.tables[0]!.task.relays.length, now, left };
}

/** Checks a value by randomizing it once: nothing changes if the module refuses it. */
function changeOf({ set, handles }: Held, module: SetModule, table: number, value: Float64Array): ValueChange {
  const { task } = set.tables[table]!;
  const isEvent = task.epochs.events !== undefined && !isUsual(task, value);
  withRandomizeErrors(() => module.slot(handles[table]!, value, sizeOf(set, table))).fill(0);
  return { table, value: isEvent || !task.epochs.events ? [...value] : [...usualInput(task)], isEvent };
}

/** Returns the size of a table's plaintext slot: kind and message. */
function sizeOf({ tables }: TableSet, table: number): number {
  return 1 + tables[table]!.task.slots.messageBytes;
}

/** Seals a draft and stores its bytes. If another tab changes the draft meanwhile, seals that. */
async function sealed(transact: Transact, held: Held, module: SetModule, record: DayRecord | undefined,
  changed: Changed): Promise<DayView> {
  for (let turns = 0; turns < maxTurns; turns++) {
    if (!isDraft(record)) return viewOf(record);
    const { body, slots } = await seal(held, module, record, turns === 0 ? keptOf(held, record, changed) : []);
    const now = await putBody(transact, record, body);
    if (isDraft(now) && now.version === record.version + 1 && now.body === body) {
      held.kept = { version: now.version, tags: now.tags, slots };
      return { ...viewOf(now), body };
    }
    record = now;
  }
  throw new DoonaError('storage-unavailable', `the day's draft changed ${maxTurns} times while it was sealed`, 'store');
}

/**
 * Returns the sealed slots of tables that have not changed since this engine stored them. Slots that may have left are
 * never kept: a first relay that has two submissions of a day must not see which tables differ.
 */
function keptOf({ kept, left }: Held, { day, tags }: DayDraft,
  { version, tables }: Changed): readonly (Bytes | undefined)[] {
  if (!kept || kept.version !== version || !equal(kept.tags, tags) || left === day) return [];
  return kept.slots.map((slot, i) => (tables.includes(i) ? undefined : slot));
}

/** Seals the tables that are not in `kept`, and all slots together. */
async function seal(held: Held, module: SetModule, { day, due, values, tags }: DayDraft,
  kept: readonly (Bytes | undefined)[]): Promise<{ readonly body: Bytes; readonly slots: readonly Bytes[] }> {
  const { set, handles } = held;
  const slots = set.tables.map((_, i) => {
    if (kept[i] || !due[i]) return new Uint8Array(sizeOf(set, i)); // a cover, unless it is kept
    const value = new Float64Array(values[i]!);
    const slot = withRandomizeErrors(() => module.slot(handles[i]!, value, sizeOf(set, i)));
    value.fill(0);
    return slot;
  });
  try {
    const sealer = sealerOf(held, day);
    const all = await Promise.all(slots.map((slot, i) => kept[i] ?? sealer.slot(i, slot, tags)));
    return { body: await sealer.submission(all, tags), slots: all };
  } catch (cause) {
    if (cause instanceof DoonaError) throw cause;
    throw new DoonaError('task-refused', `couldn't seal to the set's keys: ${(cause as Error).message}`, undefined, { cause });
  } finally {
    for (const slot of slots) slot.fill(0);
  }
}

function sealerOf(held: Held, day: number): SetSealer {
  const { set, keys } = held;
  if (held.sealer?.day === day) return held.sealer.sealer;
  const tables = set.tables.map(({ id, clock }, i) => {
    const { epoch } = epochOn(set, i, day);
    const block = keys.get(`${clock} ${blockOf(epoch)}`);
    if (!block) throw new DoonaError('module-failed', `couldn't seal: the keys of clock ${clock} are not here`);
    return { id, epoch, keys: block };
  });
  const sealer = new SetSealer(set.id, day, tables);
  held.sealer = { day, sealer };
  return sealer;
}

function nameOf({ set, root }: Held, day: number): Pick<DayRecord, 'task' | 'start'> {
  const { start, length } = set.tables[0]!.task.epochs;
  return { task: root, start: addEpochs(length, start, day) };
}

/** Returns what the page may know of a record: never a value, and no draft's bytes that another call sealed. */
function viewOf(record: DayRecord | undefined): DayView {
  const { version = 0, leaveAt = 0, due = [] } = record ?? {};
  const state = isDraft(record) ? 'draft' : record?.state === 'sealed' ? 'left'
    : record?.state === 'delivered' || record?.state === 'dropped' ? record.state : 'none';
  return { state, version, leaveAt, due, outcomes: [], ...(state === 'left' && record?.body && { body: record.body }),
    ...(record?.token && { token: record.token }) };
}
