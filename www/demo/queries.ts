/**
 * The properties of each query that a task can have. A Go test checks that they equal task.Queries.
 * @module
 */

/** What values and answers of a query look like. */
export interface QueryInfo {
  /** The form of the answer: one number, one per bin, one per coordinate of a vector, or texts. */
  readonly shape: 'number' | 'bins' | 'vector' | 'texts';
  /** The value is 0 or 1. */
  readonly yesNo: boolean;
  /** The value is a vector of Euclidean norm at most 1. */
  readonly ball: boolean;
}

export type Query = 'count' | 'sum' | 'mean' | 'histogram' | 'vector' | 'vectormean' | 'strings';

export const queries: Readonly<Record<Query, QueryInfo>> = {
  count: { shape: 'number', yesNo: true, ball: false },
  sum: { shape: 'number', yesNo: false, ball: false },
  mean: { shape: 'number', yesNo: false, ball: false },
  histogram: { shape: 'bins', yesNo: false, ball: false },
  vector: { shape: 'vector', yesNo: false, ball: false },
  vectormean: { shape: 'vector', yesNo: false, ball: true },
  strings: { shape: 'texts', yesNo: false, ball: false },
};
