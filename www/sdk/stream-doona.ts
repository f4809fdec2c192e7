/**
 * A connection to a stream. When a task of the stream ends, the connection moves to the next task. A task of several
 * blocks of epochs is followed like a stream of one task: each block has keys of its own.
 * @module
 */

import { checkBuiltins } from './builtins.js';
import { type ConnectionParts, Doona, type Flushed, type Forgotten, type Receipt, type ReportOptions, forgotten,
  maxReport, storeLate } from './doona.js';
import { blockOf, blockSize, numberAt, startOf } from './epochs.js';
import { DoonaError } from './errors.js';
import type { ExplainOptions, Explanation } from './explain.js';
import type { Guarantee } from './guarantee.js';
import type { OpenedTask } from './stream-history.js';
import type { Task } from './task.js';
import { abortable, randomFraction, throwIfAborted, untilShown, waitAfter, within } from './timing.js';
import type { Value } from './value.js';
import { markWithdrawal } from './marks.js';

/**
 * A connection to a stream, or to a task of several blocks. `task` and `guarantee` belong to the task of the last
 * report, or to the task that `connect` opened.
 */
export class StreamDoona extends Doona {
  readonly #follow: (last: ConnectionParts) => Promise<ConnectionParts>;
  #parts: ConnectionParts;
  #now: Doona;
  readonly #opened: () => Promise<OpenedTask[]>;
  /** Connections to earlier tasks that may still have unsent reports, by the task's id. */
  readonly #earlier = new Map<string, Doona>();
  /** Aborted by `forget` and `close`: calls of report() that still wait for the stream end then. */
  #waiting = new AbortController();
  #closed = false;
  readonly #closing = new AbortController();
  /**
   * On a page that follows at times of its own: the last attempt, the next one, and the time, in Unix milliseconds,
   * from which reports wait for the next one.
   */
  #followed: Promise<ConnectionParts> | undefined;
  #following: Promise<ConnectionParts> | undefined;
  #until = 0;

  /**
   * @internal `follow` gets the keys of the current epoch, and returns the parts for the current task: its argument if
   * the task is the same. `opened` returns tasks that may have unsent reports.
   */
  constructor(parts: ConnectionParts, follow: (last: ConnectionParts) => Promise<ConnectionParts>,
    opened: () => Promise<OpenedTask[]>) {
    super(parts);
    this.#parts = parts;
    this.#now = new Doona(parts);
    this.#follow = follow;
    this.#opened = opened;
  }

  override get task(): Task {
    return this.#parts.task;
  }

  override get guarantee(): Guarantee {
    return this.#parts.guarantee;
  }

  override explain(options?: ExplainOptions): Promise<Explanation> {
    return this.#now.explain(options);
  }

