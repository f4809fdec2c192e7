/**
 * What a page remembers of a stream, so that nobody serves it an older one, or one of its own.
 * @module
 */

import { equal } from './bytes.js';
import { DoonaError } from './errors.js';
import { type Authority, mostStatements } from './statement.js';
import type { Store } from './store.js';
import type { StreamView } from './stream.js';

/** More than the statements of an era. */
const numbers = 2 * mostStatements;

/**
 * What is remembered of a stream in the store of reports, under names that no task has: its hash at every position
 * that was opened, each in an entry of its own, so that no tab takes back what another has seen; and the statements.
 */
export class Memory {
  readonly #marks: string;
  readonly #said: string;

  /** @param root the id of the first task, in hexadecimal */
  constructor(readonly store: Store, root: string) {
    this.#marks = `stream ${root}`;
    this.#said = `statements ${root}`;
  }

  /**
   * Holds a stream against what was seen, and remembers its statements.
   * @throws DoonaError `stream-forked` where another task stands at a position that was seen, or another statement
   * has a number; `stream-replayed` where one that was seen is missing
   */
  async check({ ids, authority }: StreamView): Promise<void> {
    await this.#hear(authority);
    for (const { epoch: position, body } of await this.store.sealed(this.#marks)) {
      const id = ids.subarray(32 * position, 32 * position + 32);
      if (id.length === 0) {
        throw new DoonaError('stream-replayed',
          `couldn't accept the stream: it ends before position ${position}, which was seen`);
      }
      if (!equal(id, body!)) {
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
  async mark({ position, id }: StreamView['link']): Promise<void> {
    await this.store.put({ task: this.#marks, epoch: position, state: 'sealed', body: id });
  }
}
