/**
 * Records what a page has seen of a stream. So a relay cannot later serve the page an older version of the stream, or
 * one with other tasks.
 * @module
 */

import { equal, utf8 } from './bytes.js';
import { isClosed } from './epochs.js';
import { DoonaError } from './errors.js';
import { type Authority, maxStatements } from './statement.js';
import type { Store } from './store.js';
import type { StreamView } from './stream.js';
import type { Task } from './task.js';

/** What is needed to send a task's last report after the stream has moved to a later task. */
export interface OpenedTask {
  /** The task's id in hexadecimal. */
  readonly id: string;
  /** The address of the first relay. */
  readonly relay: string;
  readonly epochs: Task['epochs'];
  /** Whether a report needs a token. */
  readonly tokens: boolean;
}

/** More than the number of statements of an era, so that era · numbersPerEra + number is a unique key. */
const numbersPerEra = 2 * maxStatements;

/**
 * Records what a page has seen of a stream: the task id at every opened position, and the hash of every statement. It
 * stores each as a report, under names that are no task ids. Each has its own entry, so no tab overwrites another tab's
 * entries.
 */
export class StreamHistory {
  readonly #tasks: string;
  readonly #statements: string;
  readonly #opened: string;

  /** @param root the id of the first task, in hexadecimal */
  constructor(readonly store: Store, root: string) {
    this.#tasks = `stream ${root}`;
    this.#statements = `statements ${root}`;
    this.#opened = `opened ${root}`;
  }

  /**
   * Checks a stream against the history and records its statements.
   * @throws DoonaError `stream-forked` if an earlier visit saw another task at a position, or another statement with
   * the same number; `stream-replayed` if a task or statement that an earlier visit saw is missing
   */
  async check({ ids, authority }: StreamView): Promise<void> {
    await this.#checkStatements(authority);
    for (const { epoch: position, body } of await this.store.sealed(this.#tasks)) {
      const id = ids.subarray(32 * position, 32 * position + 32);
      if (id.length === 0) {
        throw new DoonaError('stream-replayed',
          `couldn't accept the stream: it lacks position ${position}, which an earlier visit saw`);
      }
      if (!equal(id, body!)) {
        throw new DoonaError('stream-forked',
          `couldn't accept the stream: an earlier visit saw another task at position ${position}`);
      }
    }
  }

  /** Checks the statements against the history and records the new ones. Each has its own entry, by era and number. */
  async #checkStatements({ era, hashes }: Authority): Promise<void> {
    const last = Math.max(0, ...hashes.keys());
    const unseen = new Map(hashes);
    for (const { epoch: key, body } of await this.store.sealed(this.#statements)) {
      const [seenEra, number] = [Math.floor(key / numbersPerEra), key % numbersPerEra];
      if (seenEra > era || (seenEra === era && number > last)) {
        throw new DoonaError('stream-replayed',
          `couldn't accept the stream: it lacks statement ${number} of era ${seenEra}, which an earlier visit saw`);
      }
      if (seenEra === era && !equal(hashes.get(number)!, body!)) {
        throw new DoonaError('stream-forked',
          `couldn't accept the stream: an earlier visit saw another statement ${number} of era ${era}`);
      }
      if (seenEra === era) unseen.delete(number);
    }
    for (const [number, body] of unseen) {
      await this.store.put({ task: this.#statements, epoch: era * numbersPerEra + number, state: 'sealed', body });
    }
  }

  /** Records that this page has opened a task. */
  async add({ position, id, idText }: StreamView['link'], task: Task): Promise<void> {
    const opened: OpenedTask = { id: idText, relay: task.relays[0]!.url, epochs: task.epochs,
      tokens: task.clients.kind === 'token' };
    await this.store.put({ task: this.#opened, epoch: position, state: 'sealed', body: utf8(JSON.stringify(opened)) });
    await this.store.put({ task: this.#tasks, epoch: position, state: 'sealed', body: id });
  }

  /** Returns the opened tasks that still have an unsent report. Forgets ended tasks without one. */
  async withReports(): Promise<OpenedTask[]> {
    const found: OpenedTask[] = [];
    for (const { epoch: position, body } of await this.store.sealed(this.#opened)) {
      const opened = JSON.parse(new TextDecoder().decode(body)) as OpenedTask;
      const { id, epochs } = opened;
      if ((await this.store.sealed(id)).length > 0) found.push(opened);
      else if (isClosed(epochs, epochs.count - 1, Date.now())) {
        await this.store.put({ task: this.#opened, epoch: position, state: 'dropped' });
      }
    }
    return found;
  }
}
