/**
 * Sets of tables (docs/SPEC.md, section 15): decodes and checks the document that an owner signs, with the tasks of its
 * tables, and the keys of a block of epochs. The Go package wire/tableset does the same. Whether the total follows from
 * the tables' laws, the engine computes (set-engine.ts).
 * @module
 */

import { maxCopies } from './budget.js';
import { type Keys, checkIssuer, checkKeys, withTokens } from './bundle.js';
import { type Bytes, concat, equal, joined, toHex, utf8 } from './bytes.js';
import { addEpochs, epochsBetween, maxEpochsIn } from './epochs.js';
import { DoonaError } from './errors.js';
import { FormatError, Reader } from './msgpack.js';
import { formatKey, sha256, verify } from './signature.js';
import { changeable, keyOf, taskParts } from './stream.js';
import { type Party, type Task, checkSize, label, list, maxRelays, parseTask } from './task.js';

/** The limits of a set, as in the Go package wire/tableset. */
const maxTables = 32;
const maxDays = 36_525;
export const maxSet = 2 << 20;

/** The maximum number of epochs of a task, and of origins in a list. */
const maxEpochs = 65536;
const maxOrigins = 64;

/** A table of a set. */
export interface SetTable {
  readonly name: string;
  /** A bare table has no values: only the number of submissions counts. */
  readonly bare: boolean;
  readonly task: Task;
  /** The task's canonical form, and its SHA-256. */
  readonly canonical: Bytes;
  readonly id: Bytes;
  /** The number of the clock by which its epochs go. */
  readonly clock: number;
}

/** A set whose signature, tasks and lists of keys were checked. */
export interface TableSet {
  readonly id: Bytes;
  /** The id of the set at position 0, which names the ledger's line. */
  readonly root: Bytes;
  readonly position: number;
  readonly name: string;
  /** Whether one operator runs all relays. Then nothing is promised, and no ε may be shown. */
  readonly trial: boolean;
  /** What all reports of a browser cost together whose epochs begin in any stretch of `days` days. */
  readonly total: { readonly epsilon: number; readonly delta: number; readonly days: number };
  readonly tables: readonly SetTable[];
  /** Origins that belong to a visit, such as a checkout's. */
  readonly through: readonly string[];
  /** For each clock, the key lists of relays, verifier and issuer, without their keys. */
  readonly lists: readonly (readonly Bytes[])[];
  /** A fingerprint of all that a renewal may not change. */
  readonly pin: string;
  /** The owner's key. */
  readonly owner: Bytes;
}

/** The keys of one block of epochs of a clock. */
export interface ClockKeys extends Keys {
  /** The ids of the issuer's token keys, one per epoch of the block; none for a clock without tokens. */
  readonly tokenKeys: readonly Bytes[];
}

/** The encoded parts of a set's bundle. */
interface Frame {
  readonly set: Bytes;
  readonly owner: Bytes;
  readonly signature: Bytes;
  readonly tasks: readonly Bytes[];
  readonly lists: readonly (readonly Bytes[])[];
}

/** A set's own fields, before the tasks of its tables are known. */
interface Document extends Pick<TableSet, 'position' | 'name' | 'trial' | 'total' | 'through'> {
  readonly tables: readonly { readonly name: string; readonly task: Bytes; readonly bare: boolean }[];
  /** The id of the set at position 0; undefined for that set itself. */
  readonly root: Bytes | undefined;
  /** The ids of the tables' tasks at position 0. */
  readonly first: readonly Bytes[];
}

/**
 * Checks a bundle of a set. `id` is its own, or names the set at position 0 whose renewal it is.
 * @throws DoonaError `set-refused`, which names the field
 */
