/**
 * A connection to one task: what `connect` returns.
 * @module
 */

import { type Limit, admit, withoutEpoch } from './budget.js';
import type { Bytes } from './bytes.js';
import { epochAt, isClosed, nextEpoch, startOf } from './epochs.js';
import { DoonaError } from './errors.js';
import { type ExplainOptions, type Explanation, explain } from './explain.js';
import type { Guarantee } from './guarantee.js';
import { abortable, waitWhileVisible } from './timing.js';
import type { Line, Report, Store } from './store.js';
import { submit } from './submit.js';
import type { Task } from './task.js';
import { type Vector, toInput } from './value.js';

/** What became of a report. */
export interface Receipt {
  readonly epoch: number;
  /** Whether this call found a report of the epoch already made; the value it was given is unused. */
  readonly repeated: boolean;
  /**
   * What the first relay received, in bytes; 0 where a repeated report was delivered or dropped before, or is not
   * sealed yet.
   */
  readonly bytes: number;
  /** When the next report can be made; null if never. */
  readonly next: Date | null;
}

/** What became of the reports that waited. */
export interface Flushed {
  readonly delivered: number;
  /** Dropped because their epoch closed or the relay refused them. */
  readonly dropped: number;
  /** Left for a later visit. */
  readonly waiting: number;
}

/** How many later visits try again where a quota was used up: others in the network may have done that. */
const maxLaterVisits = 2;

/** How long after that a visit is a later one, in milliseconds: a reload is none, and another tab. */
const retryInterval = 3_600_000;

/** Everything a connection needs; made by `connect`. */
export interface ConnectionParts {
  readonly id: string;
  readonly task: Task;
  readonly guarantee: Guarantee;
  readonly store: Store;
  readonly limit: Limit;
  /** The ledger's line of the task's reports, as it begins. */
  readonly line: Omit<Line, 'stepped' | 'runs'>;
  readonly spread: number;
  /** Rejects with `module-failed` where nothing can be randomized any more. */
  readonly check: () => Promise<void>;
  /** Randomizes and seals a value, which it may take away. */
  readonly submission: (epoch: number, value: Float64Array) => Promise<Bytes>;
  /** Gets a token for a report, in a task with tokens. */
  readonly token?: (epoch: number) => Promise<Bytes>;
}

/** A task whose promise has been checked. */
export class Doona {
  readonly #parts: ConnectionParts;
  /** Reports on their way or delivered, by epoch, so that none is sent twice. */
  readonly #sending = new Map<number, Promise<void>>();
  /** Epochs whose report found a quota used up, and is left for a later visit. */
  readonly #postponed = new Set<number>();
  /** Tokens on their way, by the epoch of their report, so that none is asked for twice. */
  readonly #tokens = new Map<number, Promise<Report | undefined>>();
  /** The calls of report() that wait for their moment. */
  readonly #pendingCalls = new Set<{ readonly epoch: number }>();
  #dropped = 0;

  /** @internal */
  constructor(parts: ConnectionParts) {
    this.#parts = parts;
  }

  get task(): Task {
    return this.#parts.task;
  }

  get guarantee(): Guarantee {
    return this.#parts.guarantee;
  }

