/**
 * Streams: a page names the first task of one, and the tasks that follow, each named by the hash of the one
 * before in the next, go on without it. What the owner may not change is held against that first task.
 * The engine reads them; what a page remembers of one is in stream-history.ts.
 * @module
 */

import { type BundleFrame, checkOwner, readFrame } from './bundle.js';
import { type Bytes, concat, equal, joined, toHex } from './bytes.js';
import { startOf } from './epochs.js';
import { DoonaError } from './errors.js';
import { pause } from './timing.js';
import { Reader } from './msgpack.js';
import { sha256, verify } from './signature.js';
import { type Authority, type StreamKeys, readStatements } from './statement.js';
import { type KeyRotation, type Task, parseTask } from './task.js';

/** The most tasks of a stream: of a day each, more than ten years of them. */
const maxTasks = 4096;

/** How many tasks are hashed in one go. */
const hashSlice = 128;

/** One task of a stream as it travels, not decoded: its key lists never are, unless it is the task of the moment. */
interface RawTask extends BundleFrame {
  readonly id: Bytes;
  readonly bundle: Bytes;
}

/** One task of a stream: the owner's, as a hash in the task behind it says, or a signature. */
interface StreamTask extends RawTask {
  readonly task: Task;
  /** Its parts, by which it is compared with the first task. */
  readonly parts: readonly Part[];
}

type Part = readonly [name: string, form: Bytes];

