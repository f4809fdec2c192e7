/**
 * Reads statements about a stream. A statement says which key signs the tasks after a position, or that the stream ends
 * there. A statement of the recovery key begins a new era. docs/SPEC.md, section 4, has the rules;
 * wire/taskfile/statement.go is the Go implementation.
 * @module
 */

import { type Bytes, equal } from './bytes.js';
import { FormatError, Reader } from './msgpack.js';
import { sha256, verify } from './signature.js';
import { label } from './task.js';

/** The most statements of an era. */
export const maxStatements = 16;

/** The size limit of a signed statement, in bytes; the longest has 216. */
const maxBytes = 256;

/** A stream and the keys that the page trusts to decide about it. */
export interface StreamKeys {
  /** The id of the stream's first task. */
  readonly id: Bytes;
  readonly owner: Bytes;
  /** The key that may replace the owner's; undefined for none. */
  readonly recovery: Bytes | undefined;
}

/** The outcome of all statements: who signs for the stream now. */
export interface Authority {
  readonly era: number;
  /** The SHA-256 of each statement of the era, by the statement's number. Era 0 has no statement with number 0. */
  readonly hashes: ReadonlyMap<number, Bytes>;
  /** The task that the last statement names; undefined if there are no statements. */
  readonly about: { readonly position: number; readonly id: Bytes } | undefined;
  /** The key that signs later tasks and statements. */
  readonly key: Bytes;
  readonly stopped: boolean;
}

/**
 * Reads and checks the statements of the newest era. The caller must check that the task in `about` is in the stream.
 * @throws FormatError if a statement is malformed, out of order or wrongly signed
 */
export async function readStatements(r: Reader, deciders: StreamKeys): Promise<Authority> {
  let authority: Authority = { era: 0, hashes: new Map(), about: undefined, key: deciders.owner, stopped: false };
  const count = r.arrayLength(maxStatements);
  for (let n = 0; n < count; n++) {
    const from = r.at;
    r.array(2);
    const [body, signature] = [r.bin(), r.bin(64)];
    const size = r.at - from;
    if (size > maxBytes) throw new FormatError(`a statement of ${size} bytes, want at most ${maxBytes}`);
    authority = await applyStatement(authority, body, signature, deciders, n === 0);
  }
  return authority;
}

async function applyStatement(last: Authority, body: Bytes, signature: Bytes, { id: root, recovery }: StreamKeys,
  first: boolean): Promise<Authority> {
  const r = new Reader(body);
  r.array(8);
  label(r, 'doona-statement');
  if (!equal(r.bin(32), root)) throw new FormatError('a statement about another stream');
  const [era, number, position, id, key] = [r.uint(), r.uint(), r.uint(), r.bin(32), r.bin()];
  r.end();
  if (key.length !== 0 && key.length !== 32) {
    throw new FormatError(`a statement's key of ${key.length} bytes, want 0 or 32`);
  }
  const next = Math.max(0, ...last.hashes.keys()) + 1;
  const isRecovery = first && era > 0 && number === 0;
  if (!isRecovery && (era !== last.era ||
    number !== next)) throw new FormatError(`statement ${number} of era ${era}, want ${next} of era ${last.era}`);
  if (!isRecovery && last.stopped) throw new FormatError('the stream has ended, and only the recovery key may sign a further statement');
  if (position < (last.about?.position ?? 0)) throw new FormatError('a statement about an earlier task');
  const signer = isRecovery ? recovery : last.key;
  if (!signer) throw new FormatError('a statement of a recovery key, but the option recovery is not set');
  if (!(await verify(signer, 'statement', body, signature))) {
    throw new FormatError('a statement with a wrong signature');
  }
  return {
    era,
    hashes: new Map(last.hashes).set(number, await sha256(body)),
    about: { position, id },
    key,
    stopped: key.length === 0,
  };
}
