/**
 * A connection to a stream. It follows the stream from task to task.
 * @module
 */

import { checkBuiltins } from './builtins.js';
import { type ConnectionParts, Doona, type Flushed, type Receipt } from './doona.js';
import { startOf } from './epochs.js';
import type { ExplainOptions, Explanation } from './explain.js';
import type { Guarantee } from './guarantee.js';
import type { Task } from './task.js';
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

  override async report(value: number | Vector, options: { signal?: AbortSignal } = {}): Promise<Receipt> {
    checkBuiltins();
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
