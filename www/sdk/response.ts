/**
 * Reading what another party sends: never more than its due, however it sends it; and telling it no more.
 * @module
 */

import type { Bytes } from './bytes.js';

/**
 * Returns the body of a response, of at most `most` bytes; reads no further. It is collected in one place, so that a
 * body that comes byte by byte takes no more memory than another.
 * @throws Error where there is more
 */
export async function readBody(response: Response, most: number): Promise<Bytes> {
  let body = new Uint8Array(Math.min(most, 1 << 14));
  let size = 0;
  for (const reader = response.body?.getReader(); reader; ) {
    const { done, value } = await reader.read();
    if (done) break;
    const end = size + value.length;
    if (end > most) {
      reader.cancel().catch(() => {}); // the answer is refused either way
      throw new Error(`the answer is longer than ${most} bytes`);
    }
    if (end > body.length) {
      const larger = new Uint8Array(Math.min(most, Math.max(end, 2 * body.length)));
      larger.set(body.subarray(0, size));
      body = larger;
    }
    body.set(value, size);
    size = end;
  }
  return body.subarray(0, size); // a copy of many megabytes would hold up the page
}

/** A header of requests to relays, which would else be told which languages a visitor reads; it costs no preflight. */
export const anyLanguage = { 'Accept-Language': '*' } as const;

const problemPrefix = 'urn:doona:error:';

/** The most bytes of a problem document. */
const maxProblem = 4096;

/** What a relay or issuer refused with. */
export interface Problem {
  /** A short word, or "" for an answer that is not theirs. */
  readonly name: string;
  /** What their clock says, Unix seconds to the minute, where they say it. */
  readonly now?: number;
}

const unknownProblem: Problem = { name: '' };

/** Returns a relay's or issuer's error. */
export async function readProblem(response: Response): Promise<Problem> {
  if (!response.headers.get('Content-Type')?.startsWith('application/problem+json')) {
    response.body?.cancel().catch(() => {});
    return unknownProblem;
  }
  try {
    const { type, now } = JSON.parse(new TextDecoder().decode(await readBody(response, maxProblem))) as
      { type?: unknown; now?: unknown };
    const name = typeof type === 'string' && type.startsWith(problemPrefix) ? type.slice(problemPrefix.length) : '';
    if (!/^[a-z][a-z-]{0,39}$/.test(name)) return unknownProblem;
    return typeof now === 'number' && now > 0 ? { name, now } : { name };
  } catch {
    return unknownProblem;
  }
}
