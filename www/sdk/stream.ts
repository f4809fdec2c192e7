/**
 * Streams: a page names the first task of one, and the tasks that follow, each named by the hash of the one
 * before in the next, go on without it. What the owner may not change is held against that first task.
 * The engine reads them; what a page remembers of one is in stream-memory.ts.
 * @module
 */

import { type BundleFrame, checkOwner, readFrame } from './bundle.js';
import { type Bytes, concat, equal, joined, toHex } from './bytes.js';
import { startOf } from './epochs.js';
import { DoonaError } from './errors.js';
import { pause } from './moment.js';
import { Reader } from './msgpack.js';
import { sha256, verify } from './signature.js';
import { type Authority, type Deciders, readStatements } from './statement.js';
import { type Roll, type Task, parseTask } from './task.js';

/** The most tasks of a stream: of a day each, more than ten years of them. */
const mostTasks = 4096;

/** How many tasks are hashed in one go. */
const slice = 128;

/** One task of a stream as it travels, not decoded: its key lists never are, unless it is the task of the moment. */
interface Sealed extends BundleFrame {
  readonly id: Bytes;
  readonly bundle: Bytes;
}

/** One task of a stream: the owner's, as a hash in the task behind it says, or a signature. */
interface Link extends Sealed {
  readonly task: Task;
  /** Its parts, by which it is compared with the first task. */
  readonly parts: readonly Part[];
}

type Part = readonly [name: string, form: Bytes];

/** A stream as it was fetched. */
interface Stream {
  readonly links: readonly Link[];
  readonly authority: Authority;
}

/** What a page needs of a stream. */
export interface StreamView {
  /** The stream as it was fetched. */
  readonly chain: Bytes;
  /** The ids of its tasks by position, 32 bytes each. */
  readonly ids: Bytes;
  readonly authority: Authority;
  /** The task of the moment: its position, id and bundle, and who must have signed that. */
  readonly link: { readonly position: number; readonly id: Bytes; readonly idText: string; readonly bundle: Bytes;
    readonly owner: Bytes };
  /** Whether the task has the epoch of the moment since the stream was fetched. */
  readonly sameEpoch: boolean;
  /** When its last task is over, at the earliest an epoch from now; in milliseconds. */
  readonly end: number;
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

/* @__NO_SIDE_EFFECTS__ */ const party = (name: string): Shape => [`${name}.url`, `${name}.signKey`, ''];
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
      const form = r.raw();
      if (at) out.push([at, form]);
      return;
    }
    const from = r.at;
    const length = r.arrayLength();
    if (at[0] === relay) {
      out.push(['relays', canonical.subarray(from, r.at)]);
      for (let n = length; n > 0; n--) walk(relay);
    } else at.slice(0, length).forEach(walk);
  };
  walk(shape);
  return out;
}

/**
 * Reads a stream as its first relay serves it and checks it as far as signatures of the owner and hashes go: that it
 * begins with the task that the page names; that each task names the one before and begins when that is over; and
 * that none changes what it may not. Nothing is decoded before it is known to be the owner's.
 * @throws DoonaError `stream-broken`; `task-refused` where the newest task is not the owner's
 */
async function parseStream(chain: Bytes, root: Root): Promise<Stream> {
  const { tasks, authority } = await reading(() => readChain(chain, root));
  if (tasks.length === 0) throw broken('it has no task');
  await checkNewest(decided(tasks, authority), authority);
  const links = await reading(async () => decoded(tasks));
  links.forEach((link, position) => checkLink(links, position, link, root));
  await checkRolls(links.at(-1)!, root);
  return { links: decided(links, authority), authority };
}

async function reading<T>(read: () => Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (cause) {
    if (cause instanceof DoonaError) throw cause;
    throw broken(`it is malformed: ${(cause as Error).message}`, cause);
  }
}

/** Finds the tasks of a chain by their lengths, and reads its statements, whose signatures are checked. */
async function readChain(chain: Bytes, root: Root): Promise<{ tasks: Sealed[]; authority: Authority }> {
  const r = new Reader(chain);
  r.array(2);
  const frames = Array.from({ length: r.arrayLength(mostTasks) }, () => {
    const from = r.at;
    return { ...readFrame(r), bundle: chain.subarray(from, r.at) };
  });
  const authority = await readStatements(r, root);
  r.end();
  const tasks: Sealed[] = [];
  for (const frame of frames) {
    tasks.push({ ...frame, id: await sha256(frame.canonical) });
    if (tasks.length % slice === 0) await pause(0); // in place the page goes on
  }
  return { tasks, authority };
}

