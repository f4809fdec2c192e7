/**
 * `init`: what most pages use. It returns at once and never rejects. It queues values until the visitor has consented
 * and the connection stands, and its `status` says why nothing is sent. `connect` is the strict form beneath it.
 * @module
 */

import { checkBuiltins } from './builtins.js';
import { checkRuntime, enter, open, preview } from './connect.js';
import { dropSealed, hasOptedOut, hasPrivacyControl, setOptOut, withStore } from './consent.js';
import { type Doona, type Forgotten, type Receipt, type ReportOptions, forgotten, maxReport,
  storeLate } from './doona.js';
import { DoonaError, type ErrorCode, invalidOption } from './errors.js';
import type { ExplainOptions, Explanation } from './explain.js';
import { moduleURL } from './load.js';
import { type ConnectOptions, type ParsedOptions, parseOptions } from './options.js';
import { type Reported, reportOf } from './reported.js';
import type { Store } from './store.js';
import { pause, randomFraction, untilShown, waitAfter, within } from './timing.js';
import type { Value, Vector } from './value.js';
import { markWithdrawal } from './marks.js';

/** The options of `init`: those of `connect`, and those of `ClientOptions`. */
export type InitOptions<V extends Value = Value> = ConnectOptions<V> & ClientOptions;

/** The options that only `init` has. */
export interface ClientOptions {
  /**
   * `pending`: contact nobody, store nothing and send nothing before `optIn()`. `granted`: begin at once, unless the
   * visitor has opted out or the browser sends the Global Privacy Control signal. Default `granted`.
   */
  readonly consent?: 'granted' | 'pending';
  /** Called for each report that is delivered, and for each value of an epoch that already has its report or draw. */
  readonly onReceipt?: (receipt: Receipt) => void;
  /** Called for each error, which no method throws. Nearly always a `DoonaError`. */
  readonly onError?: (error: unknown) => void;
  /** Whether to say each step in plain English by `console.debug`, never a value. Default false. */
  readonly debug?: boolean;
}

/** Why nothing is sent at the moment; or that a report is on its way, or delivered. */
export interface Status {
  /** A state of the client, or the code of the last error: see the README. */
  readonly state: 'waiting-for-consent' | 'opted-out' | 'gpc' | 'connecting' | 'ready' | 'sending' | 'draft' | 'reported' |
    'not-sampled' | 'closed' | 'failed' | ErrorCode;
  /** The same in plain English. It never contains a value. */
  readonly reason: string;
}

/** A value that waits. */
interface Waiting {
  readonly value: Value;
  /** False if a later value may replace it. */
  readonly final: boolean;
}

/** The most values that wait for consent and for the connection. A later value of the same epoch changes nothing. */
const maxQueued = 16;

/** The longest list that waits: the largest number of bins of a task. */
const maxLength = 65536;

/** The longest wait for what one call asks of the store, in milliseconds: a store of the page may never answer. */
const maxStore = 15_000;

/** The errors of `connect` after which another attempt may succeed on the same page. */
const passing: readonly unknown[] = ['task-unreachable', 'module-failed'];

/** The channel by which the tabs of a site tell each other that the visitor has opted out or in. */
const channelName = 'doona consent';

