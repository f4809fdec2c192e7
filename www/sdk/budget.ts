/**
 * The privacy budget limits what all reports of a visitor to a site cost together, in every window of `days` days. A
 * line of the ledger lists the reports of one task or stream. For one line, the WASM module computes the exact composed
 * cost of as many epochs as fit into the window. The costs of different lines add up, because a task may have been
 * chosen after the results of another task. docs/proofs/budget.md proves the rule; shufflerclient/ledger.go is the Go
 * implementation.
 * @module
 */

import { addEpochs, epochsBetween } from './epochs.js';
import { DoonaError } from './errors.js';
import type { Line, LineStart, Price, Run } from './store.js';
import type { Cap, Events, Task } from './task.js';

/** The limits of a task on the reports of one browser. */
export type ReportLimits = Pick<Task['epochs'], 'cap' | 'pace'>;

/** The most that all reports at this site may cost together in any window of `days` days. */
export interface Budget {
  /** Above 0. */
  readonly epsilon: number;
  /** Above 0, at most 1. A value of 1 means no limit on δ. */
  readonly delta: number;
  /** The window's length. Above 0; Infinity: reports count forever. */
  readonly days: number;
}

/** A budget and the option of `connect` that set it. */
export interface Limit extends Budget {
  readonly option: 'budget' | 'maxTotalEpsilon';
}

/**
 * Checks the ε that all epochs of a task cost together.
 * @throws DoonaError `epsilon-too-large` unless it is finite, above 0 and at most `max`
 */
export function checkEpsilon(epsilon: number, epochs: number, max: number): void {
  if (epsilon > 0 && epsilon <= max && Number.isFinite(epsilon)) return;
  const message =
    `couldn't accept the task: its ${epochs} epochs cost epsilon ${epsilon} together, maxEpsilon is ${max}`;
  throw new DoonaError('epsilon-too-large', message, 'maxEpsilon');
}

/**
 * Checks the sum of δ over all epochs of a task. Without this check a true claim could be worthless: a client that
 * publishes its value with probability δ is (0, δ)-private. A `max` of 1 means no limit.
 * @throws DoonaError `delta-too-large` if it is above `max`
 */
export function checkDelta(total: number, max: number): void {
  if (total <= max || (max === 1 && Number.isFinite(total))) return;
  const message = `couldn't accept the task: its epochs' delta adds up to ${total}, maxDelta is ${max}`;
  throw new DoonaError('delta-too-large', message, 'maxDelta');
}

/** Returns the length of the budget's window in seconds. */
export function windowOf({ days }: Budget): number {
  return days * 86_400;
}

/** Returns the most reports of one browser in a number of consecutive epochs. */
export function maxReports({ cap }: Task['epochs'], epochs: number): number {
  return cap ? mostOf(cap, epochs) : epochs;
}

function mostOf({ reports, window }: Cap, epochs: number): number {
  return Math.floor(epochs / window) * reports + Math.min(reports, epochs % window);
}

/**
 * Returns how many copies of the privacy law of one epoch cover all reports of one browser in a number of consecutive
 * epochs: as many as it has reports, or fewer with events (docs/proofs/events.md).
 */
export function maxCopies({ epochs: limits, noise }: Pick<Task, 'epochs' | 'noise'>, epochs: number): number {
  const reports = maxReports(limits, epochs);
  if (!limits.events) return reports;
  const { most, window } = limits.events;
  return Math.min(reports, mostOf({ reports: noise?.rest ? most : Math.min(2 * most, window), window }, epochs));
}

/**
 * Checks that one task alone stays within the budget.
 * @throws DoonaError `epsilon-too-large` if its ε is above the budget's
 */
export function checkBudget({ reports, all }: Price, { epsilon, delta, days, option }: Limit): void {
  if (all.epsilon <= epsilon) return;
  const message =
    `couldn't accept the task: its ${reports} reports in ${days} days cost epsilon ${all.epsilon} at delta ${all.delta}, ${option} is ${epsilon}, ${delta}`;
  throw new DoonaError('epsilon-too-large', message, option);
}

/**
 * Adds a report to its ledger line and returns the new line. `lines` is the whole ledger; `first` is the line to begin
 * with if the ledger has none with its id, or one without reports. `start` is when the report's epoch begins, in Unix
 * seconds.
 * @throws DoonaError `budget-exceeded` if a window would cost more than the budget, or the line already has a report
 * of an overlapping epoch; `cap-reached` if the task's cap or pace allows no report in this epoch
 */