/** A stream as it was fetched. */
interface Stream {
  readonly tasks: readonly StreamTask[];
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
export interface StreamPin extends StreamKeys {
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
function taskParts(canonical: Bytes): Part[] {
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
async function parseStream(chain: Bytes, root: StreamPin): Promise<Stream> {
  const { tasks: rawTasks, authority } = await orBroken(() => readChain(chain, root));
  if (rawTasks.length === 0) throw broken('it has no task');
  await checkNewest(withSigners(rawTasks, authority), authority);
  const tasks = await orBroken(async () => decodeTasks(rawTasks));
  tasks.forEach((task, position) => checkTask(tasks, position, task, root));
  await checkRotations(tasks.at(-1)!, root);
  return { tasks: withSigners(tasks, authority), authority };
}

async function orBroken<T>(read: () => Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (cause) {
    if (cause instanceof DoonaError) throw cause;
    throw broken(`it is malformed: ${(cause as Error).message}`, cause);
  }
}

/** Finds the tasks of a chain by their lengths, and reads its statements, whose signatures are checked. */
async function readChain(chain: Bytes, root: StreamPin): Promise<{ tasks: RawTask[]; authority: Authority }> {
  const r = new Reader(chain);
  r.array(2);
  const frames = Array.from({ length: r.arrayLength(maxTasks) }, () => {
    const from = r.at;
    return { ...readFrame(r), bundle: chain.subarray(from, r.at) };
  });
  const authority = await readStatements(r, root);
  r.end();
  const rawTasks: RawTask[] = [];
  for (const frame of frames) {
    rawTasks.push({ ...frame, id: await sha256(frame.canonical) });
    if (rawTasks.length % hashSlice === 0) await pause(0); // in place the page goes on
  }
  return { tasks: rawTasks, authority };
}

/** Checks that the newest task is the owner's: by its signature, or by the hash in a statement. */
async function checkNewest(tasks: readonly RawTask[], { about }: Authority): Promise<void> {
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
function decodeTasks(rawTasks: readonly RawTask[]): StreamTask[] {
  const tasks = new Array<StreamTask>(rawTasks.length);
  for (let position = rawTasks.length - 1; position >= 0; position--) {
    const raw = rawTasks[position]!;
    const next = tasks[position + 1];
    if (next && !(next.task.stream && equal(next.task.stream.before, raw.id))) {
      throw broken(`position ${position + 1} follows another task`);
    }
    tasks[position] = { ...raw, task: parseTask(raw.canonical), parts: taskParts(raw.canonical) };
  }
  return tasks;
}

/**
 * Holds a stream against its statements, and returns its tasks with who must have signed each.
 * @throws DoonaError `stream-broken`
 */
export function withSigners<T extends Pick<RawTask, 'id' | 'owner'>>(tasks: readonly T[],
  { about, key, stopped }: Authority): readonly T[] {
  if (!about) return tasks.map((task) => ({ ...task, owner: key }));
  const named = tasks[about.position];
  if (!named || !equal(named.id, about.id)) throw broken(`position ${about.position} is not as its statements say`);
  if (stopped && tasks.length > about.position + 1) throw broken(`it goes on behind position ${about.position}`);
  // Who signed tasks up to there does not matter: the hash that the statements name covers them.
  return tasks.map((task, position) => (position > about.position ? { ...task, owner: key } : task));
}

function checkTask(tasks: readonly StreamTask[], position: number, { id, task, parts }: StreamTask,
  root: StreamPin): void {
  const first = tasks[0]!;
  if (position === 0 && !equal(id, root.id)) throw broken('its first task is not the one in its address');
  if (task.stream?.position !== position) throw broken(`the task at position ${position} is not of it`);
  if (position === 0) return;
  const previous = tasks[position - 1]!;
  const end = startOf(previous.task.epochs, previous.task.epochs.count).getTime() / 1000;
  if (task.epochs.start < end) throw broken(`position ${position} begins before the task before it is over`);
  const { rolls } = task.stream;
  if (!previous.task.stream!.rolls.every((roll, i) => rolls[i] && sameRotation(roll, rolls[i]))) {
    throw broken(`position ${position} takes back a key`);
  }
  // Else a thief of the owner's key could use up the rolls of a stream, or a candidate's key, with keys of his own.
  const knownKeys = previous.parts.filter(([name]) => name.endsWith('.signKey')).map(([, form]) => keyOf(form));
  for (const { old, key } of rolls.slice(previous.task.stream!.rolls.length)) {
    if (old.every((byte) => byte === 0) || !knownKeys.some((one) => equal(one, old))) {
      throw broken(`position ${position} hands on a key of no party`);
    }
    knownKeys.push(key);
  }
  const originalKey = (form: Bytes) => rolls.reduceRight((key, roll) => (equal(key, roll.key) ? roll.old : key),
    keyOf(form));
  const candidates = first.task.stream!.allow.includes('relays.signKey') ? root.candidates : [];
  const isCandidate = (at: number) => parts[at]?.[0] === 'relays.signKey' &&
    candidates.some((key) => equal(key, originalKey(parts[at]![1])));
  parts.forEach(([name, form], i) => {
    const [firstName, firstForm] = first.parts[i] ?? ['', form];
    const same = firstName === name &&
      (name.endsWith('.signKey') ? equal(keyOf(firstForm), originalKey(form)) : equal(firstForm, form));
    if (same || [first.task.stream!.allow, root.allow, changeable].every((list) => list.includes(name))) return;
    if (isCandidate(i) || (name === 'relays.url' && isCandidate(i + 1))) return;
    throw broken(`position ${position} changes ${name}`);
  });
}

/** The key in a part of a task, behind the two bytes that say what it is. */
function keyOf(form: Bytes): Bytes {
  return form.subarray(2);
}

function sameRotation(a: KeyRotation, b: KeyRotation): boolean {
  return equal(a.old, b.old) && equal(a.key, b.key) && equal(a.signature, b.signature);
}

/** Checks that each key that was replaced says so: those of the newest task are those of all, and more. */
async function checkRotations({ task }: StreamTask, { id }: StreamPin): Promise<void> {
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
  readonly root: StreamPin;
  /** The time of which the task is wanted, in milliseconds. */
  readonly now: number;
  /** When the stream was fetched. */
  readonly fetched: number;
}

/** Reads a stream and checks it, and returns what a page needs of it. @throws DoonaError as {@link parseStream} */
export async function viewStream({ chain, root, now, fetched }: StreamRequest): Promise<StreamView> {
  const { tasks, authority } = await parseStream(chain, root);
  const { id, owner, bundle, task } = currentTask(tasks, now);
  const last = tasks.at(-1)!.task.epochs;
  return {
    chain,
    ids: joined(tasks.map((task) => task.id)),
    authority,
    link: { position: task.stream!.position, id, idText: toHex(id), bundle: bundle.slice(), owner },
    sameEpoch: sameEpoch(currentTask(tasks, fetched).task, fetched, now),
    end: Math.max(startOf(last, last.count).getTime(), now + 1000 * last.length),
  };
}

/** Returns the newest task that has begun, the first where none has. */
function currentTask(tasks: readonly StreamTask[], milliseconds: number): StreamTask {
  return tasks.findLast(({ task }) => startOf(task.epochs, 0).getTime() <= milliseconds) ?? tasks[0]!;
}

/** Whether two times are of one epoch of the task, or both beyond it in the same stretch of its length. */
function sameEpoch({ epochs }: Task, a: number, b: number): boolean {
  const epoch = (at: number) => Math.floor((at / 1000 - epochs.start) / epochs.length);
  return epoch(a) === epoch(b);
}