const reasons: Partial<Record<Status['state'], string>> = {
  'waiting-for-consent': 'The page has not called optIn() yet.',
  'opted-out': 'The visitor has opted out at this site. optIn() ends that.',
  gpc: 'The browser sends the Global Privacy Control signal. optIn() overrides it.',
  connecting: 'The task is being fetched and checked, once the page is idle.',
  ready: 'The page has not reported a value in this epoch yet.',
  sending: 'A report is being sealed, or waits for its random moment.',
  draft: 'A sealed draft waits until the visitor leaves the site, or until the epoch is nearly over.',
  reported: 'This epoch has its report already. The next value counts in the next epoch.',
  'not-sampled': 'The draw for the option sample left this browser out of this epoch.',
  closed: 'The page has called close().',
  'task-unreachable': 'The relay does not answer: it is down, or the browser or the network blocks it.',
  'not-delivered': 'The relay does not answer: it is down, or the browser or the network blocks it. The sealed report ' +
    'leaves at the next visit.',
  'task-ended': 'The task has ended.',
  'epoch-not-open': 'The task has not begun.',
  'stream-stopped': 'The owner has stopped the stream.',
  'budget-exceeded': 'The privacy budget of this site is used up in this browser.',
  'cap-reached': 'The task takes no more reports of this browser for now.',
  'storage-unavailable': 'The browser stores nothing for this page, so one epoch could be reported twice.',
  'limit-reached': 'A quota of this network or account is used up. Two later visits try again.',
  'epoch-closed': 'The epoch ended before the report arrived.',
  'invalid-value': 'The task does not take this value.',
  failed: 'An unexpected error. The page gets it by onError.',
};

/**
 * Starts the SDK on a page. It returns at once. Errors go to `onError` and to `status`; only a faulty option is thrown.
 * @throws DoonaError `invalid-option`
 */
export function init<V extends Value = Value>(options: InitOptions<V>): DoonaClient<V> {
  return new DoonaClient<V>(options);
}

/** What `init` returns. No method throws or rejects. */
export class DoonaClient<V extends Value = Value> {
  readonly #options: InitOptions;
  /** Undefined if a builtin is broken, so that nothing can be parsed. */
  readonly #pinned: ParsedOptions | undefined;
  /** Aborted by `close`. */
  readonly #closing = new AbortController();
  #queue: Waiting[] = [];
  #consent: boolean;
  /** Whether optIn() was called, which overrides the Global Privacy Control signal. */
  #isAsked = false;
  #isOut = false;
  #doona: Doona | undefined;
  /** Aborts an attempt to connect; there only during one. */
  #connecting: AbortController | undefined;
  #preview: Promise<Doona> | undefined;
  /** The run of `#advance` that is going on, and whether another one must follow. */
  #advancing: Promise<void> | undefined;
  #isStale = false;
  /** Writes to the opt-out, one after the other. */
  #writing: Promise<unknown> = Promise.resolve();
  #failure: { readonly code: Status['state']; readonly reason: string } | undefined;
  /** Whether no later attempt can succeed on this page. */
  #isHopeless = false;
  /** When a report may connect again; Infinity if the page does by itself. */
  #retryAt = 0;
  /** Attempts to connect that failed. */
  #failures = 0;
  /** The end of the epoch, in Unix milliseconds, after which the page connects by itself, and values wait; or 0. */
  #awaited = 0;
  #sending = 0;
  /** When the epoch of the last report ends, in Unix milliseconds. */
  #reportedUntil = 0;
  /** Whether the draw left this browser out of that epoch. */
  #isLeftOut = false;
  /** The number of drafts that wait. */
  #drafts = 0;
  /** Whether a sealed report of an earlier page view waits for the relay to recover. */
  #waits = false;
  /** Whether the task is wanted although this epoch has its report. */
  #wantsTask = false;
  #channel: BroadcastChannel | undefined;

