/**
 * A connection to one task: what `connect` returns.
 * @module
 */

import type { Limit } from './budget.js';
import { checkBuiltins } from './builtins.js';
import type { Bytes } from './bytes.js';
import { epochAt, isClosed, nextEpoch, startOf } from './epochs.js';
import { DoonaError } from './errors.js';
import { type Decider, type ExplainOptions, type Explanation, explain } from './explain.js';
import type { Guarantee } from './guarantee.js';
import type { Claim, Ledger } from './ledger.js';
import { abortable, throwIfAborted, waitWhileVisible, within } from './timing.js';
import type { Line, Report, Store } from './store.js';
import { submit } from './submit.js';
import type { Task } from './task.js';
import { type Vector, toInput } from './value.js';

/** The outcome of a report. */
export interface Receipt {
  readonly epoch: number;
  /** Whether the epoch already had a report. The value of this call is then unused. */
  readonly repeated: boolean;
  /**
   * The size of the sealed report in bytes. 0 if an earlier report of the epoch was already delivered or dropped, or
   * is not sealed yet.
   */
  readonly bytes: number;
  /** When the next epoch begins; null after the last epoch. */
  readonly next: Date | null;
}

/** How many waiting reports `flush` delivered, dropped and left. */
export interface Flushed {
  readonly delivered: number;
  /** Reports dropped because their epoch closed or the relay refused them. */
  readonly dropped: number;
  /** Reports left for a later visit. */
  readonly waiting: number;
}

/** How many later visits retry a report that found its quota used up; other clients of the network may have used it. */
const maxLaterVisits = 2;

/** The least time between two retries, in milliseconds: a reload or another tab is not a later visit. */
const retryInterval = 3_600_000;

/** The longest that report, after its delay, and flush take, in milliseconds. Delivery goes on after that. */
export const maxReport = 33_000;

/** Everything a connection needs; `connect` makes it. */
export interface ConnectionParts {
  readonly id: string;
  readonly task: Task;
  readonly guarantee: Guarantee;
  readonly store: Store;
  readonly ledger: Ledger;
  /** Who decides about the budget. */
  readonly decider: Decider;
  readonly limit: Limit;
  /** The ledger line of the task's reports, before the first report. */
  readonly line: Omit<Line, 'stepped' | 'runs'>;
  readonly spread: number;
  /** Rejects with `module-failed` if no module can randomize any more. */
  readonly check: () => Promise<void>;
  /** Randomizes and seals a value. It may transfer the value's buffer, which is then empty. */
  readonly submission: (epoch: number, value: Float64Array) => Promise<Bytes>;
  /** Gets a token for a report; set only in a task with tokens. */
  readonly token?: (epoch: number) => Promise<Bytes>;
}

/** A connection to a task whose guarantee has been checked. */
export class Doona {
  readonly #parts: ConnectionParts;
  /** Deliveries by epoch, running or done, so that no report is sent twice. */
  readonly #sending = new Map<number, Promise<void>>();
  /** Epochs whose report found a quota used up and waits for a later visit. */
  readonly #postponed = new Set<number>();
  /** Token requests in flight, by the report's epoch, so that no token is requested twice. */
  readonly #tokens = new Map<number, Promise<Report | undefined>>();
  /** The calls of report() that wait for their time to send. */
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

  /** Explains in words and numbers what the task promises to a visitor and what not; fit for a consent notice. */
  explain(options?: ExplainOptions): Explanation {
    const { limit, decider } = this.#parts;
    return explain(this.task, this.guarantee, { ...limit, decider }, options);
  }

  /** Reports dropped since connecting: their epoch closed before they arrived, or the relay refused them. */
  get dropped(): number {
    return this.#dropped;
  }

  /** The current epoch. @throws DoonaError `epoch-not-open` or `task-ended` */
  get epoch(): number {
    return epochAt(this.task.epochs, Date.now());
  }

