/**
 * Private Core Web Vitals, to copy: each visit's largest contentful paint and cumulative layout
 * shift, once per visitor and epoch, randomized on the device.
 * @module
 */

import { type ConnectOptions, type Receipt, connect } from 'doona';
import { onCLS, onLCP } from 'web-vitals';

/** A report on its way: what was measured, and what becomes of it. */
export type Reported = (name: string, value: number, receipt: Promise<Receipt>) => void;

/** Both tasks are connected to when the page is idle; web-vitals hands over what it saw before. */
export async function reportVitals(lcp: ConnectOptions, cls: ConnectOptions, reported: Reported): Promise<void> {
  const [paint, shift] = await Promise.all([connect(lcp), connect(cls)]);
  // at the first click or key, or when the page is hidden
  onLCP(({ name, value }) => reported(name, value, paint.report(value)));
  onCLS(({ name, value }) => reported(name, value, shift.report(value))); // when the page is hidden
}
