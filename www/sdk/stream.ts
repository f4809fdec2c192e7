/**
 * Streams: a page names the first task of one, and the tasks that follow, each named by the hash of the one
 * before in the next, go on without it. What the owner may not change is held against that first task.
 * @module
 */

import { type Bytes, bigEndian, concat, equal, toHex } from './bytes.js';
import { startOf } from './epochs.js';
import { DoonaError } from './errors.js';
import { Reader } from './msgpack.js';
import { sha256, verify } from './signature.js';
import { type Authority, type Deciders, mostStatements, readStatements } from './statement.js';
import type { Store } from './store.js';
import { type Roll, type Task, parseTask } from './task.js';

/** One task of a stream, whose owner's signature has not been checked. */
export interface Link {
  readonly task: Task;
  readonly id: Bytes;
  readonly idText: string;
  readonly bundle: Bytes;
  /** Who must have signed it. */
  readonly owner: Bytes;
  /** Its parts, by which it is compared with the first task. */
  readonly parts: readonly Part[];
}

type Part = readonly [name: string, form: string];

/** A stream as it was fetched. */
export interface Stream {
  readonly links: readonly Link[];
  readonly authority: Authority;
}

/** What a page pins of a stream. */
export interface Root extends Deciders {
  /** The parts that the page lets later tasks change, where the first task does, too. */
  readonly allow: readonly string[];
  /** The keys of relays that may take the place of another, where the first task allows it. */
  readonly candidates: readonly Bytes[];
}

/** The parts that a stream can let its tasks change today: what no privacy loss depends on. */
export const changeable: readonly string[] = ['clients.issuer.url', 'clients.origins', 'clients.quota', 'name',
  'relays.url', 'verifier.url'];

/** The names of a task's parts in the order of its canonical form, "" for what may differ in any later task. */
type Shape = string | readonly Shape[];

const party = (name: string): Shape => [`${name}.url`, `${name}.signKey`, ''];
const relay = party('relays');
const shape: readonly Shape[] = [
  '', '', 'name', 'query', 'protocol', 'rule', 'params',
  ['input.range', 'input.range', 'input.bins', 'input.labels', 'input.clip'],
  ['claim.epsilon', 'claim.delta', 'claim.total', 'claim.assumption'],
  ['batch.size', 'batch.honest', 'batch.min'],
  ['slots.padding', 'slots.lanes', 'slots.perLane', 'slots.messageBytes'],
  ['', 'epochs.length', ''],
  ['clients.kind', 'clients.quota', party('clients.issuer'), 'clients.origins'],
  [relay], party('verifier'), 'kem', ['stream.name', '', '', 'stream.allow', ''], 'noise',
];

/** Lists the parts of a canonical task. */
function partsOf(canonical: Bytes): Part[] {
  const out: Part[] = [];
  const r = new Reader(canonical);
  const walk = (at: Shape): void => {
    if (typeof at === 'string') {
      const form = String(r.raw());
      if (at) out.push([at, form]);
      return;
    }
    const length = r.arrayLength();
    if (at[0] === relay) {
      out.push(['relays', String(length)]);
      for (let n = length; n > 0; n--) walk(relay);
    } else at.slice(0, length).forEach(walk);
  };
  walk(shape);
  return out;
}

/**
 * Reads a stream as its first relay serves it and checks it as far as hashes go: that it begins with the task
 * that the page names; that each task names the one before and begins when that is over; and that none changes
 * what it may not. The signature of any task covers all before it, and is checked when one is opened. That of
 * statements is checked here: they name a task by its hash, and who signs those behind it.
 * @throws DoonaError `stream-broken`
 */
