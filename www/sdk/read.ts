/**
 * Reading what another party sends: never more than its due, however it sends it; and telling it no more.
 * @module
 */

import { type Bytes, concat } from './bytes.js';

/**
 * Returns the body of a response, of at most `most` bytes; reads no further.
 * @throws Error where there is more
 */
export async function bodyOf(response: Response, most: number): Promise<Bytes> {
  const parts: Uint8Array[] = [];
  let size = 0;
  for (const reader = response.body?.getReader(); reader; ) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    size += value.length;
    if (size <= most) continue;
    reader.cancel().catch(() => {}); // the answer is refused either way
    throw new Error(`the answer is longer than ${most} bytes`);
  }
  return concat(...parts);
}

/** A header of requests to relays, which would else be told which languages a visitor reads; it costs no preflight. */
export const anyLanguage = { 'Accept-Language': '*' } as const;

const problemPrefix = 'urn:doona:error:';

/** The most bytes of a problem document. */
const mostProblem = 4096;

/** What a relay or issuer refused with. */
export interface Problem {
  /** A short word, or "" for an answer that is not theirs. */
  readonly name: string;
  /** What their clock says, Unix seconds to the minute, where they say it. */
  readonly now?: number;
}

const foreign: Problem = { name: '' };

/** Returns a relay's or issuer's error. */
export async function problem(response: Response): Promise<Problem> {
  if (!response.headers.get('Content-Type')?.startsWith('application/problem+json')) {
    response.body?.cancel().catch(() => {});
    return foreign;
  }
  try {
    const { type, now } = JSON.parse(new TextDecoder().decode(await bodyOf(response, mostProblem))) as
      { type?: unknown; now?: unknown };
    const name = typeof type === 'string' && type.startsWith(problemPrefix) ? type.slice(problemPrefix.length) : '';
    if (!/^[a-z][a-z-]{0,39}$/.test(name)) return foreign;
    return typeof now === 'number' && now > 0 ? { name, now } : { name };
  } catch {
    return foreign;
  }
}