  /**
   * Reports a value for the current epoch: a number, or a vector or text if the task asks for one. Call it for every
   * client in every epoch, and report "nothing happened" as a value too: the first relay sees which clients report.
   *
   * The SDK brings a text to Unicode normal form C and cuts it between characters. Remove whatever names a person
   * before the call, such as the query and fragment of a URL, ids, names and e-mail addresses: the verifier publishes
   * texts that many visitors have.
   *
   * The value is randomized once. A further call in the same epoch, in any tab, sends the same bytes again if they
   * have not been delivered, and nothing otherwise. The report is sent within `spread`, before the epoch ends, and as
   * soon as the page is hidden. Aborting stops the wait; {@link flush} or the next visit then sends the sealed report
   * if sending had not begun.
   *
   * @throws DoonaError `builtin-broken`, `invalid-value`, `budget-exceeded`, `storage-unavailable`, `epoch-not-open`,
   * `task-ended` or `module-failed`;
   * `not-delivered`: the sealed report waits for {@link flush};
   * `limit-reached`: a quota is used up, and two later visits retry, an hour later at the earliest;
   * `epoch-closed`, `origin-refused` or `report-refused`: the report was dropped
   */
  async report(value: number | Vector | string, options: { signal?: AbortSignal } = {}): Promise<Receipt> {
    checkBuiltins();
    throwIfAborted(options.signal);
    const { id, store, ledger, check, submission } = this.#parts;
    const epoch = this.epoch;
    const input = toInput(this.task, value);
    const remaining = startOf(this.task.epochs, epoch + 1).getTime() - Date.now();
    // Drawn before the value is read, so that the time cannot depend on it.
    const delay = Math.min(this.#parts.spread, remaining) * randomFraction();
    const sendTime = performance.now() + delay;
    let isSealed = false;
    const reporting = async (): Promise<Receipt> => {
      await check(); // Before the claim, which the budget is charged for.
      const old = await ledger.claim(this.#claimOn(epoch));
      isSealed = old !== undefined;
      if (old) return this.#repeat(old, sendTime, options.signal);
      const body = await this.#sealOnce(epoch, () => submission(epoch, input));
      const report: Report = { task: id, epoch, state: 'sealed', body };
      await store.put(report);
      isSealed = true;
      await this.#sendAt(sendTime, report, options.signal);
      return this.#receipt(epoch, false, body.length);
    };
    return within(reporting(), delay + maxReport, () => isSealed
      ? new DoonaError('not-delivered', `couldn't deliver the report within ${maxReport / 1000} seconds: it waits for flush`)
      : new DoonaError('module-failed', `the engine or the store did not answer within ${maxReport / 1000} seconds`));
  }

  /**
   * Sends the reports that earlier visits sealed and could not deliver, and drops those of closed epochs. It does not
   * delay: a report without a token is sent right after its token arrives, so the issuer and the first relay could
   * link the two by their times. A report that waits in a call of {@link report} on this connection stays with that
   * call and counts as waiting. A report that waits in another tab is sent.
   * @throws DoonaError `builtin-broken` or `storage-unavailable`; the signal's reason when it is aborted
   */
  async flush(options: { signal?: AbortSignal } = {}): Promise<Flushed> {
    checkBuiltins();
    throwIfAborted(options.signal);
    return within(this.#sealedReports().then((all) => this.#flush(all, options.signal)), maxReport,
      () => new DoonaError('not-delivered', `couldn't deliver all reports within ${maxReport / 1000} seconds`));
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

  /** @internal Sends, for connect, the reports of earlier visits within `spread`: none is urgent. */
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
      // The reports wait for the next visit.
    }
  }

  #sealedReports(): Promise<Report[]> {
    return this.#parts.store.sealed(this.#parts.id);
  }

  #isClosed({ epoch }: Report): boolean {
    return isClosed(this.task.epochs, epoch, Date.now());
  }

  /** Sends the report that an earlier call sealed, if it is not delivered yet, at the time drawn for this call. */
  async #repeat(old: Report, sendTime: number, signal?: AbortSignal): Promise<Receipt> {
    if (old.state === 'sealed') await this.#sendAt(sendTime, old, signal);
    return this.#receipt(old.epoch, true, old.body?.length ?? 0);
  }

  /**
   * Sends a report at its time. It gets the token first: the time of the token then says less about the time of the
   * report, and a visit that ends early can still send both.
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

  #claimOn(epoch: number): Claim {
    const { id, line, limit } = this.#parts;
    return { task: id, epoch, start: startOf(this.task.epochs, epoch).getTime() / 1000, line, limit };
  }

  /** Seals a report. Releases the claim on the epoch if the task does not allow the value: that costs nothing. */
  async #sealOnce(epoch: number, seal: () => Promise<Bytes>): Promise<Bytes> {
    try {
      return await seal();
    } catch (error) {
      if (error instanceof DoonaError && error.code === 'invalid-value') {
        await this.#parts.ledger.release(this.#claimOn(epoch));
      }
      throw error;
    }
  }

  /** Sends a report once. An abort ends this call's wait but not the delivery, which other calls may await. */
  async #send(report: Report, signal?: AbortSignal): Promise<void> {
    throwIfAborted(signal);
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
   * Returns a sealed report with its token, if the task wants tokens; undefined if another tab has delivered or
   * dropped the report meanwhile. A lock admits one call in one tab at a time: a person may have no second token.
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
   * Throws without a request if the report found a quota used up within the last hour. If the clock was turned back,
   * the hour begins now. @throws DoonaError `limit-reached`
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
   * Postpones a report that found a quota used up to a later visit, which may come from another network or after the
   * issuer has raised its quota. Drops a report with a token: a spent token stays spent.
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

/** Runs `work` in one tab of the site at a time, if the runtime has locks. */
async function withLock<T>(name: string, work: () => Promise<T>): Promise<T> {
  const locks = globalThis.navigator?.locks;
  return locks ? ((await locks.request(name, work)) as T) : work();
}

/** Returns a random number in [0, 1), for the time of sending only. */
function randomFraction(): number {
  return crypto.getRandomValues(new Uint32Array(1))[0]! / 2 ** 32;
}
