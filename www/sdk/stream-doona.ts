/**
 * A connection to a stream: to one task after the other.
 * @module
 */

import { type ConnectionParts, Doona, type Flushed, type Receipt } from './doona.js';
import { startOf } from './epochs.js';
import type { ExplainOptions, Explanation } from './explain.js';
import type { Guarantee } from './guarantee.js';
import type { Task } from './task.js';
import type { Vector } from './value.js';

/** A stream whose promise has been checked; `task` and `guarantee` are those of its task of the last report. */
export class StreamDoona extends Doona {
  readonly #follow: (last: ConnectionParts) => Promise<ConnectionParts>;
  #parts: ConnectionParts;
  #now: Doona;
  /** Reports that earlier tasks' connections dropped. */
  #before = 0;

  /** @internal `follow` returns its argument while the task of this moment is the same. */
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

  override async report(value: number | Vector, options: { signal?: AbortSignal } = {}): Promise<Receipt> {
    options.signal?.throwIfAborted();
    const parts = await this.#follow(this.#parts);
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
