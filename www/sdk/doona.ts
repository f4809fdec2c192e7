/**
 * A connection to one task: what `connect` returns.
 * @module
 */

import type { Limit } from './budget.js';
import { checkBuiltins } from './builtins.js';
import type { Bytes } from './bytes.js';
import { epochAt, isClosed, nextEpoch, startOf } from './epochs.js';
import { DoonaError, type ErrorCode } from './errors.js';
import { type Decider, type ExplainOptions, type Explanation, explain } from './explain.js';
import type { Guarantee } from './guarantee.js';
import type { Claim, Ledger } from './ledger.js';
import { abortable, throwIfAborted, waitWhileVisible, withEither, within } from './timing.js';
import type { Line, Report, Store } from './store.js';
import { submit } from './submit.js';
import type { Task } from './task.js';
import { type Value, toInput } from './value.js';

/** The outcome of a report. */
export interface Receipt {
  readonly epoch: number;
  /** Whether the epoch already had a report or a draw. The value of this call is then unused. */
  readonly repeated: boolean;
  /**
   * Whether the epoch's draw chose this browser: see the option `sample`. If not, the values of the epoch are not used,
   * and nothing is sent.
   */
  readonly sampled: boolean;
  /**
   * The size of the sealed report in bytes. 0 if an earlier report of the epoch was already delivered or dropped, or
   * is not sealed yet.
   */
  readonly bytes: number;
  /** When the next epoch begins; null after the last epoch. */
  readonly next: Date | null;
}

/** How many waiting reports `flush` delivered, dropped, and left waiting. */
export interface Flushed {
  readonly delivered: number;
  /** Reports dropped because their epoch closed or the relay refused them. */
  readonly dropped: number;
  /** Reports left for a later visit. */
  readonly waiting: number;
}

/** What `forget` dropped. */
export interface Forgotten {
  /** The number of reports that were sealed and not delivered. */
  readonly reports: number;
  /** Says in plain English what was dropped, and that the ledger stays. */
  readonly text: string;
}

/** Says what `forget` dropped; `values` is the number of values that were neither randomized nor sealed. */
export function forgotten(reports: number, values = 0): Forgotten {
  const waiting = values === 0 ? '' : `${values === 1 ? '1 value that waited' : `${values} values that waited`}, and `;
  const what = reports === 1 ? '1 sealed report that was' : `${reports} sealed reports that were`;
  return { reports, text: `Dropped ${waiting}${what} not delivered. The ledger stays: what was randomized is still ` +
    'charged to the privacy budget, and its epoch is not reported again.' };
}

/**
 * How many later visits retry a report that was refused because a quota was used up, perhaps by other clients in the
 * network.
 */
const maxLaterVisits = 2;

/** The minimum time between two retries, in milliseconds: a reload or another tab is not a later visit. */
const retryInterval = 3_600_000;

/**
 * The time limit of `flush` and `forget`, and of `report` after its delay, in milliseconds. Delivery continues in the
 * background.
 */
export const maxReport = 33_000;

/** The errors after which the relay will never accept a report. */
const permanent: readonly ErrorCode[] = ['epoch-closed', 'origin-refused', 'report-refused'];

/** Everything that a connection needs. `connect` creates it. */
export interface ConnectionParts {
  readonly id: string;
  readonly task: Task;
  readonly guarantee: Guarantee;
  readonly store: Store;
  readonly ledger: Ledger;
  /** Where the budget decision runs. */
  readonly decider: Decider;
  readonly limit: Limit;
  /** The task's ledger line before its first report. */
  readonly line: Omit<Line, 'stepped' | 'runs'>;
  readonly spread: number;
  /** The probability with which this browser takes part in an epoch. */
  readonly sample: number;
  /** Rejects with `module-failed` if neither WASM module runs any more. */
  readonly check: () => Promise<void>;
  /** Randomizes and seals a value. It may transfer the value's buffer to the worker; the buffer is then empty. */
  readonly submission: (epoch: number, value: Float64Array) => Promise<Bytes>;
  /** Gets a token for a report. It is there only if the task requires tokens. */
  readonly token?: (epoch: number, signal: AbortSignal) => Promise<Bytes>;
  /** Asked before a report leaves: whether the reports in the store may be sent now. Default: they may. */
  readonly maySend?: (store: Store) => Promise<boolean>;
  /** Runs `work`; `stop` waits for its end. */
  readonly hold: <T>(work: () => Promise<T>) => Promise<T>;
  /** Stops the worker, if no other connection uses it, and closes the store. May be called twice. */
  readonly stop: () => void;
}

