/**
 * Reads HTTP answers of relays and issuers, with a size limit. It also has a request header that reveals less about the
 * visitor.
 * @module
 */

import type { Bytes } from './bytes.js';

/**
 * Returns the body of a response. It stops reading after `most` bytes. All chunks go into one buffer, so 1,000 small
 * chunks take no more memory than one large chunk.
 * @throws Error if the body is longer
 */
export async function readBody(response: Response, most: number): Promise<Bytes> {
  let body = new Uint8Array(Math.min(most, 1 << 14));
  let size = 0;
  for (const reader = response.body?.getReader(); reader; ) {
    const { done, value } = await reader.read();
    if (done) break;
    const end = size + value.length;
    if (end > most) {
      reader.cancel().catch(() => {}); // The error below matters more.
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
  return body.subarray(0, size); // Not a copy: copying many megabytes would block the page.
}

/**
 * Throws if the body of a file's answer is a page: a server of a single-page app answers index.html for every missing
 * file, with status 200. No file of the SDK begins with "<".
 */
export function checkNotPage(body: Bytes): void {
  let at = 0;
  while (body[at]! <= 0x20 || body[at] === 0xef || body[at] === 0xbb || body[at] === 0xbf) at++; // space or BOM
  if (body[at] === 0x3c) throw new Error('the server answered HTML, so the file is not there');
}

/** A header for requests to relays. It hides which languages a visitor reads, and causes no CORS preflight. */
export const anyLanguage = { 'Accept-Language': '*' } as const;

const problemPrefix = 'urn:doona:error:';

/** The size limit of a problem document, in bytes. */
const maxProblem = 4096;

/** The reason why a relay or issuer refused a request. */
export interface Problem {
  /** The problem's short name; "" if the answer is not a relay's or issuer's problem document. */
  readonly name: string;
  /** The clock of the relay or issuer, if the answer has it: Unix seconds, rounded to the minute. */
  readonly now?: number;
}

const unknownProblem: Problem = { name: '' };

/** Reads a relay's or issuer's problem document. Never rejects. */
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
