/**
 * Reads the statements that say who signs a stream's tasks (docs/SPEC.md, section 4).
 * @module
 */

import { createPublicKey, verify } from 'node:crypto';

import { toHex } from './files.ts';
import { decode } from './task.ts';

/** The statements are invalid. */
export class Refused extends Error {}

/** The trusted data of a stream: the first task's id, the owner's key, and the recovery key if there is one. */
export interface Statements {
  root: Uint8Array;
  owner: Uint8Array;
  recovery: Uint8Array;
}

export interface Signed {
  id: Uint8Array;
  owner: Uint8Array;
}

/** The newest statement. If there is none, era and number are 0. */
export interface Last {
  era: bigint;
  number: bigint;
  position: bigint;
  task: Uint8Array;
  key: Uint8Array;
}

const prefix = Buffer.from('302a300506032b6570032100', 'hex'); // RFC 8410

function signedBy(key: Uint8Array, body: Uint8Array, signature: Uint8Array): boolean {
  const message = Buffer.concat([Buffer.from('doona-v1 statement\0'), body]);
  const imported = createPublicKey({ key: Buffer.concat([prefix, key]), format: 'der', type: 'spki' });
  return verify(null, message, imported, signature);
}

function demand(good: boolean, what: string): asserts good {
  if (!good) throw new Refused(what);
}

/** Checks the statements of the newest era and returns the last. */
export function statements(raw: Uint8Array, told: Statements): Last {
  const all: [Uint8Array, Uint8Array][] = decode(raw);
  demand(all.length <= 16, 'too many');
  let last: Last = { era: 0n, number: 0n, position: 0n, task: told.root, key: told.owner };
  all.forEach(([body, signature], i) => {
    const [label, version, root, era, number, position, task, key] = decode(body);
    demand(label === 'doona-statement' && version === 1n, 'version');
    demand(toHex(root) === toHex(told.root), 'another stream');
    demand(task.length === 32 && (key.length === 32 || key.length === 0), 'length');
    const begins = i === 0 && era > 0n;
    demand(begins ? number === 0n : era === last.era && number === last.number + 1n, 'number');
    demand(begins || last.key.length > 0, 'behind the end');
    demand(position >= last.position, 'position');
    const signer = begins ? told.recovery : last.key;
    demand(signer.length === 32 && signedBy(signer, body, signature), 'signer');
    last = { era, number, position, task, key };
  });
  return last;
}

/** Checks that a stream's tasks agree with the newest statement. */
export function decide(tasks: readonly Signed[], last: Last): void {
  const said = last.era > 0n || last.number > 0n;
  const named = Number(last.position);
  demand(tasks.length > named, 'no such task');
  demand(!said || toHex(tasks[named]!.id) === toHex(last.task), 'another task');
  tasks.forEach(({ owner }, position) => {
    if (!said || position > named) demand(toHex(owner) === toHex(last.key), `owner of position ${position}`);
  });
}