export async function parseSet(input: Bytes, owner: Bytes, id: Bytes): Promise<TableSet> {
  const frame = orRefused('bundle', () => readFrame(input));
  if (!equal(frame.owner, owner)) throw refused('owner', formatKey(frame.owner), `${formatKey(owner)}, the option owner`);
  if (!(await verify(owner, 'set', frame.set, frame.signature))) throw refused('signature', 'of another key', "the owner's");
  const own = await sha256(frame.set);
  const document = orRefused('set', () => readDocument(frame.set));
  const root = document.root ?? own;
  if (!equal(own, id) && !equal(root, id)) throw refused('id', toHex(own), 'the one in its address');
  if (frame.tasks.length !== document.tables.length) {
    throw refused('tasks', frame.tasks.length, `one for each of ${document.tables.length} tables`);
  }
  const tables: SetTable[] = [];
  const clocks: Task['epochs'][] = [];
  for (const [i, { name, task: want, bare }] of document.tables.entries()) {
    const canonical = frame.tasks[i]!;
    if (!equal(await sha256(canonical), want)) throw refused(`tables.${name}`, 'another task', 'the one that the set names');
    const task = orRefused(`tables.${name}`, () => parseTask(canonical));
    checkTable(`tables.${name}`, tables[0]?.task ?? task, task, { position: document.position, bare, first: i === 0 });
    await checkRotations(`tables.${name}`, document.first[i]!, task);
    const { epochs } = task;
    let clock = clocks.findIndex(({ start, length, count }) =>
      start === epochs.start && length === epochs.length && count === epochs.count);
    if (clock < 0) clock = clocks.push(epochs) - 1;
    tables.push({ name, bare, task, canonical, id: want, clock });
  }
  await checkLists(tables, clocks.length, frame.lists);
  const { position, name, trial, total, through } = document;
  return { id: own, root, position, name, trial, total, tables, through, lists: frame.lists,
    pin: await pinOf(document, tables, owner), owner };
}

function readFrame(input: Bytes): Frame {
  if (input.length > maxSet) throw new FormatError(`${input.length} bytes, want at most ${maxSet}`);
  const r = new Reader(input);
  r.array(5);
  const frame = { set: r.bin(), owner: r.bin(32), signature: r.bin(64),
    tasks: list(r, () => checkSize(r.bin()), maxTables),
    lists: list(r, () => list(r, () => r.bin(), maxRelays + 2), maxTables) };
  r.end();
  return frame;
}

function readDocument(canonical: Bytes): Document {
  const r = new Reader(canonical);
  r.array(8);
  label(r, 'doona-set');
  const name = r.str();
  if (!/^[ -~]{1,64}$/.test(name)) throw refused('name', quoted(name), '1 to 64 printable ASCII characters');
  const trust = r.str();
  if (trust !== 'two' && trust !== 'trial') throw refused('trust', quoted(trust), 'two or trial');
  const total = readTotal(r);
  const tables = readTables(r);
  const through = list(r, () => r.str(), maxOrigins);
  through.forEach((origin, i) => {
    if (!isOrigin(origin)) throw refused('through', quoted(origin), 'an origin, such as https://pay.example');
    if (i > 0 && through[i - 1]! >= origin) throw refused('through', quoted(origin), 'origins in ascending order, each once');
  });
  const [renewal] = list(r, () => (r.array(4), { position: r.uint(), root: r.bin(32), before: r.bin(32),
    first: list(r, () => r.bin(32), maxTables) }), 1);
  r.end();
  const isZero = (id: Bytes) => id.every((byte) => byte === 0);
  if (renewal && (renewal.position === 0 || isZero(renewal.root) || isZero(renewal.before))) {
    throw refused('renewal', renewal.position, 'a position above 0, and the ids of the first set and of the set before');
  }
  const first = renewal?.first ?? tables.map(({ task }) => task);
  if (first.length !== tables.length) throw refused('renewal', `${first.length} first tasks`, `${tables.length}, as tables`);
  return { name, trial: trust === 'trial', total, tables, through, position: renewal?.position ?? 0, root: renewal?.root,
    first };
}

