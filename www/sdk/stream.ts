/**
 * Reads and checks streams. A stream is a series of tasks; every task after the first contains the hash of the previous
 * one. A page names only the first task, so it need not change for later tasks. The engine checks that the owner has
 * changed nothing that may not change. stream-history.ts records what a page has seen of a stream.
 * @module
 */

import { type BundleFrame, checkOwner, readFrame } from './bundle.js';
import { type Bytes, concat, equal, joined, toHex } from './bytes.js';
import { addEpochs, numberAt, startOf } from './epochs.js';
import { DoonaError } from './errors.js';
import { pause } from './timing.js';
import { Reader } from './msgpack.js';
import { sha256, verify } from './signature.js';
import { type Authority, type StreamKeys, readStatements } from './statement.js';
import { type KeyRotation, type Task, list, parseTask } from './task.js';

/** The most tasks of a stream: more than ten years of daily tasks. */
const maxTasks = 4096;

/** How many tasks `readChain` hashes before it yields the thread. */
const hashSlice = 128;

/** An encoded task of a stream. The SDK decodes key lists only of the current task. */
interface RawTask extends BundleFrame {
  readonly id: Bytes;
  readonly bundle: Bytes;
}

/**
 * A decoded task of a stream. A signature or statement authenticates the newest task; the hash in the next task, all
 * others.
 */
interface StreamTask extends RawTask {
  readonly task: Task;
  /** The task's encoded parts. `checkTask` compares them with the parts of the first task. */
  readonly parts: readonly Part[];
}

type Part = readonly [name: string, form: Bytes];

/** A stream that passed all checks. */
interface Stream {
  readonly tasks: readonly StreamTask[];
  readonly authority: Authority;
}

/** The parts of a checked stream that a page needs. */
export interface StreamView {
  /** The encoded stream. */
  readonly chain: Bytes;
  /** The ids of all tasks, 32 bytes each, concatenated in order of position. */
  readonly ids: Bytes;
  readonly authority: Authority;
  /** The current task: its position, id and bundle, and the key that must have signed it. */
  readonly link: { readonly position: number; readonly id: Bytes; readonly idText: string; readonly bundle: Bytes;
    readonly owner: Bytes };
  /** Whether the stream was fetched in the epoch of `now`. If not, the page fetches it again. */
  readonly sameEpoch: boolean;
  /** Whether the last task has ended, although the owner has not stopped the stream. */
  readonly ended: boolean;
  /** When the last task ends, but at least one epoch from now, in Unix milliseconds. */
  readonly end: number;
}

/** The options of a page against which a stream is checked. */
export interface StreamPin extends StreamKeys {
  /** The parts that the page allows later tasks to change. The first task must allow it too. */
  readonly allow: readonly string[];
  /** The keys of relays that may replace a relay of the stream. The first task must allow it too. */
  readonly candidates: readonly Bytes[];
}

/** The parts that later tasks of a stream may change, because the privacy loss does not depend on them. */
export const changeable: readonly string[] = ['clients.issuer.url', 'clients.origins', 'clients.quota', 'name',
  'relays.url', 'verifier.url'];

/** The names of a task's parts, in the order of its canonical form; "" for a part that every later task may change. */
type Shape = string | readonly Shape[];

/* @__NO_SIDE_EFFECTS__ */ const party = (name: string): Shape => [`${name}.url`, `${name}.signKey`, ''];
const relay = party('relays');
/** A task with events and no pace leaves out the pace's two numbers. */
const limits: readonly Shape[] = ['', 'epochs.length', '', 'cap', 'cap', 'pace', 'pace', 'events', 'events', 'events'];
const shape: readonly Shape[] = [
  '', '', 'name', 'query', 'protocol', 'rule', 'params',
  ['input.range', 'input.range', 'input.bins', 'input.labels', 'input.clip'],
  ['claim.epsilon', 'claim.delta', 'claim.total', 'claim.assumption'],
  ['batch.size', 'batch.honest', 'batch.min'],
  ['slots.padding', 'slots.lanes', 'slots.perLane', 'slots.messageBytes', 'slots.average'],
  limits,
  ['clients.kind', 'clients.quota', party('clients.issuer'), 'clients.origins'],
  [relay], party('verifier'), 'kem', ['stream.name', '', '', 'stream.allow', ''], 'noise',
];