  /** What is promised to a visitor and what is not, in words and numbers; text for a consent notice. */
  explain(options?: ExplainOptions): Explanation {
    return explain(this.task, this.guarantee, this.#parts.limit, options);
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
   * Reports a value, or a vector or a text for a task that asks for one, for the current epoch. Call it for
   * every client in every epoch, with "nothing happened" as a value: that a client reports is
   * visible to the first relay.
   *
   * A text is brought to Unicode normal form C and cut at a character. Cut off yourself what names a person, such
   * as the query and fragment of a URL, ids, names and e-mail addresses: a text that many visitors have is published.
   *
   * The value is randomized once: a further call in the same epoch, in any tab, sends the same
   * bytes again if they have not been delivered, and otherwise nothing. The report leaves within
   * `spread` and the epoch, or when the page is hidden before. Aborting stops the waiting; a sealed
   * report that is not on its way yet is sent by {@link flush} or at the next visit.
   *
   * @throws DoonaError `invalid-value`, `budget-exceeded`, `storage-unavailable`, `epoch-not-open`, `task-ended`,
   * `module-failed`; `not-delivered`, where the sealed report waits for {@link flush}; `limit-reached`, where a
   * quota is used up: two visits try again, an hour later at the earliest; `epoch-closed`, `origin-refused` and `report-refused`,
   * where it was dropped
   */
  async report(value: number | Vector | string, options: { signal?: AbortSignal } = {}): Promise<Receipt> {
    options.signal?.throwIfAborted();
    const { id, store, check, submission, line, limit } = this.#parts;
    const epoch = this.epoch;
    const input = toInput(this.task, value);
    const remaining = startOf(this.task.epochs, epoch + 1).getTime() - Date.now();
    // fixed before the value is touched
    const sendTime = performance.now() + Math.min(this.#parts.spread, remaining) * randomFraction();
    await check(); // before the claim, which is charged for
    const start = this.#startSeconds(epoch);
    const old = await store.claim(id, epoch, (lines) => admit(lines, line, start, limit));
    if (old) return this.#repeat(old, sendTime, options.signal);
    const body = await this.#sealOnce(epoch, () => submission(epoch, input));
    const report: Report = { task: id, epoch, state: 'sealed', body };
    await store.put(report);
    await this.#sendAt(sendTime, report, options.signal);
    return this.#receipt(epoch, false, body.length);
  }

  /**
   * Sends what earlier visits sealed and could not deliver; drops what no relay can take any more.
   * It sends at once: a report that lacks a token leaves right after it, and the issuer and the first
   * relay could tell so by the time. What a call of {@link report} on this connection holds
   * back for its moment is left to it and counts as waiting; what one in another tab does, is sent.
   * @throws DoonaError `storage-unavailable`; the signal's reason when it is aborted
   */
  async flush(options: { signal?: AbortSignal } = {}): Promise<Flushed> {
    options.signal?.throwIfAborted();
    return this.#flush(await this.#sealedReports(), options.signal);
  }

  async #flush(reports: readonly Report[], signal?: AbortSignal): Promise<Flushed> {
    const outcome = { delivered: 0, dropped: 0, waiting: 0 };
    for (const report of reports) {
      if ([...this.#pendingCalls].some(({ epoch }) => epoch === report.epoch)) {
        outcome.waiting++;
        continue;
      }
      if (this.#isClosed(report)) {
        await this.#drop(report.epoch);
        outcome.dropped++;
        continue;
      }
      try {
        await this.#send(report, signal);
        outcome.delivered++;
      } catch (error) {
        if (!(error instanceof DoonaError) || error.code === 'storage-unavailable') throw error;
        outcome[error.code === 'not-delivered' || this.#postponed.has(report.epoch) ? 'waiting' : 'dropped']++;
      }
    }
    return outcome;
  }

  /** @internal What connect does with the reports that earlier visits left: none is urgent. */
  async flushLater(): Promise<void> {
    try {
      const sendTime = performance.now() + this.#parts.spread * randomFraction();
      for (const report of this.#parts.token ? await this.#sealedReports() : []) {
        if (!this.#isClosed(report)) await this.#withToken(report).catch(() => {});
      }
      await waitWhileVisible(sendTime - performance.now());
      await this.#flush((await this.#sealedReports()).filter((report) => report.token || !this.#parts.token ||
        this.#isClosed(report)));
    } catch {
      // They wait on.
    }
  }

  #sealedReports(): Promise<Report[]> {
    return this.#parts.store.sealed(this.#parts.id);
  }

  #isClosed({ epoch }: Report): boolean {
    return isClosed(this.task.epochs, epoch, Date.now());
  }

  /** Sends what a call before sealed and has not delivered, at a moment that was fixed before, too. */
  async #repeat(old: Report, sendTime: number, signal?: AbortSignal): Promise<Receipt> {
    if (old.state === 'sealed') await this.#sendAt(sendTime, old, signal);
    return this.#receipt(old.epoch, true, old.body?.length ?? 0);
  }

  /**
   * Sends a report at its moment. It gets its token now, so that the token's time tells less of when
   * the report leaves, and an ended visit can send both.
   */
  async #sendAt(sendTime: number, report: Report, signal?: AbortSignal): Promise<void> {
    const call = { epoch: report.epoch };
    this.#pendingCalls.add(call);
    let ready: Report | undefined;
    try {
      ready = await abortable(this.#withToken(report), signal);
      await waitWhileVisible(sendTime - performance.now(), signal);
    } finally {
      this.#pendingCalls.delete(call);
    }
    if (ready) await this.#send(ready, signal);
  }

  /** When an epoch begins, in Unix seconds: its time in the ledger. */
  #startSeconds(epoch: number): number {
    return startOf(this.task.epochs, epoch).getTime() / 1000;
  }

  /** A value the task does not allow uses up nothing: the claim on the epoch is given back. */
  async #sealOnce(epoch: number, seal: () => Promise<Bytes>): Promise<Bytes> {
    try {
      return await seal();
    } catch (error) {
      if (error instanceof DoonaError && error.code === 'invalid-value') {
        const { store, id, line } = this.#parts;
        await store.release(id, epoch, line.id, (of) => withoutEpoch(of, this.#startSeconds(epoch)));
      }
      throw error;
    }
  }

  /** An abort ends the waiting, not the sending, which others may wait for. */
  async #send(report: Report, signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    let sending = this.#sending.get(report.epoch);
    if (!sending) {
      sending = this.#deliver(report);
      this.#sending.set(report.epoch, sending);
      sending.catch(() => this.#sending.delete(report.epoch));
    }
    return abortable(sending, signal);
  }

  async #deliver(report: Report): Promise<void> {
    const { id, task, store } = this.#parts;
    const ready = await this.#withToken(report);
    if (!ready) return;
    await this.#checkRetryTime(ready);
    try {
      await submit(`${task.relays[0]!.url}/v1/tasks/${id}/epochs/${ready.epoch}/reports`, ready.body!, ready.token);
    } catch (error) {
      if (error instanceof DoonaError && error.code === 'limit-reached') await this.#postpone(ready);
      else if (error instanceof DoonaError && error.code !== 'not-delivered') await this.#drop(report.epoch);
      throw error;
    }
    await store.put({ task: id, epoch: report.epoch, state: 'delivered' });
  }

  /**
   * Returns a sealed report with its token, where the task wants one; undefined where another tab has
   * delivered or dropped the report meanwhile. One call at a time, in one tab: a person may have no
   * second token.
   */
  async #withToken(report: Report): Promise<Report | undefined> {
    const { id, token } = this.#parts;
    if (!token || report.token) return report;
    let getting = this.#tokens.get(report.epoch);
    if (!getting) {
      getting = withLock(`doona token ${id} ${report.epoch}`, () => this.#getToken(report.epoch, token));
      getting = getting.finally(() => this.#tokens.delete(report.epoch));
      this.#tokens.set(report.epoch, getting);
    }
    return getting;
  }

  async #getToken(epoch: number, token: (epoch: number) => Promise<Bytes>): Promise<Report | undefined> {
    const now = (await this.#sealedReports()).find((report) => report.epoch === epoch);
    if (!now || now.token) return now;
    await this.#checkRetryTime(now);
    try {
      const ready = { ...now, token: await token(epoch) };
      await this.#parts.store.put(ready);
      return ready;
    } catch (error) {
      if (error instanceof DoonaError && error.code === 'limit-reached') await this.#postpone(now);
      throw error;
    }
  }

  /**
   * Throws where the report found a quota used up within the last hour, and asks nobody. A clock that was set back
   * makes that an hour from now.
   */
  async #checkRetryTime(report: Report): Promise<void> {
    const { epoch, limitedAt = -Infinity } = report;
    const now = Date.now();
    if (now - limitedAt >= retryInterval) return;
    if (limitedAt > now) await this.#parts.store.put({ ...report, limitedAt: now });
    this.#postponed.add(epoch);
    throw new DoonaError('limit-reached', 'the quota was used up within the last hour: a later visit tries again');
  }

  /**
   * Leaves a report that found a quota used up for a later visit, which may come from another network, or after the
   * issuer's quota was raised. A token that is spent stays spent.
   */
  async #postpone(report: Report): Promise<void> {
    const limited = (report.limited ?? 0) + 1;
    if (report.token || limited > maxLaterVisits) return this.#drop(report.epoch);
    await this.#parts.store.put({ ...report, limited, limitedAt: Date.now() });
    this.#postponed.add(report.epoch);
  }

  async #drop(epoch: number): Promise<void> {
    this.#dropped++;
    this.#postponed.delete(epoch);
    await this.#parts.store.put({ task: this.#parts.id, epoch, state: 'dropped' });
  }

  #receipt(epoch: number, repeated: boolean, bytes: number): Receipt {
    return { epoch, repeated, bytes, next: nextEpoch(this.task.epochs, epoch) };
  }
}

/** Runs `work` in one tab of the site at a time, where the runtime has locks. */
async function withLock<T>(name: string, work: () => Promise<T>): Promise<T> {
  const locks = globalThis.navigator?.locks;
  return locks ? ((await locks.request(name, work)) as T) : work();
}

/** A random number in [0, 1), for the moment of sending only. */
function randomFraction(): number {
  return crypto.getRandomValues(new Uint32Array(1))[0]! / 2 ** 32;
}
