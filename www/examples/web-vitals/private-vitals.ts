/**
 * Reports Core Web Vitals privately; copy it into a page. It reports the largest contentful paint and the cumulative
 * layout shift of a visit, once per visitor and epoch. The device randomizes both values.
 * @module
 */

import { type ConnectOptions, type Receipt, connect } from 'doona';
import { onCLS, onLCP } from 'web-vitals';

/** Called for each report, with the metric's name, its value and the pending receipt. */
export type Reported = (name: string, value: number, receipt: Promise<Receipt>) => void;

/** Connects to both tasks when the page is idle. web-vitals also delivers metrics that it measured before that. */
export async function reportVitals(lcp: ConnectOptions, cls: ConnectOptions, reported: Reported): Promise<void> {
  const [paint, shift] = await Promise.all([connect(lcp), connect(cls)]);
  // at the first click or key, or when the page is hidden
  onLCP(({ name, value }) => reported(name, value, paint.report(value)));
  onCLS(({ name, value }) => reported(name, value, shift.report(value))); // when the page is hidden
}
