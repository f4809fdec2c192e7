/**
 * Numbers as people read them; internal/look writes them alike.
 * @module
 */

import { html } from './dom.js';

/** A number with three significant digits or all of its whole ones, and a real minus sign. */
export function number(x: number): string {
  const digits = Math.abs(x) >= 99.95 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 3 };
  return x.toLocaleString('en', digits).replace('-', '−').replace(/^−0$/, '0');
}

/** A number for people that carries the exact one for programs. */
export function exact(x: number): HTMLDataElement {
  return html('data', { value: x }, number(x));
}

/** A share as a percentage. */
export function percent(x: number): string {
  return `${number(100 * x)} %`;
}

/** A small probability: 10⁻⁶ as "1 in 1,000,000". */
export function oneIn(p: number): string {
  return `1 in ${number(1 / p)}`;
}

/** A number and its unit, where it has one. */
export function withUnit(x: number, unit: string): string {
  return unit ? `${number(x)} ${unit}` : number(x);
}

/** Seconds from now until a time, at least 0. */
export function secondsUntil(time: string | Date): number {
  return Math.max(0, Math.ceil((new Date(time).getTime() - Date.now()) / 1000));
}
