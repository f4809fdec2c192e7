/**
 * Numbers as people read them; internal/display writes them alike.
 * @module
 */

import { html } from './dom.js';

/** A number with three significant digits or all of its whole ones, and a real minus sign. */
export function number(x: number): string {
  return format(x, 'halfExpand');
}

/** A {@link number} rounded up, as a bound: it never promises more than holds. */
export function atMost(x: number): string {
  return format(x * (1 - roundingError), 'ceil');
}

/** What arithmetic in floating point adds, so that 0.1 + 0.2 is at most 0.3 and 1/10⁻⁹ is 1,000,000,000. */
const roundingError = 1e-12;

function format(x: number, roundingMode: 'ceil' | 'floor' | 'halfExpand'): string {
  const digits = Math.abs(x) >= 99.95 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 3 };
  return x.toLocaleString('en', { ...digits, roundingMode }).replace('-', '−').replace(/^−0$/, '0');
}

/** A number for people that carries the exact one for programs. */
export function exact(x: number): HTMLDataElement {
  return html('data', { value: x }, number(x));
}

/** A bound as {@link atMost} for people, with the exact number for programs. */
export function exactAtMost(x: number): HTMLDataElement {
  return html('data', { value: x }, atMost(x));
}

/** A share as a percentage. */
export function percent(x: number): string {
  return `${number(100 * x)} %`;
}

/** A small probability that something is at most: 10⁻⁶ as "1 in 1,000,000". */
export function oneIn(p: number): string {
  return `1 in ${format((1 + roundingError) / p, 'floor')}`;
}

/** A number and its unit, where it has one. */
export function withUnit(x: number, unit: string): string {
  return unit ? `${number(x)} ${unit}` : number(x);
}

/** Seconds from now until a time, at least 0. */
export function secondsUntil(time: string | Date): number {
  return Math.max(0, Math.ceil((new Date(time).getTime() - Date.now()) / 1000));
}