export async function parseStream(chain: Bytes, root: Root): Promise<Stream> {
  const links: Link[] = [];
  let authority: Authority;
  try {
    const r = new Reader(chain);
    r.array(2);
    for (let n = r.arrayLength(); n > 0; n--) {
      const bundle = r.raw();
      const inner = new Reader(bundle);
      inner.array(4);
      const [canonical, owner] = [inner.bin(), inner.bin(32)];
      const id = await sha256(canonical);
      links.push({ task: parseTask(canonical), id, idText: toHex(id), bundle, owner, parts: partsOf(canonical) });
    }
    authority = await readStatements(r, root);
    r.end();
  } catch (cause) {
    throw broken(`it is malformed: ${(cause as Error).message}`, cause);
  }
  links.forEach((link, position) => checkLink(links, position, link, root));
  if (links.length === 0) throw broken('it has no task');
  await checkRolls(links.at(-1)!, root);
  return { links: decided(links, authority), authority };
}

/**
 * Holds a stream against its statements, and returns its tasks with who must have signed each.
 * @throws DoonaError `stream-broken`
 */
export function decided<T extends Pick<Link, 'id' | 'owner'>>(links: readonly T[],
  { about, key, stopped }: Authority): readonly T[] {
  if (!about) return links.map((link) => ({ ...link, owner: key }));
  const named = links[about.position];
  if (!named || !equal(named.id, about.id)) throw broken(`position ${about.position} is not as its statements say`);
  if (stopped && links.length > about.position + 1) throw broken(`it goes on behind position ${about.position}`);
  // Who signed tasks up to there does not matter: the hash that the statements name covers them.
  return links.map((link, position) => (position > about.position ? { ...link, owner: key } : link));
}

function checkLink(links: readonly Link[], position: number, { id, task, parts }: Link, root: Root): void {
  const first = links[0]!;
  if (position === 0 && !equal(id, root.id)) throw broken('its first task is not the one in its address');
  if (task.stream?.position !== position) throw broken(`the task at position ${position} is not of it`);
  if (position === 0) return;
  const before = links[position - 1]!;
  if (!equal(task.stream.before, before.id)) throw broken(`position ${position} follows another task`);
  const over = startOf(before.task.epochs, before.task.epochs.count).getTime() / 1000;
  if (task.epochs.start < over) throw broken(`position ${position} begins before the task before it is over`);
  const { rolls } = task.stream;
  if (!before.task.stream!.rolls.every((roll, i) => rolls[i] && sameRoll(roll, rolls[i]))) {
    throw broken(`position ${position} takes back a key`);
  }
  // Else a thief of the owner's key could use up the rolls of a stream, or a candidate's key, with keys of his own.
  const own = before.parts.filter(([name]) => name.endsWith('.signKey')).map(([, form]) => form);
  for (const { old, key } of rolls.slice(before.task.stream!.rolls.length)) {
    if (old.every((byte) => byte === 0) || !own.includes(formOf(old))) {
      throw broken(`position ${position} hands on a key of no party`);
    }
    own.push(formOf(key));
  }
  const origin = (form: string) => rolls.reduceRight((key, roll) => (key === formOf(roll.key) ? formOf(roll.old) : key),
    form);
  const candidates = first.task.stream!.allow.includes('relays.signKey') ? root.candidates.map(formOf) : [];
  const replaced = (at: number) => parts[at]?.[0] === 'relays.signKey' && candidates.includes(origin(parts[at][1]));
  parts.forEach(([name, form], i) => {
    const was = name.endsWith('.signKey') ? origin(form) : form;
    const same = first.parts[i]?.[0] === name && first.parts[i][1] === was;
    if (same || [first.task.stream!.allow, root.allow, changeable].every((list) => list.includes(name))) return;
    if (replaced(i) || (name === 'relays.url' && replaced(i + 1))) return;
    throw broken(`position ${position} changes ${name}`);
  });
}

/** A key as a part of a task has it. */
function formOf(key: Bytes): string {
  return String([0xc4, key.length, ...key]);
}

function sameRoll(a: Roll, b: Roll): boolean {
  return equal(a.old, b.old) && equal(a.key, b.key) && equal(a.signature, b.signature);
}

/** Checks that each key that was replaced says so: those of the newest task are those of all, and more. */
async function checkRolls({ task }: Link, { id }: Root): Promise<void> {
  for (const { old, key, signature } of task.stream!.rolls) {
    if (!(await verify(old, 'roll', concat(id, key), signature))) throw broken('a party did not hand on its key');
  }
}

