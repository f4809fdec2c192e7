/**
 * Fetches the month that cmd/demo simulates: the numbers from /api/month, and the charts.
 * @module
 */

/** An estimate with its interval, and the true value, which only a simulation knows. */
export interface Figure {
  readonly estimate: number;
  readonly interval: readonly [number, number];
  readonly truth: number;
}

/**
 * An entry of a list. Its `band` is wider than its interval: with 95 % confidence, all entries are within their bands
 * at the same time.
 */
export interface Entry extends Figure {
  readonly name: string;
  readonly band: readonly [number, number];
  /** Whether the entry is above the noise floor, that is, its whole band is above 0. */
  readonly seen: boolean;
}

export interface Day extends Entry {
  readonly reports: number;
}

export interface List {
  readonly noise_floor: number;
  readonly seen: number;
  readonly entries: readonly Entry[];
}

export interface Device {
  readonly name: string;
  readonly reports: Figure;
  readonly good: Figure | null;
  readonly poor: Figure | null;
  readonly p75_seconds: Figure | null;
  readonly shares: readonly (Figure | null)[];
}

export interface Pair {
  readonly first: string;
  readonly second: string;
  readonly good: Figure | null;
  readonly poor: Figure | null;
  readonly shares: readonly (Figure | null)[];
}

export interface Cost {
  readonly name: string;
  readonly weight: number;
  readonly epsilon: number;
  readonly composed_epsilon: number;
  readonly epsilon_sum: number;
}

export interface Month {
  readonly seed: number;
  readonly made: string;
  readonly from: string;
  readonly to: string;
  readonly reports_per_question: number;
  readonly visits: { readonly total: Entry; readonly days: readonly Day[] };
  readonly pages: List;
  readonly referrers: List;
  readonly countries: List;
  readonly speed: {
    readonly bins: readonly string[];
    readonly devices: readonly Device[];
    readonly differences: readonly Pair[];
  };
  readonly budget: {
    readonly epsilon: number;
    readonly delta: number;
    readonly composed_epsilon: number;
    readonly each_composed: number;
    readonly epsilon_sum: number;
    readonly needs: string;
    readonly questions: readonly Cost[];
    readonly days: readonly {
      readonly day: number;
      readonly composed_epsilon: number;
      readonly epsilon_sum: number;
    }[];
  };
  readonly coverage: Readonly<Record<'days' | 'month', { readonly intervals: number; readonly held: number }>>;
  readonly elapsed_seconds: number;
}

/** The poll interval while the demo simulates the month, in milliseconds. */
const pollInterval = 200;

/** Waits until the month is simulated and returns it. Calls `progress` with the finished share, from 0 to 1. */
export async function fetchMonth(progress: (share: number) => void): Promise<Month> {
  for (;;) {
    const response = await fetch('/api/month', { cache: 'no-store' });
    if (!response.ok) throw new Error(`the demo answered ${response.status}: ${await response.text()}`);
    const answer = await response.json();
    if (response.status === 200) return answer as Month;
    progress(answer.done / answer.of);
    await new Promise((resolve) => setTimeout(resolve, pollInterval));
  }
}

/** Fetches a chart as SVG, for a width in pixels. */
export async function fetchChart(name: string, width: number): Promise<Node> {
  const response = await fetch(`/api/month/charts/${name}?width=${Math.round(width)}`, { cache: 'no-store' });
  if (!response.ok) throw new Error(`the demo answered ${response.status}: ${await response.text()}`);
  return document.adoptNode(new DOMParser().parseFromString(await response.text(), 'image/svg+xml').documentElement);
}