/** A connection to a task whose guarantee has been checked. `V` is what the task asks. */
export class Doona<V extends Value = Value> {
  readonly #parts: ConnectionParts;
  /** The delivery of each epoch's report, running or finished, so that no report is sent twice. */
  readonly #sending = new Map<number, Promise<void>>();
  /** The epochs whose report was refused because a quota was used up. These reports wait for a later visit. */
  readonly #postponed = new Set<number>();
  /** Token requests in flight, by the report's epoch, so that no token is requested twice. */
  readonly #tokens = new Map<number, Promise<Report | undefined>>();
  /** The calls of report() that still wait for their random time of sending. */
  readonly #pendingCalls = new Set<{ readonly epoch: number }>();
  /** When the report of an epoch is sent. All calls of an epoch share it: the earliest of many is not random enough. */
  #sendTime: { readonly epoch: number; readonly at: number } | undefined;
  /** Aborted by `forget` and `close`. Every call and delivery listens to the controller that it began with. */
  #running = new AbortController();
  /** How often `withdraw` was called. */
  #withdrawals = 0;
  #closed = false;
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

  /**
   * Explains in words and numbers what the task does and does not promise to a visitor. The text is fit for a consent
   * notice.
   */
  explain(options?: ExplainOptions): Explanation {
    const { limit, decider } = this.#parts;
    return explain(this.task, this.guarantee, { ...limit, decider }, options);
  }

  /**
   * How many reports this connection has dropped: their epoch closed before they arrived, or the relay refused them.
   */
  get dropped(): number {
    return this.#dropped;
  }

  /** The number of the current epoch, from 0. @throws DoonaError `epoch-not-open` or `task-ended` */
  get epoch(): number {
    return epochAt(this.task.epochs, Date.now());
  }