export function admit(lines: readonly Line[], first: LineStart, start: number, limit: Limit,
  { cap, pace }: ReportLimits = {}): Line {
  const found = lines.find(({ id }) => id === first.id);
  const old = found?.runs.length ? found : undefined; // A line without reports has no cost yet.
  if (old && overlapsReport(old, start, first.length)) {
    const message = "couldn't report: the ledger already has a report of an overlapping epoch";
    throw new DoonaError('budget-exceeded', message, limit.option);
  }
  const block = pace && (found?.block ?? drawBlock(start, first.length, pace));
  if (old && pace) checkPace(old, start, pace, block!);
  if (old && cap) checkCap(old, start, cap);
  if (old) checkSpan(old.price, first.price, limit);
  const others = lines.filter((line) => line !== found);
  const runs = withEpoch(old?.runs ?? [], start, (old ?? first).length);
  const paced = block === undefined ? {} : { block };
  if (old) return checkWindows([...others, { ...old, runs, ...paced }], start, limit);
  const flat = { ...first, stepped: limit.delta === 1, runs, ...paced };
  if (flat.stepped) return checkWindows([...others, flat], start, limit);
  try {
    return checkWindows([...others, flat], start, limit);
  } catch {
    return checkWindows([...others, { ...flat, stepped: true }], start, limit); // less ε at first, more δ
  }
}

/**
 * Checks that one more report in the epoch that begins at `start` keeps the cap. It reads no clock.
 * @throws DoonaError `cap-reached` if some `cap.window` consecutive epochs would have more than `cap.reports` reports
 */
export function checkCap(line: Line, start: number, { reports, window }: Cap): void {
  const after = (from: number, n: number) => addEpochs(line.length, from, n);
  const near = [...epochStarts(line, after(start, -window), after(start, window)), start];
  for (const from of near) {
    if (from > start) continue;
    const end = after(from, window);
    const made = near.filter((at) => at >= from && at < end).length - 1;
    if (made < reports) continue;
    throw new DoonaError('cap-reached',
      `couldn't report: the task takes ${reports} reports of a browser in ${window} epochs, and ${made} are made`);
  }
}

/**
 * Draws when a block of a pace begins: in the epoch that begins at `start`, or in one of those before. Otherwise all
 * browsers would fall silent together. The draw knows no value, and no claim counts on the pace.
 */
export function drawBlock(start: number, length: number, { window }: Cap): number {
  return addEpochs(length, start, -Math.floor(window * crypto.getRandomValues(new Uint32Array(1))[0]! / 2 ** 32));
}

/**
 * Checks that the block of the pace that contains `start` has room for a report. It reads no clock.
 * @throws DoonaError `cap-reached`
 */
export function checkPace(line: Line, start: number, { reports, window }: Cap, block: number): void {
  const { length } = line;
  const from = addEpochs(length, block, Math.floor(epochsBetween(length, block, start) / window) * window);
  const made = epochStarts(line, from - 1, addEpochs(length, from, window)).length;
  if (made < reports) return;
  throw new DoonaError('cap-reached',
    `couldn't report: by the task's pace a browser reports ${reports} times in each ${window} epochs, and ${made} are made`);
}

/**
 * Checks that the price of a task with events still covers as many epochs as it would now. With a longer window, or a
 * stream that was not followed before, the same reports could hold more events.
 * @throws DoonaError `budget-exceeded`
 */
function checkSpan(was: Price, now: Price, { option }: Limit): void {
  if (!was.events && !now.events) return;
  const isCovered = now.all.epsilon <= was.all.epsilon * (1 + 1e-6) && now.all.delta <= was.all.delta * (1 + 1e-6);
  if (was.events && now.events && now.reports <= was.reports && isCovered) return;
  throw new DoonaError('budget-exceeded',
    "couldn't report: the task has events, and its price was fixed for fewer epochs than the budget has now", option);
}

/**
 * Returns a ledger line with an event in the epoch that begins at `start`, or undefined if the last epochs have as
 * many events as the task allows, or if a recorded event is not older: the clock may have leapt. It reads no clock.
 */
export function withEvent(line: Line, start: number, { most, window }: Events): Line | undefined {
  const { events = [], length } = line;
  const last = events.at(-1) ?? -Infinity;
  if (last === start) return line;
  if (last > start) return undefined;
  if (events.length >= most && addEpochs(length, events.at(-most)!, window) > start) return undefined;
  return { ...line, events: [...events, start].slice(-most) };
}

/** Returns the line of an epoch without a report: the ledger's line, or one without reports. */
export function withoutReport(lines: readonly Line[], first: LineStart, limit: Limit): Line {
  return lines.find(({ id }) => id === first.id) ?? { ...first, stepped: limit.delta === 1, runs: [] };
}

/** Whether a line has a report of an epoch that overlaps the given one; times are in seconds. */
export function overlapsReport(line: Line, start: number, length: number): boolean {
  const end = addEpochs(length, start, 1);
  return line.runs.some((run) => start < addEpochs(line.length, run.start, run.count) && run.start < end);
}

