/**
 * Calls the API of cmd/demo, which describes a task, its current epoch and the released batches. Real deployments have
 * no such API; there the verifier publishes results.
 * @module
 */

import { type Query, queries } from './queries.js';

/** A released result. If its answer has several entries, such as bins, the fields are arrays. */
export interface Row {
  readonly epoch: number;
  readonly users: number;
  readonly estimate: number | readonly number[];
  readonly truth: number | readonly number[];
  readonly interval: readonly [number, number] | readonly (readonly [number, number])[];
}

/** A quantile or mean of a histogram's values. */
export interface Location {
  readonly p?: number;
  readonly estimate: number;
  readonly interval: readonly [number, number];
}

/** A text that the verifier found. */
export interface FoundText {
  readonly text: string;
  readonly clients: number;
  readonly interval: readonly [number, number];
  readonly truth: number;
}

export interface State {
  readonly task_url: string;
  readonly owner: string;
  readonly query: Query;
  readonly title: string;
  readonly unit: string;
  readonly measure: string;
  readonly answer_unit: string;
  readonly axis: string;
  /** The names of a histogram's bins, a count's two answers, a vector's coordinates or the texts to pick. */
  readonly entries: readonly string[];
  readonly protocol: string;
  readonly lo: number;
  readonly hi: number;
  readonly bins: number;
  readonly labels: boolean;
  readonly epsilon: number;
  readonly delta: number;
  readonly gamma: number | null;
  /**
   * "min-honest": the guarantee needs n_min honest clients. "none": it needs no other client, because relays add the
   * noise.
   */
  readonly assumption: 'min-honest' | 'none';
  readonly batch: number;
  readonly hops: number;
  readonly epoch: {
    readonly number: number;
    readonly ends_at: string;
    readonly simulated: number;
    /** How long the simulated clients took to fill the last batch, in seconds; 0 before the first. */
    readonly fill_seconds: number;
  };
  readonly counts: {
    readonly messages_sent: number;
    readonly cover_messages: number;
    readonly verified: number;
    readonly rejected: number;
    readonly withheld: number;
  };
  readonly by_hop: readonly {
    readonly relay: number;
    readonly in: number;
    readonly out: number;
    readonly dropped: number;
    readonly destroyed: number;
  }[];
  readonly history: readonly Row[];
  readonly total: Row | null;
  /** The texts that the verifier found, most frequent first. Empty unless the query asks for texts. */
  readonly texts: readonly FoundText[];
  readonly about_texts: string;
  readonly distribution?: { readonly mean: Location; readonly quantiles: readonly Location[] };
}

export async function fetchState(task: string): Promise<State> {
  return (await checkResponse(await fetch(`/api/${task}`, { cache: 'no-store' }))).json();
}

/** Fetches a chart of the estimates as SVG, for a width in pixels. Returns null while there are no estimates. */
export async function fetchChart(task: string, width: number): Promise<Node | null> {
  const response = await checkResponse(await fetch(`/api/${task}/chart?width=${Math.round(width)}`,
    { cache: 'no-store' }));
  const text = await response.text();
  return text === '' ? null : document.adoptNode(new DOMParser().parseFromString(text,
    'image/svg+xml').documentElement);
}

/**
 * Asks the demo to fill a batch of an epoch with simulated clients. `reported`: the visitor has reported too. Returns
 * how many reports of the epoch will be opened; null if the epoch ends first.
 */
export async function fill(task: string, epoch: number, reported = false): Promise<number | null> {
  const response = await fetch(`/api/${task}/fill`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ epoch, reported }),
  });
  if (response.status === epochClosed) return null;
  return (await (await checkResponse(response)).json()).reports;
}

/** The HTTP status with which the demo says that the epoch is over. */
const epochClosed = 410;

/** What an attacker sees of one client if nobody else is honest, and what the attacker guesses. */
export interface Sight {
  /** Who adds the noise. */
  readonly noise: 'clients' | 'relays';
  /** The client's answer: 0 for no, 1 for yes. */
  readonly answer: number;
  /** How many messages say no, and how many say yes, without the messages of the attacker's clients. */
  readonly left: readonly [number, number];
  readonly guess: number;
  /** The probability that the attacker's guess of the visitor's answer is right. */
  readonly certainty: number;
  readonly epsilon: number;
  readonly epsilon_no_honest: number | null;
  /** The largest possible certainty, except with probability δ. */
  readonly most: number;
}

/**
 * Asks the demo to attack a client with this answer: once in a task with noise by clients, once with noise by relays.
 */
export async function attack(answer: number): Promise<readonly Sight[]> {
  return (await checkResponse(await fetch('/api/alone', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ answer }),
  }))).json();
}

async function checkResponse(response: Response): Promise<Response> {
  if (!response.ok) throw new Error(`the demo answered ${response.status}: ${await response.text()}`);
  return response;
}

/** One entry of a result, such as one bin. */
export interface Entry {
  readonly estimate: number;
  readonly truth: number;
  readonly interval: readonly [number, number];
}

/** Returns the entries over all epochs: the found texts, or those of `total`. */
export function answers(state: State, total: Row): Entry[] {
  return queries[state.query].shape === 'texts'
    ? state.texts.map(({ clients, interval, truth }) => ({ estimate: clients, interval, truth })) : entries(total);
}

/** Returns the entries of a result as a list. A single number becomes one entry. */
export function entries(row: Row): Entry[] {
  const list = <T>(value: T | readonly T[]) => (Array.isArray(value) ? value : [value]) as readonly T[];
  const intervals = (Array.isArray(row.interval[0]) ? row.interval : [row.interval]) as [number, number][];
  const truths = list(row.truth);
  return list(row.estimate).map((estimate, i) => ({
    estimate,
    truth: truths[i] ?? NaN,
    interval: intervals[i] ?? [NaN, NaN],
  }));
}
