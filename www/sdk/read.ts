/**
 * Reading what another party sends: never more than its due, however it sends it.
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

const problemPrefix = 'urn:doona:error:';

/** The most bytes of a problem document. */
const mostProblem = 4096;

/**
 * Returns the name of a relay's or issuer's error, a short word, or "" for an answer that is not
 * theirs.
 */
export async function problem(response: Response): Promise<string> {
  if (!response.headers.get('Content-Type')?.startsWith('application/problem+json')) {
    response.body?.cancel().catch(() => {});
    return '';
  }
  try {
    const { type } = JSON.parse(new TextDecoder().decode(await bodyOf(response, mostProblem))) as { type?: unknown };
    const name = typeof type === 'string' && type.startsWith(problemPrefix) ? type.slice(problemPrefix.length) : '';
    return /^[a-z][a-z-]{0,39}$/.test(name) ? name : '';
  } catch {
    return '';
  }
}
