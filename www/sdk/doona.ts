/**
 * A connection to one task: what `connect` returns.
 * @module
 */

import { checkSite } from './budget.js';
import type { Bytes } from './bytes.js';
import { closed, epochAt, nextEpoch } from './epochs.js';
import { DoonaError } from './errors.js';
import type { Guarantee } from './guarantee.js';
import type { Reporter } from './reporter.js';
import type { Report, Store } from './store.js';
import { sleep, submit } from './submit.js';
import type { Task } from './task.js';

/** What became of a report. */
export interface Receipt {
  readonly epoch: number;
  /** Whether this call found a report of the epoch already made; the value it was given is unused. */
  readonly repeated: boolean;
  /** What the first relay received, in bytes; 0 where a repeated report was delivered before. */
  readonly bytes: number;
  /** When the next report can be made; null if never. */
  readonly next: Date | null;
}

/** What became of the reports that waited. */
export interface Flushed {
  readonly delivered: number;
  /** Dropped because their epoch closed or the relay refused them. */
  readonly dropped: number;
  readonly waiting: number;
}

/** Everything a connection needs; made by `connect`. */
export interface Parts {
  readonly id: string;
  readonly task: Task;
  readonly guarantee: Guarantee;
  readonly reporter: Reporter;
  readonly store: Store;
  readonly maxTotalEpsilon: number;
  readonly spread: number;
}

/** A task whose promise has been checked. */
export class Doona {
  readonly #parts: Parts;
  #dropped = 0;

  /** @internal */
  constructor(parts: Parts) {
    this.#parts = parts;
  }

  get task(): Task {
    return this.#parts.task;
  }

  get guarantee(): Guarantee {
    return this.#parts.guarantee;
  }

  /** Reports dropped since connecting: their epoch closed before they arrived, or were refused. */
  get dropped(): number {
    return this.#dropped;
  }

  /** The epoch of this moment. @throws DoonaError `epoch-not-open` or `task-ended` */
  get epoch(): number {
    return epochAt(this.task.epochs, Date.now());
  }

  /**
   * Reports a value, or a vector for a task that asks for one, for the current epoch. Call it for every client in every epoch, with "nothing
   * happened" as a value: that a client reports is visible to the first relay.
   *
   * The value is randomized once: a further call in the same epoch, in any tab, sends the same
   * bytes again if they have not been delivered, and otherwise nothing. Aborting stops the sending;
   * the sealed report then waits for {@link flush}.
   *
   * @throws DoonaError `invalid-value`, `budget-exceeded`, `epoch-not-open`, `task-ended`;
   * `not-delivered`, where the sealed report waits for {@link flush}; `epoch-closed`,
   * `limit-reached` and `report-refused`, where it was dropped
   */
  async report(value: number | readonly number[], options: { signal?: AbortSignal } = {}): Promise<Receipt> {
    const { id, store, reporter, guarantee, maxTotalEpsilon, spread } = this.#parts;
    const epoch = this.epoch;
    const leave = performance.now() + spread * fraction(); // fixed before the value is touched
    const old = await store.claim(id, epoch, guarantee.epsilon, guarantee.delta, (spent) =>
      checkSite(spent, guarantee.epsilon, maxTotalEpsilon),
    );
    if (old) return this.#again(old, leave, options.signal);
    const body = await this.#sealOnce(epoch, () => reporter.submission(epoch, typeof value === 'number' ? [value] : value));
    const report: Report = { task: id, epoch, state: 'sealed', body };
    await store.put(report);
    await sleep(leave - performance.now(), options.signal);
    await this.#send(report, options.signal);
    return this.#receipt(epoch, false, body.length);
  }

  /** Sends what earlier visits sealed and could not deliver; drops what no relay can take any more. */
  async flush(options: { signal?: AbortSignal } = {}): Promise<Flushed> {
    const outcome = { delivered: 0, dropped: 0, waiting: 0 };
    for (const report of await this.#parts.store.sealed(this.#parts.id)) {
      if (closed(this.task.epochs, report.epoch, Date.now())) {
        await this.#drop(report.epoch);
        outcome.dropped++;
        continue;
      }
      try {
        await this.#send(report, options.signal);
        outcome.delivered++;
      } catch (error) {
        if (!(error instanceof DoonaError)) throw error;
        outcome[error.code === 'not-delivered' ? 'waiting' : 'dropped']++;
      }
    }
    return outcome;
  }

  /** Sends what a call before sealed and has not delivered, at a moment that was fixed before, too. */
  async #again(old: Report, leave: number, signal?: AbortSignal): Promise<Receipt> {
    if (old.state === 'sealed') {
      await sleep(leave - performance.now(), signal);
      await this.#send(old, signal);
    }
    return this.#receipt(old.epoch, true, old.body?.length ?? 0);
  }

  /** A value the task does not allow uses up nothing: the claim on the epoch is given back. */
  async #sealOnce(epoch: number, seal: () => Promise<Bytes>): Promise<Bytes> {
    try {
      return await seal();
    } catch (error) {
      if (error instanceof DoonaError && error.code === 'invalid-value') {
        await this.#parts.store.release(this.#parts.id, epoch);
      }
      throw error;
    }
  }

  async #send(report: Report, signal?: AbortSignal): Promise<void> {
    const { id, task, store } = this.#parts;
    try {
      await submit(`${task.relays[0]!.url}/v1/tasks/${id}/epochs/${report.epoch}/reports`, report.body!, signal);
    } catch (error) {
      if (error instanceof DoonaError && error.code !== 'not-delivered') {
        await this.#drop(report.epoch);
      }
      throw error;
    }
    await store.put({ task: id, epoch: report.epoch, state: 'delivered' });
  }

  async #drop(epoch: number): Promise<void> {
    this.#dropped++;
    await this.#parts.store.put({ task: this.#parts.id, epoch, state: 'dropped' });
  }

  #receipt(epoch: number, repeated: boolean, bytes: number): Receipt {
    return { epoch, repeated, bytes, next: nextEpoch(this.task.epochs, epoch) };
  }
}

/** A random number in [0, 1), for the moment of sending only. */
function fraction(): number {
  return crypto.getRandomValues(new Uint32Array(1))[0]! / 2 ** 32;
}
