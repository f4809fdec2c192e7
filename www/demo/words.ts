/**
 * Numbers and labels as people read them.
 * @module
 */

import type { State } from './state.js';

/** A number with three significant digits or all of its whole ones, and a real minus sign. */
export function number(x: number): string {
  const digits = Math.abs(x) >= 100 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 3 };
  return x.toLocaleString('en', digits).replace('-', '−');
}

/** A small probability: 10⁻⁶ as "1 in 1,000,000". */
export function oneIn(p: number): string {
  return `1 in ${number(1 / p)}`;
}

/** The labels of a histogram's bins, or of a count's two answers. */
export function choiceLabels(state: State, labels: boolean): string[] {
  if (state.query === 'count') return ['No', 'Yes'];
  const width = (state.hi - state.lo) / state.bins;
  return Array.from({ length: state.bins }, (_, i) =>
    labels ? String(i) : `${number(state.lo + i * width)} to ${number(state.lo + (i + 1) * width)}`,
  );
}

/** Seconds from now until a time, at least 0. */
export function secondsUntil(time: string | Date): number {
  return Math.max(0, Math.ceil((new Date(time).getTime() - Date.now()) / 1000));
}