  /**
   * Reports a value for the current epoch: a number, or a vector or text if the task asks for one. Call it for every
   * client in every epoch. If nothing happened, report that as a value too: the first relay sees which clients report.
   *
   * The SDK converts a text to Unicode normal form C and cuts it between characters. Before the call, remove everything
   * that identifies a person, such as ids, names, e-mail addresses and the query and fragment of a URL: the verifier
   * publishes texts that many visitors report.
   *
   * The SDK randomizes one value per epoch. Another call in the same epoch, in any tab, sends the same bytes again if
   * they are not delivered yet, and nothing otherwise. The SDK sends the report at a random time within `spread` and
   * before the epoch ends, or at once when the page is hidden. Aborting ends the wait. If sending has not begun by
   * then, {@link flush} or the next visit sends the sealed report.
   *
   * @throws DoonaError `builtin-broken`, `invalid-value`, `budget-exceeded`, `storage-unavailable`, `epoch-not-open`,
   * `task-ended` or `module-failed`; `not-delivered`: the sealed report waits for {@link flush} or the next visit;
   * `limit-reached`: a quota is used up, and two later visits retry, an hour later at the earliest; `epoch-closed`,
   * `origin-refused` or `report-refused`: the report was dropped; `withdrawn` after {@link forget}; `closed` after
   * {@link close}
   */
  async report(value: V, options: { signal?: AbortSignal } = {}): Promise<Receipt> {
    checkBuiltins();
    throwIfAborted(options.signal);
    const { signal: running } = this.#running;
    throwIfAborted(running);
    const withdrawals = this.#withdrawals;
    const { id, store, ledger, check, submission, hold } = this.#parts;
    const epoch = this.epoch;
    const input = toInput(this.task, value);
    const remaining = startOf(this.task.epochs, epoch + 1).getTime() - Date.now();
    // Drawn before the engine reads the value, so that the delay cannot depend on the value.
    const now = performance.now();
    if (this.#sendTime?.epoch !== epoch || this.#sendTime.at < now) {
      this.#sendTime = { epoch, at: now + Math.min(this.#parts.spread, remaining) * randomFraction() };
    }
    const sendTime = this.#sendTime.at;
    let isSealed = false;
    const reporting = async (): Promise<Receipt> => {
      await check(); // First, because the claim charges the budget.
      throwIfAborted(running);
      const [old, report] = await hold(async () => { // Otherwise close() could lose an epoch that is charged.
        const earlier = await ledger.claim(this.#claimOn(epoch));
        if (earlier) return [earlier, earlier] as const;
        const body = await this.#sealOnce(epoch, () => submission(epoch, input));
        const sealed: Report = { task: id, epoch, state: 'sealed', body };
        await store.put(withdrawals === this.#withdrawals ? sealed : { task: id, epoch, state: 'dropped' });
        return [undefined, sealed] as const;
      });
      if (this.#closed) this.#parts.stop(); // The store opened again.
      isSealed = true;
      if (old) return this.#repeat(old, sendTime, running, options.signal);
      throwIfAborted(running);
      await this.#sendAt(sendTime, report, running, options.signal);
      return this.#receipt(epoch, false, report.body!.length);
    };
    return within(abortable(reporting(), running), sendTime - now + maxReport, () => isSealed
      ? new DoonaError('not-delivered', `couldn't deliver the report within ${maxReport / 1000} seconds: it waits for flush`)
      : new DoonaError('module-failed', `the engine or the store did not answer within ${maxReport / 1000} seconds`));
  }

  /**
   * Sends the reports that earlier visits sealed but could not deliver, and drops reports of closed epochs. It sends
   * without a delay. A report that needs a token leaves right after the token arrives, so the issuer and the first
   * relay could link the two by their times. A report that a call of {@link report} on this connection will send counts
   * as waiting. A report that waits in another tab is sent.
   * @throws DoonaError `builtin-broken` or `storage-unavailable`; `withdrawn` or `closed` if the page calls
   * {@link forget} or {@link close} meanwhile; the signal's reason when it is aborted
   */
  async flush(options: { signal?: AbortSignal } = {}): Promise<Flushed> {
    checkBuiltins();
    throwIfAborted(options.signal);
    const { signal: running } = this.#running;
    throwIfAborted(running);
    const flushing = this.#sealedReports().then((all) => this.#flush(all, running, options.signal));
    return within(abortable(flushing, running), maxReport,
      () => new DoonaError('not-delivered', `couldn't deliver all reports within ${maxReport / 1000} seconds`));
  }

  /**
   * Drops every report of this task that is sealed and not delivered, and every call of {@link report} that still
   * waits: these calls reject with `withdrawn`. A report that is on its way may still arrive. The ledger stays: the
   * budget remains charged, and an epoch with a dropped report is not reported again.
   * @throws DoonaError `storage-unavailable`
   */
  forget(): Promise<Forgotten> {
    this.withdraw();
    return within(this.#forget(), maxReport, storeLate);
  }

  async #forget(): Promise<Forgotten> {
    let dropped = 0;
    for (const { task, epoch } of await this.#sealedReports()) {
      await this.#parts.store.put({ task, epoch, state: 'dropped' });
      dropped++;
    }
    if (this.#closed) this.#parts.stop(); // The store opened again.
    return forgotten(dropped);
  }

  /** @internal Ends all calls and deliveries with `withdrawn`. Deletes nothing in the store. */
  withdraw(): void {
    if (this.#closed) return;
    this.#withdrawals++;
    this.#running.abort(new DoonaError('withdrawn', 'the page has withdrawn the report'));
    this.#running = new AbortController();
  }

  /**
   * Stops everything that this connection does: requests, timers, listeners, and the worker if no other connection
   * uses it. Calls that still wait, and later calls, reject with `closed`. Sealed reports stay for the next visit;
   * {@link forget} drops them. A second call does nothing.
   */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#running.abort(new DoonaError('closed', 'the page has closed the connection'));
    this.#parts.stop();
  }

  async #flush(reports: readonly Report[], running: AbortSignal, signal?: AbortSignal): Promise<Flushed> {
    const outcome = { delivered: 0, dropped: 0, waiting: 0 };
    for (const report of reports) {
      throwIfAborted(running);
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
        await this.#send(report, running, signal);
        outcome.delivered++;
      } catch (error) {
        if (!(error instanceof DoonaError) || error.code === 'storage-unavailable') throw error;
        outcome[error.code === 'not-delivered' || this.#postponed.has(report.epoch) ? 'waiting' : 'dropped']++;
      }
    }
    return outcome;
  }

  /**
   * @internal Sends the reports of earlier visits at a random time within `spread`. `connect` calls it; it never
   * rejects.
   */
  async flushLater(): Promise<void> {
    const { signal: running } = this.#running;
    try {
      const sendTime = performance.now() + this.#parts.spread * randomFraction();
      for (const report of this.#parts.token ? await this.#sealedReports() : []) {
        throwIfAborted(running);
        if (!this.#isClosed(report)) await this.#withToken(report, running).catch(() => {});
      }
      await waitWhileVisible(sendTime - performance.now(), running);
      await this.#flush((await this.#sealedReports()).filter((report) => report.token || !this.#parts.token ||
        this.#isClosed(report)), running);
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

  /** If the report of an earlier call is sealed and not delivered yet, sends it at the time drawn for this call. */
  async #repeat(old: Report, sendTime: number, running: AbortSignal, signal?: AbortSignal): Promise<Receipt> {
    if (old.state === 'sealed') await this.#sendAt(sendTime, old, running, signal);
    return this.#receipt(old.epoch, true, old.body?.length ?? 0, old.state !== 'left-out');
  }

  /**
   * Sends a report at `sendTime`. It gets the token first: the time of the token then says less about the time of the
   * report, and a visit that ends early already has the token.
   */
  async #sendAt(sendTime: number, report: Report, running: AbortSignal, signal?: AbortSignal): Promise<void> {
    const call = { epoch: report.epoch };
    this.#pendingCalls.add(call);
    let [ready, visible]: [Report | undefined, boolean] = [undefined, true];
    try {
      await withEither(signal, running, async (either) => {
        ready = await abortable(this.#withToken(report, running), either);
        visible = await waitWhileVisible(sendTime - performance.now(), either);
      });
    } finally {
      this.#pendingCalls.delete(call);
    }
    if (!ready) return this.#unwanted(report.epoch);
    await this.#send(ready, running, signal, visible);
  }

  #claimOn(epoch: number): Claim {
    const { id, line, limit, sample } = this.#parts;
    const { epochs } = this.task;
    return { task: id, epoch, start: startOf(epochs, epoch).getTime() / 1000, line, limit, cap: epochs.cap, sample };
  }

  /**
   * Randomizes and seals a value. If the task does not allow the value, it releases the claim on the epoch, so the
   * budget is not charged.
   */
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

  /** Sends a report once. An abort ends this call's wait, but not the delivery: other calls may wait for it. */
  async #send(report: Report, running: AbortSignal, signal?: AbortSignal, visible = true): Promise<void> {
    throwIfAborted(running);
    throwIfAborted(signal);
    let sending = this.#sending.get(report.epoch);
    if (!sending) {
      sending = this.#deliver(report, running, visible);
      this.#sending.set(report.epoch, sending);
      sending.catch(() => this.#sending.delete(report.epoch));
    }
    return abortable(sending, signal);
  }

  async #deliver(report: Report, running: AbortSignal, visible: boolean): Promise<void> {
    const { id, task, store } = this.#parts;
    const ready = await this.#withToken(report, running);
    if (!ready) return this.#unwanted(report.epoch);
    await this.#checkRetryTime(ready);
    const isWanted = async (attempt: number) => (attempt === 0 && !visible) || this.#isWanted(ready);
    try {
      const url = `${task.relays[0]!.url}/v1/tasks/${id}/epochs/${ready.epoch}/reports`;
      if (!(await submit(url, ready.body!, { token: ready.token, signal: running, isWanted }))) {
        return await this.#unwanted(report.epoch);
      }
    } catch (error) {
      throwIfAborted(running);
      if (error instanceof DoonaError && error.code === 'limit-reached') await this.#postpone(ready);
      else if (error instanceof DoonaError && permanent.includes(error.code)) await this.#drop(report.epoch);
      throw error;
    }
    await store.put({ task: id, epoch: report.epoch, state: 'delivered' });
  }

  /**
   * Whether a report still waits and may be sent: another tab may have delivered or dropped it, or the visitor may have
   * opted out there. A page that is hidden or left may have no time to ask the store, so its first attempt just leaves.
   */
  async #isWanted({ epoch }: Report): Promise<boolean> {
    const { store, maySend } = this.#parts;
    if (maySend && !(await maySend(store))) return false;
    return (await this.#sealedReports()).some((report) => report.epoch === epoch);
  }

  /**
   * Ends the delivery of a report that is not wanted any more.
   * @throws DoonaError `withdrawn`, unless another tab has delivered the report
   */
  async #unwanted(epoch: number): Promise<void> {
    const withdrawn = new DoonaError('withdrawn', 'the report was dropped before it was delivered');
    const now = await this.#parts.store.claim(this.#parts.id, epoch, () => { // Returns what the store has.
      throw withdrawn;
    });
    if (now?.state !== 'delivered') throw withdrawn;
  }

