/**
 * The demo's own interface: what cmd/demo knows about the task, the running epoch and the
 * released batches. A deployment has none of this; its verifier publishes results.
 * @module
 */

/** One released epoch; arrays for histograms. */
export interface Row {
  readonly epoch: number;
  readonly users: number;
  readonly estimate: number | readonly number[];
  readonly truth: number | readonly number[];
  readonly interval: readonly [number, number] | readonly (readonly [number, number])[];
}

export interface State {
  readonly task_url: string;
  readonly owner: string;
  readonly title: string;
  readonly unit: string;
  readonly query: 'count' | 'sum' | 'mean' | 'histogram';
  readonly lo: number;
  readonly hi: number;
  readonly bins: number;
  readonly gamma: number | null;
  readonly batch: number;
  readonly hops: number;
  readonly epoch: { readonly number: number; readonly ends_at: string };
  readonly history: readonly Row[];
}

export async function fetchState(): Promise<State> {
  const response = await fetch('/api/demo', { cache: 'no-store' });
  if (!response.ok) throw new Error(`the demo answered ${response.status}`);
  return response.json();
}

/** Asks the demo to fill the rest of an epoch's batch with simulated clients. */
export async function fill(epoch: number): Promise<void> {
  const response = await fetch('/api/fill', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ epoch }),
  });
  if (!response.ok) throw new Error(`the demo could not fill the batch: it answered ${response.status}`);
}

/** An interval of a histogram's bin, or a number's, as a list of one. */
export function entries(row: Row): { estimate: number; truth: number; interval: readonly [number, number] }[] {
  const list = <T>(value: T | readonly T[]) => (Array.isArray(value) ? value : [value]) as readonly T[];
  const intervals = (Array.isArray(row.interval[0]) ? row.interval : [row.interval]) as [number, number][];
  const truths = list(row.truth);
  return list(row.estimate).map((estimate, i) => ({
    estimate,
    truth: truths[i] ?? NaN,
    interval: intervals[i] ?? [NaN, NaN],
  }));
}
