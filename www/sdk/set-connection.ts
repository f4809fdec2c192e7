/**
 * A connection to a set: what `connectSet` returns. Each day has one submission. The connection claims the day, seals
 * the defaults at once and each later value, and sends what was sealed last when the visitor leaves.
 * @module
 */

import type { Limit } from './budget.js';
import type { Bytes } from './bytes.js';
import { epochAt, numberAt, startOf } from './epochs.js';
import { DoonaError, type ErrorCode } from './errors.js';
import { markAtSealing, markWithdrawal, watchWithdrawals, withdrawalMark } from './marks.js';
import { allowsOrigin } from './origin.js';
import { checkSetBuiltins } from './set-builtins.js';
import type { SetEngineClient } from './set-client.js';
import type { DayRequest, DayView, OpenedSet } from './set-engine.js';
import { type SetExplanation, explainSet } from './set-explain.js';
import { leftVersion, markLeft, untilLeaving, watchVisit } from './set-leave.js';
import type { Outcome } from './set-ledger.js';
import { type Store, dropReport } from './store.js';
import { submit } from './submit.js';
import { withLock } from './token.js';
import { abortable, isHidden, pause, randomFraction, throwIfAborted, untilShown, within } from './timing.js';
import { type Value, toInput } from './value.js';

/** What became of the values of one call. */
export interface SetReceipt {
  /** The number of the day, from 0. */
  readonly day: number;
  /** What became of the value of each table: see {@link Outcome}. */
  readonly tables: Readonly<Record<string, Outcome>>;
}

/** How the day's submission stands. */
export interface SetStatus {
  /**
   * `draft`: it waits until the visitor leaves. `sending`. `waiting`: it has left and was not delivered. `reported`: it
   * was delivered. `dropped`: a relay refused it, or it was withdrawn. `closed`: by the page. Otherwise the code of an
   * error.
   */
  readonly state: 'draft' | 'sending' | 'waiting' | 'reported' | 'dropped' | 'closed' | ErrorCode;
  /** For each table, whether this browser reports to it today; known while the submission is a draft. */
  readonly due: Readonly<Record<string, boolean>>;
}

/** Everything that a connection needs. `connectSet` creates it. */
export interface SetParts {
  readonly engine: SetEngineClient;
  readonly set: OpenedSet;
  readonly store: Store;
  readonly limit: Limit;
  /** What each table reports without another value. */
  readonly usual: readonly (readonly number[])[];
  readonly spread: number;
  /** Gets the keys of a day. */
  readonly keys: (day: number) => Promise<void>;
  /** Starts doona-full.wasm and opens the set in it. */
  readonly move: () => Promise<void>;
  /** Gets a day's token; only in a set with tokens. */
  readonly token?: (day: number, signal: AbortSignal) => Promise<Bytes>;
  /** Whether the visitor has opted out. */
  readonly isOut: () => Promise<boolean>;
  readonly stop: () => void;
}

/** The sealed bytes that this page sends when it is left. */
interface Held {
  readonly body: Bytes;
  readonly version: number;
  /** The mark of the last withdrawal before they were sealed; '' if they must not leave. */
  readonly mark: string | null;
  /** Whether they have left before. */
  readonly left: boolean;
}

/** The relay's answers after which it will never accept a submission. */
const permanent: readonly unknown[] = ['epoch-closed', 'origin-refused', 'report-refused'];

/** The time limit of `report` and `flush`, in milliseconds. */
const maxReport = 33_000;

/** A connection to a set. */
export class SetConnection {
  readonly #parts: SetParts;
  readonly #running = new AbortController();
  /** The day whose submission this page holds. */
  #day: number;
  #held: Held | undefined;
  #view: DayView;
  /** What this page has sent last, on which day. A change of the draft that ends later must not undo that. */
  #sent: { readonly day: number; readonly body: Bytes; readonly state: DayView['state'] } | undefined;
  /** The last change of the draft, running or finished. */
  #turns: Promise<unknown> = Promise.resolve();
  #sending: Promise<void> | undefined;
  /** The token of the day's submission, and the request for it. */
  #token: { readonly day: number; readonly bytes: Promise<Bytes | undefined> } | undefined;
  #error: ErrorCode | undefined;
  /** Tells the calls that wait for the next day. */
  #begun = (): void => {};

  private constructor(parts: SetParts, day: number, view: DayView, mark: string | null) {
    this.#parts = parts;
    this.#day = day;
    this.#view = view;
    this.#hold(view, mark);
  }

