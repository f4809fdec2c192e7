/**
 * A connection to one task: what `connect` returns.
 * @module
 */

import type { Limit } from './budget.js';
import { checkBuiltins } from './builtins.js';
import { type Bytes, equal } from './bytes.js';
import type { Draft } from './engine.js';
import { epochAt, isClosed, nextEpoch, numberAt, startOf } from './epochs.js';
import { DoonaError, type ErrorCode, invalidOption } from './errors.js';
import type { Decider, ExplainOptions, Explanation } from './explain.js';
import type { Guarantee } from './guarantee.js';
import type { Claim, Ledger } from './ledger.js';
import { checkExplainOptions } from './options.js';
import { isDue, retryTime } from './reported.js';
import { abortable, isHidden, maxTimer, randomFraction, throwIfAborted, untilShown, waitWhileVisible,
  watchNavigation, withEither, within } from './timing.js';
import { type LineStart, type Report, type Store, dropReport } from './store.js';
import { submit } from './submit.js';
import { withLock } from './token.js';
import type { Task } from './task.js';
import { hasLeft, markAtSealing, markLeaving, markWithdrawal, watchWithdrawals, withdrawalMark } from './marks.js';
import { type Value, isUsual, toInput, usualInput } from './value.js';

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
  /** True if the report waits as a draft until the visitor leaves the site: see Doona.report. */
  readonly draft?: true;
}

/** The options of Doona.report. */
export interface ReportOptions {
  /** Aborts the call. */
  readonly signal?: AbortSignal;
  /** False: a later value of the epoch may replace this one. Default true. */
  readonly final?: boolean;
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

/** A draft leaves within this time before the epoch ends if the visitor has not left by then, in milliseconds. */
const lastMoments = 1_800_000;

/** How often a draft is sealed in one call at most. */
const maxTurns = 8;

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
  readonly line: LineStart;
  readonly spread: number;
  /** The probability with which this browser takes part in an epoch. */
  readonly sample: number;
  /** Gets the keys of an epoch's block, unless they are here. It looks into `bundle`, if given, before it fetches. */
  readonly keys: (epoch: number, bundle?: Bytes) => Promise<unknown>;
  /** Gets the keys of an epoch. Rejects with `module-failed` if neither WASM module runs any more. */
  readonly check: (epoch: number) => Promise<void>;
  /** Randomizes and seals a value. It may transfer the value's buffer to the worker; the buffer is then empty. */
  readonly submission: (epoch: number, value: Float64Array) => Promise<Bytes>;
  /** Seals a provisional value, with the tags of the epoch's first draft. */
  readonly draft: (epoch: number, value: Float64Array, tags?: Bytes) => Promise<Draft>;
  /** Gets a token for a report. It is there only if the task requires tokens. */
  readonly token?: (epoch: number, signal: AbortSignal) => Promise<Bytes>;
  /** Asked before a report leaves: whether the reports in the store may be sent now. Default: they may. */
  readonly maySend?: (store: Store) => Promise<boolean>;
  /**
   * Called when a draft begins to wait, with its outcome: the receipt, or undefined if it was dropped. Also called with
   * a repeated receipt if the report of the epoch was delivered or dropped before its default could be sealed.
   */
  readonly onDraft?: (left: Promise<Receipt | undefined>) => void;
  /** Whether other tasks follow this one, as in a stream. */
  readonly continues?: boolean;
  /** Why the engine runs in the page's thread; undefined if it does not. */
  readonly inPlace?: string | undefined;
  /** Loads the words of explanations. */
  readonly words: () => Promise<typeof import('./explain.js')>;
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
  /** The drafts that wait until the visitor leaves the site, by epoch. */
  readonly #drafts = new Map<number, WaitingDraft>();
  /** The last claim or sealing of a draft, running or finished: see #inTurn. */
  #turns: Promise<unknown> = Promise.resolve();
  /** The calls of report() that still wait for their random time of sending. */
  readonly #pendingCalls = new Set<{ readonly epoch: number }>();
  /** When the report of an epoch is sent. All calls of an epoch share it: the earliest of many is not random enough. */
  #sendTime: { readonly epoch: number; readonly at: number } | undefined;
  /** Aborted by `forget` and `close`. Every call and delivery listens to the controller that it began with. */
  #running = new AbortController();
  #closed = false;
  #dropped = 0;
  /** Whether it sends what other tabs and earlier visits sealed. */
  #flushes = false;
  /** Stops listening for the browser to be online again; there only after a failed delivery. */
  #online: (() => void) | undefined;

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
   * notice. The first call loads the words, a script of 8 kB.
   * @throws DoonaError `invalid-option`, or `module-failed` if the words cannot be loaded
   */
  async explain(options: ExplainOptions = {}): Promise<Explanation> {
    checkExplainOptions(options);
    const { limit, decider, line, words } = this.#parts;
    const { explain } = await words();
    return explain(this.task, this.guarantee, { ...limit, decider, price: line.price }, options);
  }