function readTotal(r: Reader): TableSet['total'] {
  r.array(3);
  const [epsilon, delta, days] = [r.str(), r.str(), r.uint()];
  const decimal = (field: string, text: string, most: number, want: string) => {
    const number = /^\d+(\.\d+)?(e-?\d+)?$/.test(text) && text.length <= 24 ? Number(text) : 0;
    if (!(number > 0 && number <= most)) throw refused(field, quoted(text), want);
    return number;
  };
  if (days < 1 || days > maxDays) throw refused('total.days', days, `1 to ${maxDays}`);
  return { epsilon: decimal('total.epsilon', epsilon, 100, 'a decimal in (0, 100]'),
    delta: decimal('total.delta', delta, 1 - 2 ** -53, 'a decimal in (0, 1), such as 1e-6'), days };
}

function readTables(r: Reader): Document['tables'] {
  const [names, tasks] = [new Set<string>(), new Set<string>()];
  const tables = list(r, () => {
    r.array(3);
    const [name, task, bare] = [r.str(), r.bin(32), r.uint()];
    if (bare > 1) throw refused('tables.bare', bare, '0 or 1');
    const table = { name, task, bare: bare === 1 };
    if (!/^[A-Za-z][A-Za-z0-9_-]{0,63}$/.test(table.name) || names.has(table.name)) {
      throw refused('tables.name', quoted(table.name),
        '1 to 64 letters, digits, - and _, beginning with a letter, and each name once');
    }
    if (tasks.has(toHex(table.task))) throw refused('tables.task', toHex(table.task), 'each task once');
    names.add(table.name);
    tasks.add(toHex(table.task));
    return table;
  }, maxTables);
  if (tables.length === 0) throw refused('tables', 'none', `1 to ${maxTables}`);
  return tables;
}

/** Whether a text can be the value of an Origin header, or such a value with *. before the domain. */
function isOrigin(text: string): boolean {
  if (text === 'null') return true;
  if (text.length > 255) return false;
  const web = /^https?:\/\//.test(text);
  if (!web) return /^(?!file:)[a-z][a-z0-9+.-]*:\/\/[A-Za-z0-9._~-]+(:[1-9]\d{0,4})?$/.test(text);
  const name = text.replace('://*.', '://a.');
  try {
    return new URL(name).origin === name && (name === text || !name.includes('['));
  } catch {
    return false;
  }
}

/** What a table's task must agree with. */
type Around = Pick<TableSet, 'position'> & { readonly bare: boolean; readonly first: boolean };

/**
 * Checks that a task may be a table of a set: a draft of its report may be replaced (docs/proofs/drafts.md), no claim
 * needs honest clients, and it has the parties, origins and days of the first table.
 */
function checkTable(field: string, first: Task, task: Task, set: Around): void {
  const { noise, claim, params, slots, clients, stream, epochs } = task;
  if (noise?.kind !== 'cells' || claim.assumption !== 'none') {
    throw refused(`${field}.noise`, 'another', 'noise by relays of kind cells, which needs no honest client');
  }
  if (claim.total) throw refused(`${field}.claim.total`, 'given', 'none: a set has one total, for all tables');
  if (params.has('gamma')) {
    throw refused(`${field}.params.gamma`, 'given', 'none: clients of a table draw nothing that hides a value');
  }
  if (slots.lanes !== 1 || slots.perLane !== 1 || slots.padding !== 'full') {
    throw refused(`${field}.slots`, `${slots.lanes} lanes of ${slots.perLane}`, 'one lane of one slot, under padding full');
  }
  if (task.kem !== first.kem) throw refused(`${field}.kem`, quoted(task.kem), `${first.kem}, as the first table has`);
  if (task.relays.length === 0 || task.relays.length !== first.relays.length) {
    throw refused(`${field}.relays`, task.relays.length, 'those of the first table');
  }
  const others = partiesOf(first);
  partiesOf(task).forEach(({ url, signKey }, hop) => {
    if (url === others[hop]!.url && equal(signKey, others[hop]!.signKey)) return;
    throw refused(field, `another party at hop ${hop}`, 'the one of the first table');
  });
  if (clients.origins.join(' ') !== first.clients.origins.join(' ')) {
    throw refused(`${field}.clients.origins`, 'others', 'those of the first table');
  }
  if (!set.first && clients.kind !== 'address') {
    throw refused(`${field}.clients.kind`, quoted(clients.kind), 'address; only the first table may have tokens');
  }
  checkEpochs(`${field}.epochs`, first.epochs, epochs);
  if ((stream === undefined) !== (first.stream === undefined)) {
    throw refused(`${field}.stream`, 'one, or none', 'one for all tables or for none');
  }
  if ((stream?.position ?? 0) !== set.position) {
    throw refused(`${field}.stream.position`, 'another', `${set.position}, as the set has`);
  }
  for (const name of stream?.allow ?? []) {
    if (!changeable.includes(name)) throw refused(`${field}.stream.allow`, quoted(name), changeable.join(', '));
  }
  if (set.bare && (epochs.cap || epochs.events)) {
    throw refused(`${field}.epochs`, 'a cap or events', 'none for a table without values');
  }
}