/** Checks that the newest task is the owner's: by its signature, or by the hash in a statement. */
async function checkNewest(tasks: readonly Sealed[], { about }: Authority): Promise<void> {
  const newest = tasks.at(-1)!;
  if (about?.position === tasks.length - 1) return;
  try {
    await checkOwner(newest, newest.owner);
  } catch (cause) {
    // A WebCrypto without Ed25519: doona-full.wasm checks the task that is opened.
    if (cause instanceof DoonaError) throw cause;
  }
}

/** Decodes tasks, the newest first: each one's hash is in the one behind it. */
function decoded(tasks: readonly Sealed[]): Link[] {
  const links = new Array<Link>(tasks.length);
  for (let position = tasks.length - 1; position >= 0; position--) {
    const sealed = tasks[position]!;
    const behind = links[position + 1];
    if (behind && !(behind.task.stream && equal(behind.task.stream.before, sealed.id))) {
      throw broken(`position ${position + 1} follows another task`);
    }
    links[position] = { ...sealed, task: parseTask(sealed.canonical), parts: partsOf(sealed.canonical) };
  }
  return links;
}

/**
 * Holds a stream against its statements, and returns its tasks with who must have signed each.
 * @throws DoonaError `stream-broken`
 */
export function decided<T extends Pick<Sealed, 'id' | 'owner'>>(links: readonly T[],
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
  const over = startOf(before.task.epochs, before.task.epochs.count).getTime() / 1000;
  if (task.epochs.start < over) throw broken(`position ${position} begins before the task before it is over`);
  const { rolls } = task.stream;
  if (!before.task.stream!.rolls.every((roll, i) => rolls[i] && sameRoll(roll, rolls[i]))) {
    throw broken(`position ${position} takes back a key`);
  }
  // Else a thief of the owner's key could use up the rolls of a stream, or a candidate's key, with keys of his own.
  const own = before.parts.filter(([name]) => name.endsWith('.signKey')).map(([, form]) => keyOf(form));
  for (const { old, key } of rolls.slice(before.task.stream!.rolls.length)) {
    if (old.every((byte) => byte === 0) || !own.some((one) => equal(one, old))) {
      throw broken(`position ${position} hands on a key of no party`);
    }
    own.push(key);
  }
  const origin = (form: Bytes) => rolls.reduceRight((key, roll) => (equal(key, roll.key) ? roll.old : key),
    keyOf(form));
  const candidates = first.task.stream!.allow.includes('relays.signKey') ? root.candidates : [];
  const replaced = (at: number) => parts[at]?.[0] === 'relays.signKey' &&
    candidates.some((key) => equal(key, origin(parts[at]![1])));
  parts.forEach(([name, form], i) => {
    const [firstName, firstForm] = first.parts[i] ?? ['', form];
    const same = firstName === name &&
      (name.endsWith('.signKey') ? equal(keyOf(firstForm), origin(form)) : equal(firstForm, form));
    if (same || [first.task.stream!.allow, root.allow, changeable].every((list) => list.includes(name))) return;
    if (replaced(i) || (name === 'relays.url' && replaced(i + 1))) return;
    throw broken(`position ${position} changes ${name}`);
  });
}

/** The key in a part of a task, behind the two bytes that say what it is. */
function keyOf(form: Bytes): Bytes {
  return form.subarray(2);
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

/** A stream as it was fetched, and what it is held against. */
export interface StreamRequest {
  readonly chain: Bytes;
  readonly root: Root;
  /** The time of which the task is wanted, in milliseconds. */
  readonly now: number;
  /** When the stream was fetched. */
  readonly fetched: number;
}

/** Reads a stream and checks it, and returns what a page needs of it. @throws DoonaError as {@link parseStream} */
export async function viewStream({ chain, root, now, fetched }: StreamRequest): Promise<StreamView> {
  const { links, authority } = await parseStream(chain, root);
  const { id, owner, bundle, task } = current(links, now);
  const last = links.at(-1)!.task.epochs;
  return {
    chain,
    ids: joined(links.map((link) => link.id)),
    authority,
    link: { position: task.stream!.position, id, idText: toHex(id), bundle: bundle.slice(), owner },
    sameEpoch: sameEpoch(current(links, fetched).task, fetched, now),
    end: Math.max(startOf(last, last.count).getTime(), now + 1000 * last.length),
  };
}

/** Returns the newest task that has begun, the first where none has. */
function current(links: readonly Link[], milliseconds: number): Link {
  return links.findLast(({ task }) => startOf(task.epochs, 0).getTime() <= milliseconds) ?? links[0]!;
}

/** Whether two times are of one epoch of the task, or both beyond it in the same stretch of its length. */
function sameEpoch({ epochs }: Task, a: number, b: number): boolean {
  const epoch = (at: number) => Math.floor((at / 1000 - epochs.start) / epochs.length);
  return epoch(a) === epoch(b);
}
