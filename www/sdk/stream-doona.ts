/**
 * A connection to a stream. It follows the stream from task to task.
 * @module
 */

import { checkBuiltins } from './builtins.js';
import { type ConnectionParts, Doona, type Flushed, type Receipt, maxReport } from './doona.js';
import { startOf } from './epochs.js';
import { DoonaError } from './errors.js';
import type { ExplainOptions, Explanation } from './explain.js';
import type { Guarantee } from './guarantee.js';
import type { Task } from './task.js';
import { throwIfAborted, within } from './timing.js';
import type { Vector } from './value.js';

/** A connection to a stream. `task` and `guarantee` are of the last report's task, or of connect's before a report. */
export class StreamDoona extends Doona {
  readonly #follow: (last: ConnectionParts) => Promise<ConnectionParts>;
  #parts: ConnectionParts;
  #now: Doona;
  /** How many reports the connections to earlier tasks dropped. */
  #before = 0;

  /** @internal `follow` returns its argument while the current task is the same. */
  constructor(parts: ConnectionParts, follow: (last: ConnectionParts) => Promise<ConnectionParts>) {
    super(parts);
    this.#parts = parts;
    this.#now = new Doona(parts);
    this.#follow = follow;
  }

  override get task(): Task {
    return this.#parts.task;
  }

  override get guarantee(): Guarantee {
    return this.#parts.guarantee;
  }

  override explain(options?: ExplainOptions): Explanation {
    return this.#now.explain(options);
  }

  override get dropped(): number {
    return this.#before + this.#now.dropped;
  }

  override async report(value: number | Vector | string, options: { signal?: AbortSignal } = {}): Promise<Receipt> {
    checkBuiltins();
    throwIfAborted(options.signal);
    let follows = false;
    return within(this.#follow(this.#parts).then((parts) => {
      follows = true;
      return this.#report(parts, value, options);
    }), this.#parts.spread + maxReport, () => follows
      ? new DoonaError('not-delivered', `couldn't deliver the report within ${maxReport / 1000} seconds`)
      : new DoonaError('task-unreachable', `couldn't follow the stream within ${maxReport / 1000} seconds`));
  }

  async #report(parts: ConnectionParts, value: number | Vector | string,
    options: { signal?: AbortSignal }): Promise<Receipt> {
    if (parts.id !== this.#parts.id) {
      this.#before += this.#now.dropped;
      this.#parts = parts;
      this.#now = new Doona(parts);
    }
    const { epochs } = parts.task;
    const receipt = await this.#now.report(value, options);
    return { ...receipt, next: receipt.next ?? startOf(epochs, epochs.count) };
  }

  override flush(options: { signal?: AbortSignal } = {}): Promise<Flushed> {
    return this.#now.flush(options);
  }

  override flushLater(): Promise<void> {
    return this.#now.flushLater();
  }
}