/**
 * Returns the last of `lines` if all together are within the budget in every window around a time.
 * @throws DoonaError `budget-exceeded` otherwise
 */
export function checkWindows(lines: readonly Line[], around: number, limit: Limit): Line {
  const { epsilon, delta } = worstWindow(lines, around, limit);
  if (fits(epsilon, limit.epsilon) && (fits(delta, limit.delta) || limit.delta === 1)) return lines.at(-1)!;
  const days = limit.days === Infinity ? '' : ` in ${limit.days} days`;
  const message =
    `couldn't report: this site's reports would cost epsilon ${epsilon}, delta ${delta} together${days}, ${limit.option} is ${limit.epsilon}, ${limit.delta}`;
  throw new DoonaError('budget-exceeded', message, limit.option);
}

/** Whether a sum is within a limit. It tolerates binary rounding: 0.1 + 0.1 + 0.1 is within 0.3. */
function fits(sum: number, limit: number): boolean {
  return sum <= limit * (1 + 1e-12);
}

/**
 * Returns the largest ε and the largest δ of all windows that contain `around`. It tries only the windows that begin
 * when an epoch begins: any other window holds no more reports than one of these windows.
 */
export function worstWindow(lines: readonly Line[], around: number,
  budget: Budget): { epsilon: number; delta: number } {
  const window = windowOf(budget);
  const epochs = lines
    .flatMap((line, i) => epochStarts(line, around - window, around + window).map((at) => ({ at, i })))
    .sort((a, b) => a.at - b.at);
  const counts = lines.map(() => 0);
  let [epsilon, delta, next] = [0, 0, 0];
  for (const { at, i } of epochs) {
    if (at > around) break;
    for (; next < epochs.length && epochs[next]!.at - at < window; next++) counts[epochs[next]!.i]!++;
    let [eps, del] = [0, 0];
    lines.forEach((line, j) => {
      const cost = costOf(line, counts[j]!);
      eps += cost.epsilon;
      del += cost.delta;
    });
    [epsilon, delta] = [Math.max(epsilon, eps), Math.max(delta, del)];
    counts[i]!--;
  }
  return { epsilon, delta };
}

/** Lists when the epochs of a line's reports begin, after `after` and before `before`, in Unix seconds. */
function epochStarts({ runs, length }: Line, after = -Infinity, before = Infinity): number[] {
  const starts: number[] = [];
  for (const { start, count } of runs) {
    const first = Math.max(0, epochsBetween(length, start, Math.max(after, -1e12)) + 1); // after may be -Infinity
    for (let i = first; i < count; i++) {
      const at = addEpochs(length, start, i);
      if (at >= before) break;
      starts.push(at);
    }
  }
  return starts;
}

/**
 * Returns the cost of `reports` reports in a window. Beyond `price.reports` it adds up the costs of groups of that
 * size.
 */
function costOf({ price, stepped }: Line, reports: number): { epsilon: number; delta: number } {
  const groups = Math.max(0, Math.ceil(reports / price.reports) - 1);
  const one = groupCost(price, stepped, price.reports);
  const last = groupCost(price, stepped, reports - groups * price.reports);
  return { epsilon: groups * one.epsilon + last.epsilon, delta: groups * one.delta + last.delta };
}

function groupCost({ first, reports, all }: Price, stepped: boolean, n: number): { epsilon: number; delta: number } {
  if (n === 0) return { epsilon: 0, delta: 0 };
  if (!stepped) return all;
  const added = Math.min(Math.floor(all.epsilon / first.epsilon), reports);
  if (added === reports) return { epsilon: n * first.epsilon, delta: added * first.delta };
  return { epsilon: n > added ? all.epsilon : n * first.epsilon, delta: all.delta + added * first.delta };
}

/** Adds the epoch that begins at `start` to a line's runs. The result is ascending and disjoint. */
export function withEpoch(runs: readonly Run[], start: number, length: number): Run[] {
  const out: Run[] = [];
  for (const run of [...runs, { start, count: 1 }].sort((a, b) => a.start - b.start)) {
    const last = out.at(-1);
    if (last && addEpochs(length, last.start, last.count) === run.start) {
      out[out.length - 1] = { start: last.start, count: last.count + run.count };
    } else out.push(run);
  }
  return out;
}

/** Removes the report of an epoch from a line. Call it only if no value was randomized for that epoch. */
export function withoutEpoch(line: Line, start: number): Line {
  const runs = epochStarts(line).filter((at) => at !== start)
    .reduce((kept: Run[], at) => withEpoch(kept, at, line.length), []);
  return { ...line, runs };
}
