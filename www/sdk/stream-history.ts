/**
 * The history of a stream: what a page has seen of it, so that nobody can serve the page an older or a forked stream.
 * @module
 */

import { equal } from './bytes.js';
import { DoonaError } from './errors.js';
import { type Authority, maxStatements } from './statement.js';
import type { Store } from './store.js';
import type { StreamView } from './stream.js';

/** More than an era has statements, so that era and number have one key. */
const numbersPerEra = 2 * maxStatements;

/**
 * Records what was seen of a stream, in the store of reports under names that no task has: the task id at every opened
 * position, and the hash of every statement. Each has an entry of its own, so no tab overwrites another tab's entries.
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
   * Checks a stream against the history and records its statements.
   * @throws DoonaError `stream-forked` if a position or a statement's number was seen with another task or statement;
   * `stream-replayed` if a task or statement that was seen is missing
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

  /** Checks and records statements; each has its own entry, by era and number. */
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

  /** Records a task that was opened. */
  async add({ position, id }: StreamView['link']): Promise<void> {
    await this.store.put({ task: this.#tasks, epoch: position, state: 'sealed', body: id });
  }
}