/** Lists the parts of a canonical task with their names from `shape`. */
export function taskParts(canonical: Bytes): Part[] {
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
    } else if (at === limits && length === limits.length - 2) limits.filter((name) => name !== 'pace').forEach(walk);
    else at.slice(0, length).forEach(walk);
  };
  walk(shape);
  return out;
}

/**
 * Reads a stream as the first relay serves it, and checks it with signatures and hashes. The stream must begin with the
 * task that the page names. Each later task must name the previous task's hash and begin after that task's end, and may
 * change only what is allowed. Every task is authenticated before it is decoded.
 * @throws DoonaError `stream-broken`; `task-refused` if the newest task is not the owner's
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

/**
 * Splits an encoded stream into its tasks without decoding them. Then reads the statements and checks their signatures.
 */
async function readChain(chain: Bytes, root: StreamPin): Promise<{ tasks: RawTask[]; authority: Authority }> {
  const r = new Reader(chain);
  r.array(2);
  const frames = list(r, () => {
    const from = r.at;
    return { ...readFrame(r), bundle: chain.subarray(from, r.at) };
  }, maxTasks);
  const authority = await readStatements(r, root);
  r.end();
  const rawTasks: RawTask[] = [];
  for (const frame of frames) {
    rawTasks.push({ ...frame, id: await sha256(frame.canonical) });
    if (rawTasks.length % hashSlice === 0) await pause(0); // Without a worker, this lets the page run.
  }
  return { tasks: rawTasks, authority };
}

/**
 * Checks that the owner made the newest task: either the last statement contains its hash, or the owner's key signed
 * it.
 */
async function checkNewest(tasks: readonly RawTask[], { about }: Authority): Promise<void> {
  const newest = tasks.at(-1)!;
  if (about?.position === tasks.length - 1) return;
  try {
    await checkOwner(newest, newest.owner);
  } catch (cause) {
    // Any other error means that WebCrypto lacks Ed25519. Then doona-full.wasm checks the task when it opens it.
    if (cause instanceof DoonaError) throw cause;
  }
}

/**
 * Decodes the tasks from the newest to the first, because each task contains the hash that authenticates the previous
 * one.
 */
function decodeTasks(rawTasks: readonly RawTask[]): StreamTask[] {
  const tasks = new Array<StreamTask>(rawTasks.length);
  for (let position = rawTasks.length - 1; position >= 0; position--) {
    const raw = rawTasks[position]!;
    const next = tasks[position + 1];
    if (next && !(next.task.stream && equal(next.task.stream.before, raw.id))) {
      throw broken(`the task at position ${position + 1} follows another task`);
    }
    tasks[position] = { ...raw, task: parseTask(raw.canonical), parts: taskParts(raw.canonical) };
  }
  return tasks;
}

/**
 * Checks a stream against its statements. Returns each task with its expected signer in the field `owner`.
 * @throws DoonaError `stream-broken`
 */
export function withSigners<T extends Pick<RawTask, 'id' | 'owner'>>(tasks: readonly T[],
  { about, key, stopped }: Authority): readonly T[] {
  if (!about) return tasks.map((task) => ({ ...task, owner: key }));
  const named = tasks[about.position];
  if (!named || !equal(named.id, about.id)) throw broken(`the task at position ${about.position} is not the one in its statements`);
  if (stopped && tasks.length > about.position + 1) throw broken(`it was stopped at position ${about.position}, but has later tasks`);
  // Tasks up to that position keep their own `owner`: the hash in the statement authenticates them.
  return tasks.map((task, position) => (position > about.position ? { ...task, owner: key } : task));
}