  /**
   * Returns a sealed report, with its token if the task requires tokens. Returns undefined if another tab has delivered
   * or dropped the report meanwhile. A lock admits one call in one tab at a time, because the issuer may refuse a
   * second token.
   */
  async #withToken(report: Report, running: AbortSignal): Promise<Report | undefined> {
    const { id, token } = this.#parts;
    if (!token || report.token) return report;
    let getting = this.#tokens.get(report.epoch);
    if (!getting) {
      getting = withLock(`doona token ${id} ${report.epoch}`, () => this.#getToken(report.epoch, token, running));
      getting = getting.finally(() => this.#tokens.delete(report.epoch));
      this.#tokens.set(report.epoch, getting);
    }
    return getting;
  }

  async #getToken(epoch: number, token: (epoch: number, signal: AbortSignal) => Promise<Bytes>,
    running: AbortSignal): Promise<Report | undefined> {
    const sealed = async () => (await this.#sealedReports()).find((report) => report.epoch === epoch);
    const now = await sealed();
    if (!now || now.token) return now;
    await this.#checkRetryTime(now);
    const { store, maySend } = this.#parts;
    if (maySend && !(await maySend(store))) return undefined;
    try {
      const ready = { ...now, token: await token(epoch, running) };
      if (!(await sealed())) return undefined; // Another tab has dropped it.
      throwIfAborted(running);
      await store.put(ready);
      return ready;
    } catch (error) {
      if (error instanceof DoonaError && error.code === 'limit-reached') await this.#postpone(now);
      throw error;
    }
  }

  /**
   * Throws `limit-reached`, without a request, if the report was refused for a used-up quota within the last hour. If
   * the clock was turned back since then, the hour begins now.
   * @throws DoonaError `limit-reached`
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
   * Postpones a report that was refused for a used-up quota. A later visit may come from another network, or after the
   * issuer has raised its quota. Drops the report after the last retry, or if it has a token: a spent token stays
   * spent.
   */
  async #postpone(report: Report): Promise<void> {
    const limited = (report.limited ?? 0) + 1;
    if (report.token || limited > maxLaterVisits) return this.#drop(report.epoch);
    if (!(await this.#sealedReports()).some(({ epoch }) => epoch === report.epoch)) return; // dropped by another tab
    await this.#parts.store.put({ ...report, limited, limitedAt: Date.now() });
    this.#postponed.add(report.epoch);
  }

  async #drop(epoch: number): Promise<void> {
    this.#dropped++;
    this.#postponed.delete(epoch);
    await this.#parts.store.put({ task: this.#parts.id, epoch, state: 'dropped' });
  }

  #receipt(epoch: number, repeated: boolean, bytes: number, sampled = true): Receipt {
    return { epoch, repeated, sampled, bytes, next: nextEpoch(this.task.epochs, epoch) };
  }
}

/** Returns the error for a store that does not answer: a store of the page may hang. */
export function storeLate(): DoonaError {
  return new DoonaError('storage-unavailable', `the store did not answer within ${maxReport / 1000} seconds`);
}

/** Runs `work` while no other tab of the site holds the lock `name`. Without Web Locks it just runs `work`. */
async function withLock<T>(name: string, work: () => Promise<T>): Promise<T> {
  const locks = globalThis.navigator?.locks;
  return locks ? ((await locks.request(name, work)) as T) : work();
}

/** Returns a random number in [0, 1). Only for times of sending, not for noise. */
function randomFraction(): number {
  return crypto.getRandomValues(new Uint32Array(1))[0]! / 2 ** 32;
}