function broken(reason: string, cause?: unknown): DoonaError {
  return new DoonaError('stream-broken', `couldn't accept the stream: ${reason}`, undefined, { cause });
}

/** Returns the newest task that has begun, the first where none has. */
export function current(links: readonly Link[], milliseconds: number): Link {
  return links.findLast(({ task }) => startOf(task.epochs, 0).getTime() <= milliseconds) ?? links[0]!;
}

/** More than the statements of an era. */
const numbers = 2 * mostStatements;

/**
 * What is remembered of a stream in the store of reports, under names that no task has: its hash at every position
 * that was opened, each in an entry of its own, so that no tab takes back what another has seen; and the stream
 * as it was fetched last.
 */
export class Memory {
  readonly #marks: string;
  readonly #fetched: string;
  readonly #said: string;

  /** @param root the id of the first task, in hexadecimal */
  constructor(readonly store: Store, root: string) {
    this.#marks = `stream ${root}`;
    this.#fetched = `fetched ${root}`;
    this.#said = `statements ${root}`;
  }

  /**
   * Holds a stream against what was seen, and remembers its statements.
   * @throws DoonaError `stream-forked` where another task stands at a position that was seen, or another statement
   * has a
   * number, `stream-replayed` where one that was seen is missing
   */
  async check({ links, authority }: Stream): Promise<void> {
    await this.#hear(authority);
    for (const { epoch: position, body } of await this.store.sealed(this.#marks)) {
      const link = links[position];
      if (!link) {
        throw new DoonaError('stream-replayed',
          `couldn't accept the stream: it ends before position ${position}, which was seen`);
      }
      if (!equal(link.id, body!)) {
        throw new DoonaError('stream-forked',
          `couldn't accept the stream: another task has position ${position} than was seen`);
      }
    }
  }

  /** Each statement has an entry of its own, by era and number. */
  async #hear({ era, hashes }: Authority): Promise<void> {
    const last = Math.max(0, ...hashes.keys());
    const fresh = new Map(hashes);
    for (const { epoch: place, body } of await this.store.sealed(this.#said)) {
      const [of, number] = [Math.floor(place / numbers), place % numbers];
      if (of > era || (of === era && number > last)) {
        throw new DoonaError('stream-replayed',
          `couldn't accept the stream: statement ${number} of era ${of} was seen`);
      }
      if (of === era && !equal(hashes.get(number)!, body!)) {
        throw new DoonaError('stream-forked',
          `couldn't accept the stream: another statement ${number} of era ${era} was seen`);
      }
      if (of === era) fresh.delete(number);
    }
    for (const [number, body] of fresh) {
      await this.store.put({ task: this.#said, epoch: era * numbers + number, state: 'sealed', body });
    }
  }

  /** Remembers a task that was opened. */
  async mark({ task, id }: Link): Promise<void> {
    await this.store.put({ task: this.#marks, epoch: task.stream!.position, state: 'sealed', body: id });
  }

  /** Remembers a stream as it was fetched at some time. */
  async keep(chain: Bytes, milliseconds: number): Promise<void> {
    const body = concat(bigEndian(milliseconds, 8), chain);
    await this.store.put({ task: this.#fetched, epoch: 0, state: 'sealed', body });
  }

  /** Returns what was fetched last, and when. */
  async kept(): Promise<{ chain: Bytes; at: number } | undefined> {
    const body = (await this.store.sealed(this.#fetched))[0]?.body;
    return body && { chain: body.slice(8), at: body.subarray(0, 8).reduce((sum, byte) => sum * 256 + byte, 0) };
  }
}

/** Whether two times are of one epoch of the task, or both beyond it in the same stretch of its length. */
export function sameEpoch({ epochs }: Task, a: number, b: number): boolean {
  const epoch = (at: number) => Math.floor((at / 1000 - epochs.start) / epochs.length);
  return epoch(a) === epoch(b);
}