  /**
   * @internal Claims the current day and seals its defaults. The submission leaves when the visitor does.
   * @throws DoonaError as connectSet
   */
  static async begin(parts: SetParts): Promise<SetConnection> {
    const day = epochAt(parts.set.tables[0]!.task.epochs, Date.now());
    await parts.keys(day);
    const mark = markAtSealing();
    const view = await today(parts, day);
    const connection = new SetConnection(parts, day, view, mark);
    connection.#tokenOf(day).catch(() => {}); // It is asked for again when the submission leaves.
    void connection.#run();
    return connection;
  }

  /** How the day's submission stands. */
  get status(): SetStatus {
    const { state, due } = this.#view;
    const of = { draft: 'draft', left: 'waiting', delivered: 'reported', dropped: 'dropped', none: 'dropped' } as const;
    const now = this.#running.signal.aborted ? 'closed' : this.#error ?? (this.#sending ? 'sending' : of[state]);
    const named = this.#parts.set.tables.map(({ name }, i) => [name, due[i] === true]);
    return { state: now, due: Object.fromEntries(named) as Record<string, boolean> };
  }

  /** Says in English what the set does and does not promise. */
  explain(): SetExplanation {
    return explainSet(this.#parts.set, this.#parts.limit);
  }

  /**
   * Reports a value to a table, or to several. A later value of the day replaces it. Nothing is sent now: the day's
   * submission leaves when the visitor leaves the site, or at a random moment of the day's last 30 minutes. A value for
   * a table to which this browser does not report today is not used: the receipt says so.
   *
   * @throws DoonaError `builtin-broken`, `closed`, `storage-unavailable`, `module-failed`, `task-ended`; `invalid-value`
   * for an unknown table or a value that its task does not take, and then nothing changes; `withdrawn` after `forget`
   */
  report(values: Readonly<Record<string, Value>>): Promise<SetReceipt>;
  report(table: string, value: Value): Promise<SetReceipt>;
  async report(first: string | Readonly<Record<string, Value>>, value?: Value): Promise<SetReceipt> {
    checkSetBuiltins();
    const { signal } = this.#running;
    throwIfAborted(signal);
    const given = typeof first === 'string' ? [[first, value!] as const] : Object.entries(Object(first) as object);
    const inputs = given.map(([name, one]) => this.#input(name, one as Value));
    const work = async (): Promise<SetReceipt> => {
      if (this.#dayNow() > this.#day) await this.#nextDay();
      const day = this.#day;
      const view = await this.#inTurn(() => this.#change(inputs));
      if (view.state === 'none') throw new DoonaError('withdrawn', 'the page has withdrawn the report');
      return { day, tables: Object.fromEntries(given.map(([name], i) => [name, view.outcomes[i] ?? 'late'])) };
    };
    return within(abortable(work(), signal), maxReport, () => new DoonaError('module-failed',
      `the engine or the store did not answer within ${maxReport / 1000} seconds`));
  }

  /** Sends a submission that has left and was not delivered. A draft waits. Returns whether nothing waits. */
  async flush(): Promise<boolean> {
    checkSetBuiltins();
    throwIfAborted(this.#running.signal);
    await within(abortable(this.#inTurn(() => this.#refresh()), this.#running.signal), maxReport, late);
    if (this.#held?.left) await abortable(this.#send(true).catch(() => {}), this.#running.signal);
    return this.#view.state === 'delivered';
  }

  /** Drops the day's submission if it is not delivered. The ledger stays: the day is not claimed again. */
  async forget(): Promise<void> {
    markWithdrawal();
    this.#held = undefined;
    await dropReport(this.#parts.store, this.#parts.set.root, 0);
    await this.#inTurn(() => this.#refresh()).catch(() => {});
  }

  /** Stops everything: requests, timers, listeners and the worker. A draft stays for the next page. */
  close(): void {
    if (this.#running.signal.aborted) return;
    this.#running.abort(new DoonaError('closed', 'the page has closed the connection'));
    this.#parts.stop();
  }

  #input(name: string, value: Value): readonly [table: number, value: Float64Array] {
    const { tables } = this.#parts.set;
    const i = tables.findIndex((table) => table.name === name);
    if (i < 0) {
      throw new DoonaError('invalid-value', `unknown table ${String(name).slice(0, 80)}: want ` +
        tables.map((table) => table.name).join(', '), 'table');
    }
    if (tables[i]!.bare) throw new DoonaError('invalid-value', `table ${name} takes no values`, name);
    try {
      return [i, toInput(tables[i]!.task, value as string)];
    } catch (cause) {
      if (!(cause instanceof DoonaError)) throw cause;
      throw new DoonaError(cause.code, `table ${name}: ${cause.message}`, name, { cause });
    }
  }

  #dayNow(): number {
    return numberAt(this.#parts.set.tables[0]!.task.epochs, Date.now());
  }

  #endOf(day: number): number {
    return startOf(this.#parts.set.tables[0]!.task.epochs, day + 1).getTime();
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const turn = this.#turns.then(work);
    this.#turns = turn.catch(() => {});
    return turn;
  }

  /** Puts values into the draft, and seals it anew. */
  async #change(values: readonly (readonly [number, Float64Array])[]): Promise<DayView> {
    const mark = markAtSealing();
    const { engine } = this.#parts;
    const request = requestOf(this.#parts, this.#day);
    const copies = values.map(([table, value]) => [table, value.slice()] as const);
    let view = await engine.change(request, values);
    if (!view) {
      await this.#parts.move();
      view = (await engine.change(request, copies))!;
    }
    if (this.#sent?.day === request.day && view.state === 'draft') {
      const { body, state } = this.#sent;
      view = { ...view, state, outcomes: view.outcomes.map(() => 'late' as const), ...(state === 'left' && { body }) };
    }
    this.#view = view;
    this.#hold(view, mark);
    return view;
  }

  /** Takes over what the store has: seals a draft anew, and never sends another page's bytes unless they have left. */
  #refresh(): Promise<DayView> {
    return this.#change([]);
  }

  #hold({ state, body, version }: DayView, mark: string | null): void {
    this.#held = body && (state === 'draft' || state === 'left') ? { body, version, mark, left: state === 'left' } : undefined;
    this.#checkMark();
  }

  /** Notes whether the visitor has withdrawn since the bytes were sealed. A page that is left cannot read the mark. */
  #checkMark(): void {
    if (this.#held && this.#held.mark !== withdrawalMark()) this.#held = { ...this.#held, mark: '' };
  }

  /** Lives through this day and later ones, until the set ends or the page closes the connection. */
  async #run(): Promise<void> {
    const { signal } = this.#running;
    const { set: { tables, through }, spread } = this.#parts;
    const own = globalThis.location?.origin;
    const belongs = (origin: string) => origin === own || (through.length > 0 && allowsOrigin(through, origin));
    const stops = [watchWithdrawals(() => this.#checkMark()), watchVisit(belongs, () => {
      this.#held = undefined; // A later page may have replaced its draft while it was in the back-forward cache.
      void this.#inTurn(() => this.#refresh()).catch(() => {});
    })];
    try {
      while (!signal.aborted) {
        await this.#untilDelivered().catch((error) => this.#fail(error));
        if (this.#day + 1 >= tables[0]!.task.epochs.count) return;
        await untilShown(this.#endOf(this.#day) + spread * randomFraction(), signal);
        await this.#next().catch((error) => this.#fail(error));
      }
    } catch {
      // closed
    } finally {
      for (const stop of stops) stop();
    }
  }

  #fail(error: unknown): void {
    if (this.#running.signal.aborted) return;
    this.#error = error instanceof DoonaError ? error.code : 'module-failed';
  }

  /** Waits until the page has claimed the current day. @throws DoonaError `task-ended` */
  #nextDay(): Promise<void> {
    epochAt(this.#parts.set.tables[0]!.task.epochs, Date.now());
    return new Promise((resolve) => {
      const begun = this.#begun;
      this.#begun = () => {
        begun();
        resolve();
      };
    });
  }

  /** Claims the current day, if it is a later one. */
  async #next(): Promise<void> {
    const day = this.#dayNow();
    const { epochs } = this.#parts.set.tables[0]!.task;
    if (day >= epochs.count) {
      this.#day = epochs.count - 1;
      return;
    }
    await this.#inTurn(async () => {
      this.#held = undefined;
      this.#day = day;
      this.#error = undefined;
      await this.#parts.keys(day);
      const mark = markAtSealing();
      this.#view = await today(this.#parts, day);
      this.#hold(this.#view, mark);
    });
    this.#tokenOf(day).catch(() => {});
    const begun = this.#begun;
    this.#begun = () => {};
    begun();
  }

  /** Sends the day's submission when the visitor leaves, and again at later leavings, until it is delivered. */
  async #untilDelivered(): Promise<void> {
    const { signal } = this.#running;
    const [day, end] = [this.#day, this.#endOf(this.#day)];
    for (let failed = false; this.#view.state === 'draft' || this.#view.state === 'left'; failed = true) {
      if (Date.now() >= end) return this.#drop(day);
      if (failed) await untilShown(Date.now(), signal);
      const wasHidden = isHidden(); // A page in the background is not being left.
      const visible = await untilLeaving(this.#view.state === 'left' ? end : this.#view.leaveAt, signal);
      if (Date.now() >= end) return this.#drop(day);
      const hasTime = visible || wasHidden;
      if (hasTime) await this.#inTurn(() => this.#refresh());
      await this.#send(hasTime).catch(() => {});
      if (this.#view.state === 'draft') await pause(1000, signal); // Nothing was sealed yet, or it was withdrawn.
    }
  }

  async #drop(day: number): Promise<void> {
    await this.#parts.engine.closed(this.#parts.set.handle, day, 'dropped');
    this.#close(day, 'dropped');
  }

  #close(day: number, state: 'delivered' | 'dropped'): void {
    if (this.#sent?.day === day) this.#sent = { ...this.#sent, state };
    if (day === this.#day) this.#view = { ...this.#view, state };
  }

  /**
   * Returns the token of a day's submission; undefined in a set without tokens, or if there is nothing to send. It is
   * asked for right after the claim: a page that is left has no time, and the issuer must not see when values change.
   */
  #tokenOf(day: number): Promise<Bytes | undefined> {
    const { token } = this.#parts;
    if (!token) return Promise.resolve(undefined);
    if (this.#token?.day !== day) {
      const bytes = withLock(`doona token ${this.#parts.set.root} ${day}`, () => this.#getToken(day, token));
      this.#token = { day, bytes };
      bytes.catch((error) => {
        if (this.#token?.bytes === bytes && (error as DoonaError).code !== 'limit-reached') this.#token = undefined;
      });
    }
    return this.#token!.bytes;
  }

  async #getToken(day: number, token: NonNullable<SetParts['token']>): Promise<Bytes | undefined> {
    const { engine, set: { handle }, isOut } = this.#parts;
    const now = await engine.state(handle, day);
    if (now.token || (now.state !== 'draft' && now.state !== 'left') || (await isOut())) return now.token;
    return (await engine.token(handle, day, await token(day, this.#running.signal))).token;
  }

  #send(hasTime: boolean): Promise<void> {
    this.#sending ??= this.#deliver(hasTime).finally(() => (this.#sending = undefined));
    return this.#sending;
  }

  /** Sends the bytes that this page holds. A page that is left has no time to ask the store. */
  async #deliver(hasTime: boolean): Promise<void> {
    const { engine, set, isOut } = this.#parts;
    const day = this.#day;
    const token = await this.#tokenOf(day).catch((error) => {
      if ((error as DoonaError).code === 'limit-reached') this.#fail(error); // Others may pass.
      throw error;
    });
    if (!this.#held || (this.#parts.token && !token)) return;
    if (hasTime && (await isOut())) return this.#drop(day);
    const held = this.#held; // It is read last, because values whose receipt says `kept` must leave.
    if (!held || held.mark === '' || day !== this.#day) return;
    const start = startOf(set.tables[0]!.task.epochs, day).getTime() / 1000;
    const note = () => {
      if (!held.left) markLeft(set.root, start, held.version);
      this.#held = { ...held, left: true };
      this.#sent = { day, body: held.body, state: 'left' };
      this.#view = { ...this.#view, state: 'left' };
      return engine.left(set.handle, day, held.body).catch(() => {});
    };
    if (hasTime) await note();
    const url = `${set.tables[0]!.task.relays[0]!.url}/v1/sets/${set.id}/epochs/${day}/reports`;
    const isWanted = async (attempt: number) => (attempt === 0 && !hasTime) ||
      ((await engine.state(set.handle, day)).state === 'left' && !(await isOut()));
    try {
      const onRequest = hasTime ? undefined : () => void note();
      if (!(await submit(url, held.body, { token, signal: this.#running.signal, isWanted, onRequest }))) {
        this.#view = { ...this.#view, state: (await engine.state(set.handle, day)).state };
        return;
      }
    } catch (error) {
      const isSpent = token !== undefined && (error as DoonaError).code === 'limit-reached';
      if (error instanceof DoonaError && (isSpent || permanent.includes(error.code))) {
        this.#fail(error);
        await this.#drop(day);
      }
      throw error;
    }
    await engine.closed(set.handle, day, 'delivered').catch(() => {});
    this.#close(day, 'delivered');
  }
}

function late(): DoonaError {
  return new DoonaError('storage-unavailable', `the store did not answer within ${maxReport / 1000} seconds`);
}

function requestOf({ set, limit, usual }: SetParts, day: number): DayRequest {
  const start = startOf(set.tables[0]!.task.epochs, day).getTime() / 1000;
  return { handle: set.handle, day, limit, usual, now: Date.now(), left: leftVersion(set.root, start) };
}

/** Claims a day and seals its draft. */
async function today(parts: SetParts, day: number): Promise<DayView> {
  const request = requestOf(parts, day);
  const view = await parts.engine.today(request);
  if (view) return view;
  await parts.move();
  return (await parts.engine.today(request))!;
}
