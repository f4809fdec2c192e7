/**
 * Formats numbers for people, in the same way as internal/display.
 * @module
 */

import { html } from './dom.js';

/** Formats a number with three significant digits, or as a whole number from 100 up, and with the minus sign "−". */
export function number(x: number): string {
  return format(x, 'halfExpand');
}

/** Formats an upper bound like {@link number}, but rounds it up so that the bound stays true. */
export function atMost(x: number): string {
  return format(x * (1 - roundingError), 'ceil');
}

/**
 * The relative floating-point error that rounding ignores, so that 0.1 + 0.2 shows as 0.3 and 1/10⁻⁹ as 1,000,000,000.
 */
const roundingError = 1e-12;

function format(x: number, roundingMode: 'ceil' | 'floor' | 'halfExpand'): string {
  const digits = Math.abs(x) >= 99.95 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 3 };
  return x.toLocaleString('en', { ...digits, roundingMode }).replace('-', '−').replace(/^−0$/, '0');
}

/** Returns a `data` element: the formatted number as text, the exact one as `value`. */
export function exact(x: number): HTMLDataElement {
  return html('data', { value: x }, number(x));
}

/** Returns a `data` element: the bound, formatted by {@link atMost}, as text, the exact one as `value`. */
export function exactAtMost(x: number): HTMLDataElement {
  return html('data', { value: x }, atMost(x));
}

/** Formats a fraction, such as 0.25, as a percentage. */
export function percent(x: number): string {
  return `${number(100 * x)} %`;
}

/** Formats an upper bound on a small probability: 10⁻⁶ as "1 in 1,000,000". */
export function oneIn(p: number): string {
  return `1 in ${format((1 + roundingError) / p, 'floor')}`;
}

export function withUnit(x: number, unit: string): string {
  return unit ? `${number(x)} ${unit}` : number(x);
}

/** Returns the seconds from now until a time, at least 0. */
export function secondsUntil(time: string | Date): number {
  return Math.max(0, Math.ceil((new Date(time).getTime() - Date.now()) / 1000));
}