  /**
   * How many reports this connection has dropped: their epoch closed before they arrived, or the relay refused them.
   */
  get dropped(): number {
    return this.#dropped;
  }

  /**
   * Why the engine runs in the page's thread, where a report blocks the page for up to some 200 ms on a slow phone.
   * Undefined if a worker runs it, and where there is no page.
   */
  get inPlace(): string | undefined {
    return this.#parts.inPlace;
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
   * With `final: false` the value is provisional: the SDK seals it as a draft and resolves. Each later value of the
   * epoch replaces the draft, in any tab, until one is final. The draft leaves once, when the visitor leaves the site,
   * or at a random moment of the epoch's last 30 minutes. Only for a task whose relays add all the noise.
   *
   * @throws DoonaError `builtin-broken`, `invalid-option` (`final`), `invalid-value`, `budget-exceeded`, `cap-reached`,
   * `storage-unavailable`, `epoch-not-open`, `task-ended` or `module-failed`; `task-unreachable` or `task-refused`: the
   * epoch's keys are not here, and nothing was used up; `not-delivered`: the sealed report waits for {@link flush} or
   * the next visit; `limit-reached`: a quota is used up, and two later visits retry, an hour later at the earliest;
   * `epoch-closed`, `origin-refused` or `report-refused`: the report was dropped; `withdrawn` after
   * {@link forget}; `closed` after {@link close}
   */
  async report(value: V, options: ReportOptions = {}): Promise<Receipt> {
    checkBuiltins();
    throwIfAborted(options.signal);
    const { signal: running } = this.#running;
    throwIfAborted(running);
    const { id, store, ledger, check, submission, hold } = this.#parts;
    const { final = true } = options;
    if (typeof final !== 'boolean') throw invalidOption('final', final, 'true or false');
    if (!final) this.#checkProvisional();
    const epoch = this.epoch;
    const { events } = this.task.epochs;
    let [input, refused]: [Float64Array | undefined, unknown] = [undefined, undefined];
    try {
      input = toInput(this.task, value);
    } catch (error) {
      if (!events) throw error;
      refused = error; // The default leaves all the same: a report that is missing would tell of the value.
    }
    const provisional = !final || events !== undefined;
    const remaining = startOf(this.task.epochs, epoch + 1).getTime() - Date.now();
    // Drawn before the engine reads the value, so that the delay cannot depend on the value.
    const now = performance.now();
    if (this.#sendTime?.epoch !== epoch || this.#sendTime.at < now) {
      this.#sendTime = { epoch, at: now + Math.min(this.#parts.spread, remaining) * randomFraction() };
    }
    const sendTime = this.#sendTime.at;
    let isSealed = false;
    const sealDraft = () => this.#sealDraft(epoch, input, final && !refused, running).finally(() => input?.fill(0));
    const reporting = async (): Promise<Receipt> => {
      if (provisional) {
        const receipt = await abortable(this.#inTurn(sealDraft), options.signal);
        if (refused) throw refused;
        return receipt;
      }
      const [old, report, replaced] = await this.#inTurn(async () => {
        await check(epoch); // First, because the claim charges the budget.
        throwIfAborted(running);
        const [earlier, stored] = await hold(async () => { // Otherwise close() could lose an epoch that is charged.
          const earlier = await ledger.claim(this.#claimOn(epoch));
          if (earlier) return [earlier, earlier] as const;
          const body = await this.#sealOnce(epoch, () => submission(epoch, input!));
          if (this.#isWithdrawn(running)) await dropReport(store, id, epoch);
          const stored = await store.update(id, epoch, (now) =>
            now.state === 'claimed' ? { task: id, epoch, state: 'sealed', body } : undefined);
          return [undefined, stored] as const;
        });
        if (this.#closed) this.#parts.stop(); // The store opened again.
        isSealed = true;
        // In the same turn: a later provisional value must not replace the draft before this one does.
        return [earlier, stored, earlier?.tags && await abortable(sealDraft(), options.signal)] as const;
      });
      if (replaced) return replaced;
      if (old) return this.#repeat(old, sendTime, running, options.signal);
      throwIfAborted(running);
      if (report?.state !== 'sealed') await this.#unwanted(epoch); // Another tab has withdrawn it.
      else await this.#sendAt(sendTime, report, running, options.signal);
      return this.#receipt(epoch, false, report?.body?.length ?? 0);
    };
    return within(abortable(reporting(), running), sendTime - now + maxReport, () => isSealed
      ? new DoonaError('not-delivered', `couldn't deliver the report within ${maxReport / 1000} seconds: it waits for flush`)
      : new DoonaError('module-failed', `the engine or the store did not answer within ${maxReport / 1000} seconds`));
  }

  /**
   * Sends the reports that earlier visits sealed but could not deliver, and drops reports of closed epochs. It sends
   * without a delay, and even if the relay failed a moment ago. A draft counts as waiting. A report that needs a token
   * leaves right after the token arrives, so the issuer and the first relay could link the two by their times. A report
   * that a call of {@link report} on this connection will send counts as waiting. A report that waits in another tab is
   * sent.
   * @throws DoonaError `builtin-broken` or `storage-unavailable`; `not-delivered` after 33 seconds; `withdrawn` or
   * `closed` if the page calls {@link forget} or {@link close} meanwhile; the signal's reason when it is aborted
   */
  async flush(options: { signal?: AbortSignal } = {}): Promise<Flushed> {
    checkBuiltins();
    throwIfAborted(options.signal);
    const { signal: running } = this.#running;
    throwIfAborted(running);
    const flushing = this.#sealedReports().then((all) => this.#flush(all, running, options.signal, true));
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
    markWithdrawal();
    this.withdraw();
    return within(this.#forget(), maxReport, storeLate);
  }

  async #forget(): Promise<Forgotten> {
    const { id, store } = this.#parts;
    const now = numberAt(this.task.epochs, Date.now()); // Another tab may be sealing its report.
    let dropped = 0;
    for (const { epoch } of [...(await this.#sealedReports()), { epoch: now }]) {
      if (await dropReport(store, id, epoch)) dropped++;
    }
    if (this.#closed) this.#parts.stop(); // The store opened again.
    return forgotten(dropped);
  }

  /** @internal Ends all calls and deliveries with `withdrawn`. Deletes nothing in the store. */
  withdraw(): void {
    if (this.#closed) return;
    this.#running.abort(new DoonaError('withdrawn', 'the page has withdrawn the report'));
    this.#running = new AbortController();
  }

  /** Whether `withdraw` was called since a call began with `running`. `close` replaces no signal, and drops nothing. */
  #isWithdrawn(running: AbortSignal): boolean {
    return running !== this.#running.signal;
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
    this.#online?.();
    this.#parts.stop();
  }

  async #flush(reports: readonly Report[], running: AbortSignal, signal: AbortSignal | undefined,
    anyway: boolean): Promise<Flushed> {
    const outcome = { delivered: 0, dropped: 0, waiting: 0 };
    for (const report of reports) {
      throwIfAborted(running);
      if (this.#adopt(report)) {
        outcome.waiting++;
        continue;
      }
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
        await this.#send(report, running, signal, { anyway });
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
   * rejects. With `anyway` it also sends those whose last delivery failed a moment ago.
   */
  async flushLater(anyway = false): Promise<void> {
    this.#flushes = true;
    const { signal: running } = this.#running;
    try {
      const mark = markAtSealing();
      for (const report of await this.#sealedReports()) this.#adopt(report, mark);
      const sendTime = performance.now() + this.#parts.spread * randomFraction();
      for (const report of this.#parts.token ? await this.#sealedReports() : []) {
        throwIfAborted(running);
        if (!this.#isClosed(report)) await this.#withToken(report, running).catch(() => {});
      }
      await waitWhileVisible(sendTime - performance.now(), running);
      await this.#flush((await this.#sealedReports()).filter((report) => report.token || !this.#parts.token ||
        this.#isClosed(report)), running, undefined, anyway);
    } catch {
      // The reports wait for the next visit.
    }
  }

  #sealedReports(): Promise<Report[]> {
    return this.#parts.store.sealed(this.#parts.id);
  }

  async #sealedReport(epoch: number): Promise<Report | undefined> {
    return (await this.#sealedReports()).find((report) => report.epoch === epoch);
  }

  /** Whether a report can no longer be sent. A draft of an ended epoch has not left in time. */
  #isClosed({ epoch, tags }: Report): boolean {
    const now = Date.now();
    return isClosed(this.task.epochs, epoch, now) || (tags !== undefined && now >= this.#endOf(epoch));
  }

  #endOf(epoch: number): number {
    return startOf(this.task.epochs, epoch + 1).getTime();
  }

  /**
   * @throws DoonaError `invalid-option` unless relays add all the noise. Where a client randomizes, the time that this
   * takes would decide which of several draws is sent.
   */
  #checkProvisional(): void {
    const { task, guarantee } = this.#parts;
    // The proof of strings needs a table that is uniform whatever the page does: docs/proofs/drafts.md.
    if (task.noise?.kind === 'cells' && guarantee.localEpsilon === null) return;
    throw invalidOption('final', false, 'true: clients of this task randomize values, or hash texts by random tables, so no value can be replaced');
  }

  /** Runs `body` after those of all earlier calls, so that values replace each other in the order of their calls. */
  #inTurn<T>(body: () => Promise<T>): Promise<T> {
    const turn = this.#turns.then(body);
    this.#turns = turn.catch(() => {});
    return turn;
  }

  /**
   * Seals a value and then stores it: the first draft in the transaction that claims the epoch, so that nothing is
   * charged if the page closes before. If another tab stores a draft meanwhile, it seals anew with that draft's tags.
   * Each such turn takes a write of another tab; a store that shows its own drafts late would need many.
   *
   * For a task with events, it first seals the default. An event then replaces it once its record is stored, if the
   * allowance has room. Without an input it seals the default if the epoch has no report.
   */
  async #sealDraft(epoch: number, input: Float64Array | undefined, final: boolean,
    running: AbortSignal): Promise<Receipt> {
    const { id, store, ledger, draft, hold } = this.#parts;
    for (let turns = 0; turns < maxTurns; turns++) {
      throwIfAborted(running);
      const mark = markAtSealing();
      const leaveAt = this.#leaveTime(epoch); // Drawn before the value is sealed.
      const old = await this.#sealedReport(epoch);
      if (old && (!old.tags || old.final || !input || hasLeft(id, epoch))) {
        if (this.#flushes) this.#adopt(old, mark); // Another tab may have sealed it since this one connected.
        return this.#repeated(old);
      }
      const isEvent = input && this.task.epochs.events && !isUsual(this.task, input);
      const isFirst = isEvent && !old; // The epoch is claimed before its event is recorded.
      const seal = (value?: Float64Array) => draft(epoch, value?.slice() ?? usualInput(this.task), old?.tags);
      const [isAllowed, sealed] = await Promise.all([ // Both at once: the visitor may be about to leave.
        !isEvent || isFirst || ledger.event(this.#claimOn(epoch)), seal(isFirst ? undefined : input)]);
      const { body, tags } = isAllowed ? sealed : await seal();
      throwIfAborted(running);
      let report: Report | undefined;
      const earlier = await hold(async () => {
        if (old) return void (await store.update(id, epoch, (now) =>
          isSameDraft(now, old) && !hasLeft(id, epoch) ? (report = { ...now, body, final }) : undefined));
        report = { task: id, epoch, state: 'sealed', body, tags, final: final && !isFirst, leaveAt };
        const other = await ledger.claim({ ...this.#claimOn(epoch), draft: report });
        if (other) report = undefined;
        else if (this.#isWithdrawn(running)) await dropReport(store, id, epoch);
        return other;
      });
      if (this.#closed) this.#parts.stop(); // The store opened again.
      throwIfAborted(running);
      if (earlier && !earlier.tags) return this.#repeated(earlier);
      if (!report) continue; // Another tab has a draft, or the draft has left.
      this.#watch(report, mark);
      if (isFirst) continue;
      return { ...this.#receipt(epoch, false, body.length), draft: true };
    }
    throw new DoonaError('storage-unavailable', `the store did not show the epoch's draft ${maxTurns} times`, 'store');
  }

  /**
   * @internal For a task with events, seals the default of an epoch without a report, whatever the page later reports:
   * a report that only an event makes tells of the event. On a page it does so again in each later epoch in which the
   * page is visible. `connect` calls it once; it never rejects.
   */
  async draftUsual(): Promise<void> {
    const { epochs } = this.task;
    while (epochs.events && !this.#closed) {
      const { signal: running } = this.#running;
      const epoch = numberAt(epochs, Date.now());
      try {
        const receipt = await this.#inTurn(() => this.#sealDraft(this.epoch, undefined, false, running));
        if (receipt.repeated && receipt.bytes === 0) this.#parts.onDraft?.(Promise.resolve(receipt));
      } catch {
        // No epoch is open, or the budget has no room: then report() fails, too.
      }
      if (typeof document === 'undefined' || epoch + 1 >= epochs.count) return;
      const next = this.#endOf(epoch) + this.#parts.spread * randomFraction();
      for (let waits = true; waits && !this.#closed;) { // A hidden page would send it at once.
        waits = await untilShown(next, this.#running.signal).then(() => false, () => true); // withdrawn or closed
      }
    }
  }

  /** Draws when a draft leaves at the latest. */
  #leaveTime(epoch: number): number {
    const end = this.#endOf(epoch);
    const first = Math.max(Date.now(), end - lastMoments);
    return first + Math.floor((end - first) * randomFraction());
  }

  #repeated({ epoch, state, body, tags }: Report): Receipt {
    const receipt = this.#receipt(epoch, true, body?.length ?? 0, state !== 'left-out');
    return { ...receipt, ...(tags && { draft: true }) };
  }

  /** Takes over a draft of an earlier visit or another tab, if a report is one whose epoch has not ended. */
  #adopt(report: Report, mark?: string | null): boolean {
    const isDraft = report.tags !== undefined && !this.#isClosed(report);
    if (isDraft && !this.#drafts.has(report.epoch)) this.#watch(report, mark);
    return isDraft;
  }

  /** Sends a draft once it may leave. If an earlier draft of the epoch waits here, replaces it. */
  #watch(report: Report, mark = markAtSealing()): void {
    const { epoch } = report;
    const before = this.#drafts.get(epoch);
    const token = before?.report.token;
    this.#drafts.set(epoch, { report: token ? { ...report, token } : report, mark });
    this.#checkMark(epoch); // It may have changed while the draft was sealed.
    const { signal: running } = this.#running;
    if (before) return; // Whoever issues tokens must not see when values change.
    // It gets the token now, because a page that is left has no time for it.
    this.#withToken(report, running).then((ready) => {
      const now = this.#drafts.get(epoch);
      if (now && ready?.token) this.#drafts.set(epoch, { ...now, report: { ...now.report, token: ready.token } });
    }, () => {});
    const left = this.#leave(epoch, running).finally(() => this.#drafts.delete(epoch));
    left.catch(() => {}); // The draft waits for the next visit.
    this.#parts.onDraft?.(left);
  }

  /** Waits until the visitor leaves the site, or until the draft's moment, and sends the draft. */
  async #leave(epoch: number, running: AbortSignal): Promise<Receipt | undefined> {
    const check = () => this.#checkMark(epoch);
    const stops = [watchWithdrawals(check), watchNavigation(() => {
      check();
      void this.#inTurn(() => this.#refresh(epoch)).catch(() => {});
    })];
    const wasHidden = isHidden(); // A page in the background is not being left.
    let visible = true;
    try {
      while (visible) {
        const wait = this.#drafts.get(epoch)!.report.leaveAt! - Date.now();
        if (wait <= 0) break;
        visible = await waitWhileVisible(Math.min(wait, maxTimer), running, true);
      }
    } finally {
      for (const stop of stops) stop();
    }
    const hasTime = visible || wasHidden;
    const { report: held, mark } = this.#drafts.get(epoch)!;
    // A page that is left has no time to ask the store for another tab's draft, or whether this one is withdrawn.
    const draft = hasTime ? await this.#sealedReport(epoch) : mark === '' ? undefined : held;
    if (!draft) return undefined;
    if (this.#isClosed(draft)) return void (await this.#drop(epoch));
    await this.#send(draft, running, undefined, { visible: hasTime });
    return this.#receipt(epoch, false, draft.body!.length);
  }

  /**
   * Notes whether the visitor has withdrawn since the draft was sealed. A page that is left must not read the mark: a
   * tab that Firefox closes sends nothing if it asks its storage before.
   */
  #checkMark(epoch: number): void {
    const held = this.#drafts.get(epoch);
    if (held && held.mark !== withdrawalMark()) this.#drafts.set(epoch, { ...held, mark: '' });
  }

  /** Takes over a later page's draft, which may have replaced this one's while it was in the back-forward cache. */
  async #refresh(epoch: number): Promise<void> {
    const mark = markAtSealing();
    const stored = await this.#sealedReport(epoch);
    const held = this.#drafts.get(epoch);
    // If it has left or was dropped, the held one must not leave.
    if (held) this.#drafts.set(epoch, stored?.tags ? { report: stored, mark } : { ...held, mark: '' });
    this.#checkMark(epoch);
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
    await this.#send(ready, running, signal, { visible });
  }

  #claimOn(epoch: number): Claim {
    const { id, line, limit, sample } = this.#parts;
    const { epochs } = this.task;
    const [start, next] = [startOf(epochs, epoch), nextEpoch(epochs, epoch)];
    return { task: id, epoch, start: start.getTime() / 1000, next: next && next.getTime() / 1000, line, limit,
      limits: { cap: epochs.cap, pace: epochs.pace }, events: epochs.events, sample };
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
  async #send(report: Report, running: AbortSignal, signal?: AbortSignal, how: Sending = {}): Promise<void> {
    throwIfAborted(running);
    throwIfAborted(signal);
    let sending = this.#sending.get(report.epoch);
    if (!sending) {
      sending = this.#deliver(report, running, how);
      this.#sending.set(report.epoch, sending);
      sending.catch(() => this.#sending.delete(report.epoch));
    }
    return abortable(sending, signal);
  }

  async #deliver(report: Report, running: AbortSignal, { visible = true, anyway = false }: Sending): Promise<void> {
    const { id, task } = this.#parts;
    const { epoch } = report;
    if (!anyway && !isDue(report, Date.now())) {
      throw new DoonaError('not-delivered', 'the relay did not answer a moment ago: a later visit tries again');
    }
    const noteLeaving = () => { // No tab and no later page may replace it.
      if (!report.tags) return;
      markLeaving(id, epoch);
      void this.#change(epoch, leftDraft).catch(() => {});
    };
    // A page that is left notes it once the request has begun: see #checkMark. One without a token has time before.
    const isLast = !visible && (!this.#parts.token || report.token !== undefined);
    if (!isLast) noteLeaving();
    const ready = await this.#withToken(report, running);
    if (!ready) return this.#unwanted(epoch);
    await this.#checkRetryTime(ready);
    const isWanted = async (attempt: number) => (attempt === 0 && !visible) || this.#isWanted(ready);
    try {
      const url = `${task.relays[0]!.url}/v1/tasks/${id}/epochs/${epoch}/reports`;
      const retries = ready.failed === undefined;
      const onRequest = isLast ? noteLeaving : undefined;
      if (!(await submit(url, ready.body!, { token: ready.token, signal: running, isWanted, retries, onRequest }))) {
        return await this.#unwanted(epoch);
      }
    } catch (error) {
      throwIfAborted(running);
      if (error instanceof DoonaError && error.code === 'limit-reached') await this.#postpone(ready);
      else if (error instanceof DoonaError && permanent.includes(error.code)) await this.#drop(epoch);
      else if (error instanceof DoonaError && error.code === 'not-delivered') await this.#backOff(epoch);
      throw error;
    }
    await this.#change(epoch, () => ({ task: id, epoch, state: 'delivered' }));
  }

  /** Changes a report in the store, unless another tab has delivered or dropped it meanwhile. */
  async #change(epoch: number, change: (sealed: Report) => Report): Promise<Report | undefined> {
    const { id, store } = this.#parts;
    return store.update(id, epoch, (now) => (now.state === 'sealed' ? change(now) : undefined));
  }

  /** Records that a delivery has failed. Tries again once the browser is online again. */
  async #backOff(epoch: number): Promise<void> {
    if (!this.#online && !this.#closed && typeof document !== 'undefined') {
      const retry = () => {
        this.#online?.();
        void this.flushLater(true);
      };
      addEventListener('online', retry);
      this.#online = () => {
        removeEventListener('online', retry);
        this.#online = undefined;
      };
    }
    await this.#change(epoch, (now) => {
      const failed = (now.failed ?? 0) + 1;
      return { ...leftDraft(now), failed, retryAt: retryTime(failed, Date.now()) };
    });
  }

  /**
   * Whether a report still waits and may be sent: another tab may have delivered or dropped it, or the visitor may have
   * opted out there. A page that is hidden or left may have no time to ask the store, so its first attempt just leaves.
   */
  async #isWanted({ epoch }: Report): Promise<boolean> {
    const { store, maySend } = this.#parts;
    if (maySend && !(await maySend(store))) return false;
    return (await this.#sealedReport(epoch)) !== undefined;
  }

  /**
   * Ends the delivery of a report that is not wanted any more.
   * @throws DoonaError `withdrawn`, unless another tab has delivered the report
   */
  async #unwanted(epoch: number): Promise<void> {
    const withdrawn = new DoonaError('withdrawn', 'the report was dropped before it was delivered');
    const now = await this.#parts.store.update(this.#parts.id, epoch, () => undefined);
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
    const now = await this.#sealedReport(epoch);
    if (!now || now.token) return now;
    await this.#checkRetryTime(now);
    const { store, maySend } = this.#parts;
    if (maySend && !(await maySend(store))) return undefined;
    try {
      const ready = { ...now, token: await token(epoch, running) };
      throwIfAborted(running);
      const stored = await this.#change(epoch, (now) => ({ ...now, token: ready.token }));
      return stored?.state === 'sealed' ? stored : undefined; // Another tab may have dropped it.
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
    if (limitedAt > now) await this.#change(epoch, (sealed) => ({ ...sealed, limitedAt: now }));
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
    const { epoch } = report;
    const stored = await this.#change(epoch, (now) => ({ ...leftDraft(now), limited, limitedAt: Date.now() }));
    if (stored?.state === 'sealed') this.#postponed.add(epoch);
  }

  async #drop(epoch: number): Promise<void> {
    this.#dropped++;
    this.#postponed.delete(epoch);
    await dropReport(this.#parts.store, this.#parts.id, epoch);
  }

  #receipt(epoch: number, repeated: boolean, bytes: number, sampled = true): Receipt {
    const next = nextEpoch(this.task.epochs, epoch) ?? (this.#parts.continues ? new Date(this.#endOf(epoch)) : null);
    return { epoch, repeated, sampled, bytes, next };
  }
}

/** Returns the error for a store that does not answer: a store of the page may hang. */
export function storeLate(): DoonaError {
  return new DoonaError('storage-unavailable', `the store did not answer within ${maxReport / 1000} seconds`);
}

interface WaitingDraft {
  /** The draft as it was sealed last, with its token once there is one. */
  readonly report: Report;
  /** The mark of the last withdrawal before it was sealed; '' if it must not leave. */
  readonly mark: string | null;
}

/** How a report is sent. */
interface Sending {
  /** Whether the page is visible. If not, the first attempt leaves without asking the store. Default true. */
  readonly visible?: boolean;
  /** Whether to send although a delivery failed a moment ago. Default false. */
  readonly anyway?: boolean;
}

/** Returns a report as it is once it has left: no later value replaces it, and its tags are deleted. */
function leftDraft({ tags: _tags, leaveAt: _leaveAt, final: _final, ...report }: Report): Report {
  return report;
}

/** Whether a report is a draft that a later value may replace, with the same tags as `old`. */
function isSameDraft({ state, tags, final }: Report, old: Report): boolean {
  return state === 'sealed' && !final && tags !== undefined && equal(tags, old.tags!);
}