  /** @internal */
  constructor(options: InitOptions) {
    this.#options = { ...options };
    let broken: unknown;
    try {
      checkBuiltins();
    } catch (error) {
      broken = error;
    }
    if (!broken) this.#pinned = parse(options);
    this.#consent = this.#options.consent !== 'pending';
    if (broken) {
      this.#isHopeless = true;
      void Promise.resolve().then(() => this.#fail(broken));
    } else {
      options.signal?.addEventListener('abort', this.#close);
      this.#listen();
      if (options.signal?.aborted) this.#close();
      else this.#advance();
    }
  }

  /** Why nothing is sent at the moment. */
  get status(): Status {
    const [state, reason] = this.#state();
    return Object.freeze({ state, reason: reason ?? reasons[state] ?? '' });
  }

  #state(): readonly [Status['state'], reason?: string] {
    if (this.#closing.signal.aborted) return ['closed'];
    if (this.#isOut) return ['opted-out'];
    if (this.#isObjected()) return ['gpc'];
    if (!this.#consent && !this.#isHopeless) return ['waiting-for-consent'];
    if (this.#failure) return [this.#failure.code, this.#failure.reason];
    if (this.#sending > 0 || (this.#doona && this.#queue.length > 0)) return ['sending'];
    if (Date.now() < this.#reportedUntil) return [this.#isLeftOut ? 'not-sampled' : 'reported'];
    if (!this.#doona) return ['connecting'];
    return [this.#drafts > 0 ? 'draft' : 'ready'];
  }

  /**
   * Reports a value for the current epoch: see `connect` and Doona.report. Before consent and before the connection
   * stands, the value waits in memory. It belongs to the epoch in which it is sealed. With `final: false` a later value
   * may replace it until the visitor leaves the site.
   */
  report(value: V, { final = true }: Pick<ReportOptions, 'final'> = {}): void {
    if (this.#isRefused() || this.#isHopeless) return this.#say(`A value is not reported. ${this.status.reason}`);
    const replaces = this.#queue[this.#queue.length - 1]?.final === false;
    if (this.#queue.length >= maxQueued && !replaces) {
      return this.#say(`A value is dropped: ${maxQueued} values wait already.`);
    }
    try {
      const waiting = { value: typeof value === 'object' && value !== null ? copied(value) : value, final };
      if (replaces) this.#queue.pop();
      this.#queue.push(waiting);
    } catch (cause) { // It is detached, revoked or too long, or no list.
      return this.#fail(new DoonaError('invalid-value', "couldn't copy the value: want a number, a text or a list of " +
        `at most ${maxLength} numbers`, 'value', { cause }));
    }
    if (!this.#doona) this.#say(`A value waits. ${this.status.reason}`);
    this.#advance();
  }

  /**
   * Says that the visitor consents. It ends an opt-out, and overrides the Global Privacy Control signal on this page.
   * Consent is not stored: call it on each page.
   */
  optIn(): Promise<void> {
    if (this.#closing.signal.aborted) return Promise.resolve();
    this.#say('The visitor has opted in.');
    [this.#consent, this.#isAsked, this.#isOut] = [true, true, false];
    const [queue, waiting] = [this.#queue, this.#queue.length];
    const written = this.#write(false, async (store) => {
      if (await hasOptedOut(store)) {
        if (this.#queue === queue) queue.splice(0, waiting); // The visitor had opted out of these values.
        await dropSealed(store); // A tab may have sealed a report while another tab opted out.
        if (this.#isOut) return; // The visitor has opted out since.
        await setOptOut(store, false);
        if (this.#isOut) await setOptOut(store, true);
      }
      if (!this.#isOut) this.#post('in'); // Only now, because the other tabs read the store.
    });
    this.#advance();
    return written;
  }

  /**
   * Says that the visitor opts out: on this page, in all tabs of this site and at later visits, until `optIn()`. It drops
   * the values that wait, and the sealed reports of all tasks that are not delivered. The ledger stays. Resolves once
   * the opt-out is stored. It works after close(), too.
   */
  optOut(): Promise<void> {
    markWithdrawal();
    if (!this.#closing.signal.aborted) this.#stop();
    this.#post('out');
    return this.#write(true, async (store) => {
      await setOptOut(store, true);
      const reports = await dropSealed(store);
      this.#say(`The visitor has opted out. ${forgotten(reports).text}`);
    });
  }

  /**
   * Drops the values that wait, and the sealed reports of this task or stream that are not delivered. A report that is
   * on its way may still arrive. The ledger stays: what was randomized is still charged to the privacy budget, and its
   * epoch is not reported again. `text` says so.
   */
  forget(): Promise<Forgotten> {
    markWithdrawal(); // Before the store answers, which may take long or fail.
    const values = this.#queue.length;
    this.#drop();
    this.#post(`forget ${this.#pinned?.idText}`);
    const dropping = this.#doona?.forget().then((done) => done.reports) ?? withStore(this.#options.store, false,
      (store) => dropSealed(store, this.#pinned ? [this.#pinned.idText] : []));
    return within(dropping, maxReport, storeLate).catch((error) => this.#fail(error)).then((reports) => {
      const done = forgotten(reports ?? 0, values);
      this.#say(done.text);
      return done;
    });
  }

  /**
   * Stops everything: requests, timers, listeners, and the worker if nothing else uses it. Drops values that wait.
   * Sealed reports stay for the next visit; `forget()` drops them. A second call does nothing.
   */
  close(): void {
    this.#close();
  }

  /**
   * Explains what the task does and does not promise to a visitor. Before consent it works only if the task's address
   * and the SDK's files are of the page's own origin: then it contacts nobody else, and stores nothing. Otherwise it
   * waits for the connection. Resolves to undefined if the task cannot be explained; `status` and `onError` say why.
   */
  explain(options?: ExplainOptions): Promise<Explanation | undefined> {
    const late = () => new DoonaError('module-failed', `couldn't open the task within ${maxReport / 1000} seconds`);
    return within(this.#explain(options), maxReport, late).catch((error) => {
      this.#fail(error);
      return undefined;
    });
  }

  async #explain(options?: ExplainOptions): Promise<Explanation | undefined> {
    this.#wantsTask = true;
    if (this.#isReady() && !this.#doona) await this.#advance();
    if (this.#doona) return this.#doona.explain(options);
    if (!this.#pinned || this.#closing.signal.aborted) return undefined;
    const own = globalThis.location?.origin;
    if (this.#pinned.url.origin === own && moduleURL('browser', this.#pinned.modules).origin === own) {
      return (await this.#explained()).explain(options);
    }
    this.#say("explain() needs the task and the SDK's files at the page's own origin before the connection stands.");
    return undefined;
  }

  /** Opens the task only to explain it. */
  #explained(): Promise<Doona> {
    checkRuntime();
    const found = (this.#preview ??= preview({ ...this.#options, signal: this.#closing.signal }, this.#pinned!));
    found.catch(() => (this.#preview = undefined)); // Another attempt may succeed.
    return found;
  }

  readonly #close = (): void => {
    if (this.#closing.signal.aborted) return;
    this.#closing.abort();
    this.#queue = [];
    this.#connecting?.abort();
    this.#end();
    this.#preview?.then((doona) => doona.close(), () => {});
    this.#options.signal?.removeEventListener('abort', this.#close);
    this.#unlisten();
    this.#say('Closed.');
  };

  /** Whether the signal of the browser objects, and the visitor has not overridden it. */
  #isObjected(): boolean {
    return !this.#isAsked && hasPrivacyControl();
  }

  /** Whether values must not even wait. */
  #isRefused(): boolean {
    return this.#closing.signal.aborted || this.#isOut || this.#isObjected();
  }

  /** Whether the client may contact a relay. */
  #isReady(): boolean {
    return this.#consent && !this.#isRefused();
  }

  /** Connects and reports what waits, as far as consent allows. Never rejects. */
  #advance(): Promise<void> {
    this.#isStale = true;
    return (this.#advancing ??= this.#run());
  }

  async #run(): Promise<void> {
    await undefined; // Otherwise the last line could run before the caller sets #advancing.
    while (this.#isStale) {
      this.#isStale = false;
      try {
        if (this.#isReady()) this.#sendAll(); // Before the store answers: the visitor may be about to leave.
        let found: Reported | undefined;
        const read = async (store: Store) => {
          if (this.#isReady() && !this.#doona && !this.#wantsTask) found = await reportOf(store, this.#pinned!.idText);
        };
        if (!this.#closing.signal.aborted) await this.#readOptOut(this.#options.store, read);
        if (!this.#isReady() || this.#isHopeless) continue;
        if (!this.#doona && !this.#isReported(found) && Date.now() >= this.#retryAt &&
          (this.#wantsTask || !this.#awaited)) {
          await this.#connect();
          await this.#readOptOut(); // Another tab may have opted out meanwhile.
        }
        this.#sendAll();
      } catch (error) {
        this.#fail(error);
      }
    }
    this.#advancing = undefined;
  }

  /**
   * Whether there is nothing to do in this epoch, so that nothing need be loaded: it has its report, and no report may
   * be sent now. The values that wait are then unused.
   */
  #isReported(found?: Reported): boolean {
    this.#reportedUntil = found?.end ?? 0;
    this.#isLeftOut = found?.sampled === false;
    this.#waits = found?.waits === true;
    if (!found) return false;
    this.#failure = undefined;
    const { epoch, end } = found;
    const next = found.next === null ? (this.#pinned!.allow && new Date(end)) ?? null : new Date(1000 * found.next);
    // A page that is open in the next epoch connects at a moment of its own. Its values wait for that: a request for
    // keys would tell of them. With events it then seals its default, also if it reports no event. Drawn once, so that
    // the number of values does not change the time.
    if (next && typeof document !== 'undefined' && this.#awaited !== end) {
      this.#awaited = end;
      untilShown(end + this.#pinned!.spread * randomFraction(), this.#closing.signal).then(this.#retry, () => {});
    }
    const failure = new DoonaError('not-delivered', reasons['not-delivered']!);
    if (this.#waits) this.#failure = { code: failure.code, reason: failure.message };
    this.#say('This epoch has its report already. Nothing is loaded.');
    for (const _ of this.#queue.splice(0)) {
      if (this.#waits) this.#fail(failure);
      else this.#tell(this.#options.onReceipt, { epoch, repeated: true, sampled: !this.#isLeftOut, bytes: 0, next });
    }
    return true;
  }

  /**
   * Stops if the store has an opt-out, perhaps of another tab. A newer call of optIn() or optOut() counts more.
   * Otherwise runs `also` on the same connection.
   */
  async #readOptOut(store = this.#options.store, also?: (store: Store) => Promise<void>): Promise<void> {
    let writing: unknown;
    do await (writing = this.#writing); while (writing !== this.#writing);
    const out = await within(withStore(store, false, async (open) => {
      const found = await hasOptedOut(open);
      if (!found) await also?.(open);
      return found;
    }), maxStore, storeLate);
    if (out && !this.#isOut && writing === this.#writing) this.#leave();
  }

  async #connect(): Promise<void> {
    const connecting = (this.#connecting = new AbortController());
    this.#failure = undefined;
    this.#say('Connects: fetches and checks the task, once the page is idle.');
    try {
      checkRuntime();
      const maySend = (store: Store) => this.#maySend(store);
      const onDraft = (left: Promise<Receipt | undefined>) => void this.#follow(left);
      const doona = await open({ ...this.#options, signal: connecting.signal, maySend, onDraft }, this.#pinned!);
      if (connecting.signal.aborted) return doona.close();
      this.#doona = doona;
      this.#preview?.then((shown) => shown.close(), () => {});
      this.#preview = undefined;
      this.#say('Connected: the task passed all checks.');
      if (doona.inPlace) this.#say(`The engine runs in the page's thread and blocks it for a moment: ${doona.inPlace}`);
    } catch (error) {
      if (connecting.signal.aborted) return;
      if (passing.includes((error as { code?: unknown } | null)?.code)) {
        this.#retryLater();
      } else {
        this.#isHopeless = true;
        this.#queue = [];
      }
      throw error;
    } finally {
      if (this.#connecting === connecting) this.#connecting = undefined;
    }
  }

  /**
   * Sets when to connect again. A page connects then by itself, and never because a value is reported: a relay that
   * refuses the first attempt would learn from the second that there is a value.
   */
  #retryLater(): void {
    const wait = waitAfter(++this.#failures);
    const isPage = typeof document !== 'undefined'; // A timer would keep a server's process alive.
    this.#retryAt = isPage ? Infinity : Date.now() + wait;
    if (isPage) pause(wait, this.#closing.signal).then(this.#retry, () => {});
  }

  readonly #retry = (): void => {
    this.#retryAt = this.#awaited = 0;
    void this.#advance();
  };

  /** Whether the reports in a store may be sent. */
  async #maySend(store: Store): Promise<boolean> {
    await this.#readOptOut(store);
    return this.#isReady();
  }

  /** Reports all values that wait, if the connection stands. */
  #sendAll(): void {
    while (this.#doona && this.#queue.length > 0) void this.#send(this.#doona, this.#queue.shift()!);
  }

  async #send(doona: Doona, { value, final }: Waiting): Promise<void> {
    this.#sending++;
    this.#failure = undefined;
    try {
      this.#receive(await doona.report(value, { final }));
    } catch (error) {
      // The epoch's task or keys could not be fetched: nothing was used up, and the value waits for the next attempt.
      const waits = (error as { code?: unknown } | null)?.code === 'task-unreachable' && this.#isReady();
      if (waits && this.#queue.length < maxQueued) this.#queue.push({ value, final });
      this.#fail(error);
    } finally {
      this.#sending--;
    }
  }

  /** Waits for the outcome of a draft. A repeated receipt answers no call, so the page is not told. */
  async #follow(left: Promise<Receipt | undefined>): Promise<void> {
    this.#drafts++;
    try {
      const receipt = await left;
      if (receipt) this.#receive(receipt, !receipt.repeated);
    } catch (error) {
      this.#fail(error);
    } finally {
      this.#drafts--;
    }
  }

  /** Tells the page of a report that was delivered, or of a value that is unused. */
  #receive(receipt: Receipt, tells = true): void {
    if (!receipt.draft) this.#reportedUntil = receipt.next?.getTime() ?? Infinity;
    this.#isLeftOut = !receipt.sampled;
    const isSealed = receipt.draft && !receipt.repeated;
    this.#say(this.#isLeftOut ? reasons['not-sampled']! : isSealed ? 'A draft was sealed.'
      : receipt.repeated ? 'This epoch has its report already.' : 'A report was delivered.');
    if (!isSealed && tells) this.#tell(this.#options.onReceipt, receipt);
  }

  /** Drops what waits, on this page. */
  #drop(): void {
    this.#queue = [];
    this.#doona?.withdraw();
  }

  /** Ends everything for an opt-out, except that it listens for an opt-in. */
  #stop(): void {
    this.#isOut = true;
    this.#drop();
    this.#connecting?.abort();
    this.#end();
    this.#say(reasons['opted-out']!);
  }

  /** Stops because another tab has opted out. That tab may not have seen a report that this tab was sealing. */
  #leave(): void {
    this.#stop();
    void this.#write(false, async (store) => {
      if (await hasOptedOut(store)) await dropSealed(store);
    });
  }

  /** Ends the connection. Stops the worker, also after a failed attempt, if nothing else uses it. */
  #end(): void {
    this.#doona?.close();
    this.#doona = undefined;
    if (this.#pinned) enter(this.#pinned.modules)(true);
  }

  #write(creates: boolean, work: (store: Store) => Promise<void>): Promise<void> {
    const written = this.#writing.then(() => within(withStore(this.#options.store, creates, work), maxStore, storeLate))
      .then(() => {}, (error) => this.#fail(error));
    this.#writing = written;
    return within(written, maxReport, storeLate).catch((error) => this.#fail(error));
  }

  /** Records an error and tells the page. What the page itself has stopped is no error. */
  #fail(error: unknown): void {
    const { code, message } = (error ?? {}) as { code?: ErrorCode; message?: unknown };
    if (code === 'withdrawn' || code === 'closed' || this.#closing.signal.aborted) return;
    const known = error instanceof DoonaError ? code! : 'failed';
    this.#failure = { code: known, reason: reasons[known] ?? String(message) };
    this.#say(`${this.#failure.reason} (${known})`);
    this.#tell(this.#options.onError, error);
  }

  /** Calls a function of the page. An error of that function becomes an uncaught error of the page. */
  #tell<T>(listener: ((about: T) => void) | undefined, about: T): void {
    try {
      listener?.(about);
    } catch (error) {
      setTimeout(() => {
        throw error;
      });
    }
  }

  #say(text: string): void {
    // oxlint-disable-next-line no-console
    if (this.#options.debug === true) console.debug(`doona: ${text}`);
  }

  #listen(): void {
    if (typeof document === 'undefined') return;
    addEventListener('online', this.#onOnline);
    addEventListener('pagehide', this.#onHide);
    addEventListener('pageshow', this.#onShow);
    this.#channel = this.#openChannel();
  }

  #unlisten(): void {
    this.#onHide();
    if (typeof document === 'undefined') return;
    removeEventListener('online', this.#onOnline);
    removeEventListener('pagehide', this.#onHide);
    removeEventListener('pageshow', this.#onShow);
  }

  readonly #onOnline = (): void => {
    this.#retryAt = 0;
    this.#wantsTask ||= this.#waits;
    void this.#advance().then(() => this.#doona?.flushLater(true));
  };

  /** An open channel could keep the page out of the back-forward cache. */
  readonly #onHide = (): void => {
    this.#channel?.close();
    this.#channel = undefined;
  };

  /** Reads the opt-out again: the visitor may have opted out while the page was in the back-forward cache. */
  readonly #onShow = ({ persisted }: PageTransitionEvent): void => {
    if (!persisted) return;
    this.#channel = this.#openChannel();
    this.#advance();
  };

  /** Tells the other tabs. */
  #post(message: string): void {
    const channel = this.#channel ?? this.#openChannel();
    channel?.postMessage(message);
    if (channel !== this.#channel) channel?.close();
  }

  #openChannel(): BroadcastChannel | undefined {
    if (typeof document === 'undefined' || typeof BroadcastChannel === 'undefined') return undefined;
    try {
      const channel = new BroadcastChannel(channelName);
      channel.onmessage = ({ data }) => {
        if (data === 'out') {
          this.#leave();
        } else if (data === 'in') {
          this.#isOut = false;
          this.#advance();
        } else if (data === `forget ${this.#pinned?.idText}`) {
          this.#drop();
        }
      };
      return channel;
    } catch {
      return undefined; // Firefox throws if the visitor blocks cookies.
    }
  }
}

/** Parses the options, those of `init` included. @throws DoonaError `invalid-option` */
function parse(options: InitOptions): ParsedOptions {
  const pinned = parseOptions(options, true);
  const { consent = 'granted', onReceipt, onError, debug = false } = options;
  if (consent !== 'granted' && consent !== 'pending') throw invalidOption('consent', consent, '"granted" or "pending"');
  for (const [name, listener] of [['onReceipt', onReceipt], ['onError', onError]] as const) {
    if (listener !== undefined && typeof listener !== 'function') throw invalidOption(name, listener, 'a function');
  }
  if (typeof debug !== 'boolean') throw invalidOption('debug', debug, 'true or false');
  return pinned;
}

/** Copies a list: the page may change it while it waits. Whatever is no list is refused later. */
function copied(value: Vector): Vector {
  if (!Array.isArray(value) && !ArrayBuffer.isView(value)) return value;
  if (value.length > maxLength) throw new RangeError(`${value.length} numbers`);
  return value.slice();
}