/** Checks that a table's epochs begin and end with days of the set, that is with epochs of the first table. */
function checkEpochs(field: string, days: Task['epochs'], epochs: Task['epochs']): void {
  const { start, length, count } = epochs;
  // A month has a length of 2³². The bounds keep the loop below short, and all times exact.
  if (count < 1 || count > maxEpochs || length < 1 || length > 2 ** 32 || start > 2 ** 40) {
    throw refused(field, `${count} of ${length} seconds`, `1 to ${maxEpochs}`);
  }
  const over = addEpochs(days.length, days.start, days.count);
  if (start < days.start || addEpochs(length, start, count) > over) {
    throw refused(field, 'outside of the set', "epochs that begin and end with the first table's or within");
  }
  if (length === days.length && start === days.start) return;
  for (let epoch = 0; epoch <= count; epoch++) {
    const at = addEpochs(length, start, epoch);
    const day = epochsBetween(days.length, days.start, at);
    if (at === over || (day >= 0 && day < days.count && addEpochs(days.length, days.start, day) === at)) continue;
    throw refused(field, `an epoch that begins at ${at}`, 'epochs that begin when one of the first table does');
  }
}

/** Returns the relays and the verifier. */
function partiesOf({ relays, verifier }: Task): readonly Party[] {
  return [...relays, verifier];
}

/** Checks that the key lists are those that the tasks name. Their signatures are checked with the keys. */
async function checkLists(tables: readonly SetTable[], clocks: number, lists: Frame['lists']): Promise<void> {
  if (lists.length !== clocks) throw refused('lists', `of ${lists.length} clocks`, clocks);
  for (let clock = 0; clock < clocks; clock++) {
    const first = tables.find((table) => table.clock === clock)!;
    const { clients, relays } = first.task;
    const want = relays.length + 1 + Number(clients.kind === 'token');
    if (lists[clock]!.length !== want) throw refused(`lists.${clock}`, lists[clock]!.length, want);
    const hashes: Bytes[] = [];
    for (const head of lists[clock]!) {
      hashes.push(await sha256(orRefused(`lists.${clock}`, () => {
        const r = new Reader(head);
        r.array(2);
        const [keyList] = [r.bin(), r.bin(64)];
        r.end();
        return keyList;
      })));
    }
    for (const { name, task } of tables.filter((table) => table.clock === clock)) {
      partiesOf(task).forEach(({ keyList }, hop) => {
        if (equal(keyList, hashes[hop]!)) return;
        throw refused(`tables.${name}`, `another list of keys of hop ${hop}`, 'the list that all tables with these epochs have');
      });
    }
    if (want > relays.length + 1 && !equal(clients.issuer.keyList, hashes[want - 1]!)) {
      throw refused(`tables.${first.name}`, "another list of the issuer's keys", 'the one that the set has');
    }
  }
}

