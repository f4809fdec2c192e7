/**
 * Reports Core Web Vitals privately; copy it into a page. It reports the largest contentful paint and the cumulative
 * layout shift of a visit, once per visitor and epoch. The relays of both tasks add the noise.
 * @module
 */

import { type ConnectOptions, type Receipt, connect } from 'doona';
import { onCLS, onLCP } from 'web-vitals';

/** Called for each report, with the metric's name, its value and the pending receipt. */
export type Reported = (name: string, value: number, receipt: Promise<Receipt>) => void;

/**
 * Connects to both tasks when the page is idle. web-vitals also delivers metrics that it measured before that. Both
 * metrics are final only when the visitor leaves, and then there is no time to seal. So each value is provisional: it
 * is sealed as soon as it is known, the next one replaces it, and the last one leaves with the visitor.
 */
export async function reportVitals(lcp: ConnectOptions, cls: ConnectOptions, reported: Reported): Promise<void> {
  const [paint, shift] = await Promise.all([connect(lcp), connect(cls)]);
  const [provisional, each] = [{ final: false }, { reportAllChanges: true }];
  onLCP(({ name, value }) => reported(name, value, paint.report(value, provisional)), each);
  onCLS(({ name, value }) => reported(name, value, shift.report(value, provisional)), each);
}