function checkTask(tasks: readonly StreamTask[], position: number, { id, task, parts }: StreamTask,
  root: StreamPin): void {
  const first = tasks[0]!;
  if (position === 0 && !equal(id, root.id)) throw broken('its first task is not the one in its address');
  if (task.stream?.position !== position) throw broken(`the task at position ${position} does not name this position`);
  if (position === 0) return;
  const previous = tasks[position - 1]!;
  const end = startOf(previous.task.epochs, previous.task.epochs.count).getTime() / 1000;
  if (task.epochs.start < end) throw broken(`the task at position ${position} begins before the previous task ends`);
  const { rotations } = task.stream;
  if (!previous.task.stream!.rotations.every((rotation, i) => rotations[i] && sameRotation(rotation, rotations[i]))) {
    throw broken(`the task at position ${position} leaves out an earlier key rotation`);
  }
  // Otherwise a thief of the owner's key could fill the list of rotations, or use up a candidate's key, with keys of
  // their own.
  const knownKeys = previous.parts.filter(([name]) => name.endsWith('.signKey')).map(([, form]) => keyOf(form));
  for (const { old, key } of rotations.slice(previous.task.stream!.rotations.length)) {
    if (old.every((byte) => byte === 0) || !knownKeys.some((one) => equal(one, old))) {
      throw broken(`the task at position ${position} replaces a key of no party`);
    }
    knownKeys.push(key);
  }
  const originalKey = (form: Bytes) => rotations.reduceRight((key, r) => (equal(key, r.key) ? r.old : key),
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
    const changed = onlyIn(first.parts, parts) ?? onlyIn(parts, first.parts) ?? name;
    throw broken(`the task at position ${position} changes ${changed}, which must stay`);
  });
}

/** Returns the last name of a part that the other task lacks: a task without a limit leaves its numbers out. */
function onlyIn(parts: readonly Part[], others: readonly Part[]): string | undefined {
  return parts.filter(([name]) => !others.some(([other]) => other === name)).at(-1)?.[0];
}

/** Returns the key in an encoded part of a task. It follows the two bytes of the msgpack header. */
export function keyOf(form: Bytes): Bytes {
  return form.subarray(2);
}

function sameRotation(a: KeyRotation, b: KeyRotation): boolean {
  return equal(a.old, b.old) && equal(a.key, b.key) && equal(a.signature, b.signature);
}

/**
 * Checks that every replaced key signed its successor. It checks the newest task, which lists all rotations since the
 * first task.
 */
async function checkRotations({ task }: StreamTask, { id }: StreamPin): Promise<void> {
  for (const { old, key, signature } of task.stream!.rotations) {
    if (!(await verify(old, 'rotation', concat(id, key), signature))) {
      throw broken('a replaced key did not sign its successor');
    }
  }
}

function broken(reason: string, cause?: unknown): DoonaError {
  return new DoonaError('stream-broken', `couldn't accept the stream: ${reason}`, undefined, { cause });
}

/** An encoded stream, and what to check it against. */
export interface StreamRequest {
  readonly chain: Bytes;
  readonly root: StreamPin;
  /** The time whose task is wanted, in Unix milliseconds. */
  readonly now: number;
  /** When the stream was fetched, in Unix milliseconds. */
  readonly fetched: number;
}

/** Reads and checks a stream, and returns the parts that a page needs. @throws DoonaError as {@link parseStream} */
export async function viewStream({ chain, root, now, fetched }: StreamRequest): Promise<StreamView> {
  const { tasks, authority } = await parseStream(chain, root);
  const { id, owner, bundle, task } = currentTask(tasks, now);
  const last = tasks.at(-1)!.task.epochs;
  const end = startOf(last, last.count).getTime();
  return {
    chain,
    ids: joined(tasks.map((task) => task.id)),
    authority,
    link: { position: task.stream!.position, id, idText: toHex(id), bundle: bundle.slice(), owner },
    sameEpoch: sameEpoch(currentTask(tasks, fetched).task, fetched, now),
    ended: end <= now && !authority.stopped,
    end: Math.max(end, 1000 * addEpochs(last.length, now / 1000, 1)),
  };
}

/** Returns the newest task that has begun, or the first task if none has. */
function currentTask(tasks: readonly StreamTask[], milliseconds: number): StreamTask {
  return tasks.findLast(({ task }) => startOf(task.epochs, 0).getTime() <= milliseconds) ?? tasks[0]!;
}

/** Whether two Unix times in milliseconds are in the same epoch of the task, also beyond the task's end. */
function sameEpoch({ epochs }: Task, a: number, b: number): boolean {
  return numberAt(epochs, a) === numberAt(epochs, b);
}
