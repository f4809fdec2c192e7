/**
 * What a visitor's reports cost together, over all tasks of a site, in every stretch of so many days. The reports of
 * one task or stream, a line, are composed exactly by the module, for as many epochs as fit into the days; lines may
 * have been chosen after the results of others, and add up. docs/proofs/budget.md has the rule and why less would not
 * do; shufflerclient/ledger.go is the same in Go.
 * @module
 */

import { DoonaError } from './errors.js';
import type { Line, Price, Run } from './store.js';

/** The most that all reports at this site may cost together in any stretch of `days` days. */
export interface Budget {
  /** Above 0. */
  readonly epsilon: number;
  /** Above 0, at most 1, which bounds nothing. */
  readonly delta: number;
  /** Above 0; Infinity for all time. */
  readonly days: number;
}

/** A budget and the option that it came from. */
export interface Limit extends Budget {
  readonly option: 'budget' | 'maxTotalEpsilon';
}

/**
 * @throws DoonaError `epsilon-too-large` where all epochs of a task may cost more than `max`, or what no number says
 */
export function checkEpsilon(epsilon: number, epochs: number, max: number): void {
  if (epsilon > 0 && epsilon <= max && Number.isFinite(epsilon)) return;
  const message =
    `couldn't accept the task: its ${epochs} epochs cost epsilon ${epsilon} together, maxEpsilon is ${max}`;
  throw new DoonaError('epsilon-too-large', message, 'maxEpsilon');
}

/**
 * Without a bound on δ a claim could be true and worthless: a client that reports its value with
 * probability δ is (0, δ)-private. A bound of 1 bounds nothing.
 *
 * @throws DoonaError `delta-too-large` where all epochs of a task may add up to more than `max`
 */
export function checkDelta(total: number, max: number): void {
  if (total <= max || (max === 1 && Number.isFinite(total))) return;
  const message = `couldn't accept the task: its epochs' delta adds up to ${total}, maxDelta is ${max}`;
  throw new DoonaError('delta-too-large', message, 'maxDelta');
}

/** Seconds of the budget's days. */
function windowOf({ days }: Budget): number {
  return days * 86_400;
}

/** The most epochs of a length, of so many in all, that begin in one window. */
export function maxReports(budget: Budget, length: number, count: number): number {
  return Math.min(count, Math.max(1, Math.ceil(windowOf(budget) / length)));
}

/** @throws DoonaError `epsilon-too-large` where the reports of a task alone may cost more than the budget */
export function checkBudget({ reports, all }: Price, { epsilon, delta, days, option }: Limit): void {
  if (all.epsilon <= epsilon) return;
  const message =
    `couldn't accept the task: its ${reports} epochs in ${days} days cost epsilon ${all.epsilon} at delta ${all.delta}, ${option} is ${epsilon}, ${delta}`;
  throw new DoonaError('epsilon-too-large', message, option);
}

/**
 * Enters a report of the epoch that begins at `start`, in Unix seconds: returns the line with it. `first` is the line
 * as it would begin, `lines` what has been spent.
 *
 * @throws DoonaError `budget-exceeded` where a window's reports would cost more than the budget with it
 */
export function admit(lines: readonly Line[], first: Omit<Line, 'stepped' | 'runs'>, start: number,
  limit: Limit): Line {
  const old = lines.find(({ id }) => id === first.id);
  if (old && overlapsReport(old, start, first.length)) {
    throw new DoonaError('budget-exceeded', "couldn't report: there is a report of this time already", limit.option);
  }
  const others = lines.filter((line) => line !== old);
  const runs = withEpoch(old?.runs ?? [], start, (old ?? first).length);
  if (old) return checkWindows([...others, { ...old, runs }], start, limit);
  const flat = { ...first, stepped: limit.delta === 1, runs };
  if (flat.stepped) return checkWindows([...others, flat], start, limit);
  try {
    return checkWindows([...others, flat], start, limit);
  } catch {
    return checkWindows([...others, { ...flat, stepped: true }], start, limit); // less ε at first, for more δ
  }
}

/** Whether a line has a report of an epoch that overlaps another. */
export function overlapsReport(line: Line, start: number, length: number): boolean {
  return line.runs.some((run) => start < run.start + run.count * line.length && run.start < start + length);
}

/** Returns the last of the lines if the windows around a time have room for all. */
function checkWindows(lines: readonly Line[], around: number, limit: Limit): Line {
  const { epsilon, delta } = worstWindow(lines, around, limit);
  if (fits(epsilon, limit.epsilon) && (fits(delta, limit.delta) || limit.delta === 1)) return lines.at(-1)!;
  const days = limit.days === Infinity ? '' : ` in ${limit.days} days`;
  const message =
    `couldn't report: this site's reports would cost epsilon ${epsilon}, delta ${delta} together${days}, ${limit.option} is ${limit.epsilon}, ${limit.delta}`;
  throw new DoonaError('budget-exceeded', message, limit.option);
}

/** Whether a sum of decimal numbers is within a limit, but for what binary adds: .1 three times is within .3. */
function fits(sum: number, limit: number): boolean {
  return sum <= limit * (1 + 1e-12);
}

/**
 * The largest ε and the largest δ of the windows around a time. One that begins with an epoch has all that others
 * have.
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

/** When the epochs of a line's reports begin, between two times. */
function epochStarts({ runs, length }: Line, after = -Infinity, before = Infinity): number[] {
  return runs.flatMap(({ start, count }) => {
    const first = Math.max(0, Math.floor((after - start) / length) + 1);
    const end = Math.min(count, Math.ceil((before - start) / length));
    return Array.from({ length: Math.max(0, end - first) }, (_, i) => start + (first + i) * length);
  });
}

/** What so many reports in a window are charged. Groups of as many as the price is for add up. */
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

/** Adds an epoch to runs, which stay ascending and apart. */
function withEpoch(runs: readonly Run[], start: number, length: number): Run[] {
  const out: Run[] = [];
  for (const run of [...runs, { start, count: 1 }].sort((a, b) => a.start - b.start)) {
    const last = out.at(-1);
    if (last && last.start + last.count * length === run.start) {
      out[out.length - 1] = { start: last.start, count: last.count + run.count };
    } else out.push(run);
  }
  return out;
}

/** Takes an epoch out of a line, of which nothing was randomized. */
export function withoutEpoch(line: Line, start: number): Line {
  const runs = epochStarts(line).filter((at) => at !== start)
    .reduce((kept: Run[], at) => withEpoch(kept, at, line.length), []);
  return { ...line, runs };
}
