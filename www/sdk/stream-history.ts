/**
 * What a page remembers of a stream, so that nobody serves it an older one, or one of its own.
 * @module
 */

import { equal } from './bytes.js';
import { DoonaError } from './errors.js';
import { type Authority, maxStatements } from './statement.js';
import type { Store } from './store.js';
import type { StreamView } from './stream.js';

/** More than the statements of an era. */
const numbersPerEra = 2 * maxStatements;

/**
 * What is remembered of a stream in the store of reports, under names that no task has: its hash at every position
 * that was opened, each in an entry of its own, so that no tab takes back what another has seen; and the statements.
 */
export class StreamHistory {
  readonly #tasks: string;
  readonly #statements: string;

  /** @param root the id of the first task, in hexadecimal */
  constructor(readonly store: Store, root: string) {
    this.#tasks = `stream ${root}`;
    this.#statements = `statements ${root}`;
  }

  /**
   * Holds a stream against what was seen, and remembers its statements.
   * @throws DoonaError `stream-forked` where another task stands at a position that was seen, or another statement
   * has a number; `stream-replayed` where one that was seen is missing
   */
  async check({ ids, authority }: StreamView): Promise<void> {
    await this.#checkStatements(authority);
    for (const { epoch: position, body } of await this.store.sealed(this.#tasks)) {
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
  async #checkStatements({ era, hashes }: Authority): Promise<void> {
    const last = Math.max(0, ...hashes.keys());
    const unseen = new Map(hashes);
    for (const { epoch: key, body } of await this.store.sealed(this.#statements)) {
      const [seenEra, number] = [Math.floor(key / numbersPerEra), key % numbersPerEra];
      if (seenEra > era || (seenEra === era && number > last)) {
        throw new DoonaError('stream-replayed',
          `couldn't accept the stream: statement ${number} of era ${seenEra} was seen`);
      }
      if (seenEra === era && !equal(hashes.get(number)!, body!)) {
        throw new DoonaError('stream-forked',
          `couldn't accept the stream: another statement ${number} of era ${era} was seen`);
      }
      if (seenEra === era) unseen.delete(number);
    }
    for (const [number, body] of unseen) {
      await this.store.put({ task: this.#statements, epoch: era * numbersPerEra + number, state: 'sealed', body });
    }
  }

  /** Remembers a task that was opened. */
  async add({ position, id }: StreamView['link']): Promise<void> {
    await this.store.put({ task: this.#tasks, epoch: position, state: 'sealed', body: id });
  }
}