  override get dropped(): number {
    let dropped = this.#now.dropped;
    for (const earlier of this.#earlier.values()) dropped += earlier.dropped;
    return dropped;
  }

  override async report(value: Value, options: ReportOptions = {}): Promise<Receipt> {
    checkBuiltins();
    throwIfAborted(options.signal);
    const { signal } = this.#waiting;
    throwIfAborted(signal);
    let follows = false;
    const following = this.#current().then((parts) => {
      throwIfAborted(signal);
      follows = true;
      return this.#report(parts, value, options);
    });
    return within(abortable(following, signal), this.#parts.spread + maxReport, () => follows
      ? new DoonaError('not-delivered', `couldn't deliver the report within ${maxReport / 1000} seconds`)
      : new DoonaError('task-unreachable', `couldn't get the epoch's keys within ${maxReport / 1000} seconds`));
  }

  async #report(parts: ConnectionParts, value: Value, options: ReportOptions): Promise<Receipt> {
    this.#moveTo(parts);
    return this.#now.report(value, options);
  }

  #moveTo(parts: ConnectionParts): void {
    if (parts.id === this.#parts.id) return;
    const last = this.#now;
    this.#earlier.set(this.#parts.id, last);
    this.#parts = parts;
    this.#now = new Doona(parts);
    void last.flushLater();
    void this.#now.draftUsual();
  }

  /**
   * Returns the parts for the current task. A page that follows at times of its own asks for them then, and a report
   * waits for them only if the task or its block is over: a request by a report would tell when the page reports.
   */
  #current(): Promise<ConnectionParts> {
    if (!this.#following) return this.#follow(this.#parts);
    return Date.now() < this.#until ? this.#followed! : this.#following;
  }

  /** Follows at a random moment of each later epoch in which the page is visible, whatever it reports. */
  async #followEach(): Promise<void> {
    this.#followed = Promise.resolve(this.#parts);
    for (let failures = 0; !this.#closed;) {
      let time: number;
      if (failures > 0) {
        time = Date.now() + waitAfter(failures);
      } else {
        const { epochs } = this.task;
        const now = numberAt(epochs, Date.now());
        const end = startOf(epochs, now + 1).getTime();
        const next = blockSize * (blockOf(now) + 1);
        this.#until = Math.max(end, startOf(epochs, Math.min(next, epochs.count)).getTime());
        time = end + this.#parts.spread * randomFraction();
      }
      const following = untilShown(time, this.#closing.signal).then(() => this.#follow(this.#parts));
      this.#following = following;
      failures = await following.then((parts) => {
        this.#moveTo(parts);
        this.#followed = following;
        return 0;
      }, (error) => {
        if (error.code !== 'task-unreachable') this.#followed = following; // As with a stream that was stopped.
        return failures + 1;
      });
    }
  }

  override flush(options: { signal?: AbortSignal } = {}): Promise<Flushed> {
    if (this.#closed) return super.flush(options); // It rejects with `closed`.
    const flushing = this.#withReports().then((all) => Promise.all(all.map((doona) => doona.flush(options))));
    return within(flushing.then((each) => each.reduce((a, b) => ({ delivered: a.delivered + b.delivered,
      dropped: a.dropped + b.dropped, waiting: a.waiting + b.waiting }))), maxReport,
    () => new DoonaError('not-delivered', `couldn't deliver all reports within ${maxReport / 1000} seconds`));
  }

  override forget(): Promise<Forgotten> {
    markWithdrawal(); // Before the store answers, which may take long or fail.
    this.withdraw();
    const forgetting = this.#withReports().then((all) => Promise.all(all.map((doona) => doona.forget())));
    return within(forgetting.then((each) => forgotten(each.reduce((dropped, { reports }) => dropped + reports, 0))),
      maxReport, storeLate);
  }

  /** @internal */
  override withdraw(): void {
    if (this.#closed) return;
    this.#waiting.abort(new DoonaError('withdrawn', 'the page has withdrawn the report'));
    this.#waiting = new AbortController();
    for (const doona of [this.#now, ...this.#earlier.values()]) doona.withdraw();
  }

  override close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#closing.abort();
    this.#waiting.abort(new DoonaError('closed', 'the page has closed the connection'));
    super.close();
    for (const doona of [this.#now, ...this.#earlier.values()]) doona.close();
  }

  /** @internal */
  override draftUsual(): Promise<void> {
    // In a stream without events every client reports in each epoch, and asks then.
    const ofItsOwn = this.task.epochs.events || !this.#parts.continues;
    if (ofItsOwn && typeof document !== 'undefined') void this.#followEach();
    return this.#now.draftUsual();
  }

  /** @internal */
  override async flushLater(anyway = false): Promise<void> {
    await Promise.all((await this.#withReports().catch(() => [this.#now])).map((doona) => doona.flushLater(anyway)));
  }

  /** Returns connections to the current task and to earlier tasks that still have an unsent report. */
  async #withReports(): Promise<Doona[]> {
    for (const { id, relay, epochs, tokens } of await this.#opened()) {
      if (id === this.#parts.id || this.#earlier.has(id)) continue;
      const task = { ...this.#parts.task, epochs, relays: [{ ...this.#parts.task.relays[0]!, url: relay }] };
      // The store has no issuer keys of an earlier task, so a report of that task without a token cannot be sent.
      const token = () => Promise.reject(new DoonaError('not-delivered', "the report's task is over and it has no token"));
      const { token: _, ...parts } = this.#parts;
      const earlier = new Doona({ ...parts, id, task, ...(tokens && { token }) });
      if (this.#closed) earlier.close();
      this.#earlier.set(id, earlier);
    }
    return [this.#now, ...this.#earlier.values()];
  }
}