/**
 * Checks the keys of one block of epochs of a clock.
 * @throws DoonaError `set-refused` or `task-refused`
 */
export async function parseKeys(set: TableSet, clock: number, input: Bytes): Promise<ClockKeys> {
  const { first, blocks } = orRefused('keys', () => {
    const r = new Reader(input);
    r.array(2);
    const out = { first: r.uint(),
      blocks: list(r, () => (r.array(2), { keys: r.bin(), path: r.bin() }), maxRelays + 2) };
    r.end();
    return out;
  });
  const { task, canonical } = set.tables.find((table) => table.clock === clock)!;
  const { owner, lists } = set;
  const bundle = { task, canonical, owner, signature: new Uint8Array(), keyLists: lists[clock]!, first, blocks };
  return { ...await checkKeys(bundle), tokenKeys: withTokens(task) ? await checkIssuer(bundle) : [] };
}

/**
 * Returns the epoch of a table on a day, and whether the table has an epoch then. Before a table's first epoch it
 * returns the first, and after its last the last: the slot is then a cover, which the first relay drops.
 */
export function epochOn({ tables }: Pick<TableSet, 'tables'>, table: number,
  day: number): { readonly epoch: number; readonly open: boolean } {
  const days = tables[0]!.task.epochs;
  const { start, length, count } = tables[table]!.task.epochs;
  const epoch = epochsBetween(length, start, addEpochs(days.length, days.start, day));
  return { epoch: Math.min(Math.max(epoch, 0), count - 1), open: epoch >= 0 && epoch < count };
}

/** The number that stands for no limit on the number of epochs. */
const endless = 2 ** 40;

/** Returns how many copies of a table's law its reports may take in the days of the set's total. */
export function copiesOf({ total }: TableSet, { bare, task }: SetTable): number {
  return bare ? 0 : maxCopies(task, maxEpochsIn(task.epochs.length, endless, total.days * 86_400));
}

/** Returns the SHA-256 of all that a renewal may not change, in hexadecimal. It has the parties' first keys. */
async function pinOf(document: Document, tables: readonly SetTable[], owner: Bytes): Promise<string> {
  const { name, trial, total, through } = document;
  const kept: Bytes[] = [owner, utf8(JSON.stringify([name, trial, total.epsilon, total.delta, total.days, through,
    tables.map((table) => [table.name, table.bare, table.clock])])), ...document.first];
  for (const { canonical, task } of tables) {
    const original = (key: Bytes) => (task.stream?.rotations ?? []).reduceRight((at, { old, key: next }) =>
      (equal(at, next) ? old : at), key);
    for (const [part, form] of taskParts(canonical)) {
      if (changeable.includes(part)) continue;
      kept.push(utf8(`\0${part}\0`), part.endsWith('.signKey') ? original(keyOf(form)) : form);
    }
  }
  return toHex(await sha256(joined(kept)));
}

/** Checks that each replaced key of a table's parties signed its successor. `first` is the id of the table's first task. */
async function checkRotations(field: string, first: Bytes, { stream }: Task): Promise<void> {
  for (const { old, key, signature } of stream?.rotations ?? []) {
    if (await verify(old, 'rotation', concat(first, key), signature)) continue;
    throw refused(`${field}.stream.rotations`, 'a replaced key that did not sign its successor', 'its signature');
  }
}

function quoted(text: string): string {
  return JSON.stringify(text.slice(0, 80));
}

function refused(field: string, got: string | number, want: string | number): DoonaError {
  return new DoonaError('set-refused', `couldn't accept the set: invalid ${field} ${got}: want ${want}`, field);
}

function orRefused<T>(field: string, read: () => T): T {
  try {
    return read();
  } catch (cause) {
    if (cause instanceof DoonaError) throw cause;
    throw new DoonaError('set-refused', `couldn't accept the set: its ${field} is malformed: ${(cause as Error).message}`,
      field, { cause });
  }
}
