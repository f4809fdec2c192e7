/**
 * Posts sealed bytes to the first relay. A retry sends identical bytes, which the relay stores
 * once, so it is always safe.
 * @module
 */

import { type Bytes, toBase64url } from './bytes.js';
import { DoonaError, type ErrorCode } from './errors.js';
import { pause, withTimeout } from './timing.js';
import { anyLanguage, readBody, readProblem } from './response.js';

/** How often to try, and how long to wait before each further attempt, in milliseconds. */
const retryDelays = [500, 1500, 4000];

/** The longest Retry-After, in seconds, to wait for; beyond it the report is left to flush(). */
const maxRetryAfter = 10;

/** How long one attempt may take, in milliseconds: the first for any report, the second for each kilobyte of it. */
const timeouts = [10_000, 100] as const;

/** The most bytes of an acknowledgement, which says nothing. */
const maxAcknowledged = 1024;

/** The names of the relay's errors after which the same bytes may still be accepted. */
const retriable = new Set(['overloaded', 'slow-down', 'clock-in-doubt', 'set-back', 'internal', 'epoch-not-open']);

/** The relay's error where these bytes came from another network before: a retry after a move. */
const alreadyStored = 'replayed';

/** The relay's errors that have a code of their own, and what they mean. */
const permanent: Readonly<Record<string, readonly [ErrorCode, string]>> = {
  'epoch-closed': ['epoch-closed', 'its epoch is over'],
  'foreign-origin': ['origin-refused', 'the task takes no reports of pages of this origin'],
  limit: ['limit-reached', 'this client, or another at its network address, has reported in this epoch, or its token is spent'],
};

/**
 * Resolves once the relay has acknowledged, which means: stored durably.
 * @throws DoonaError `epoch-closed`, `origin-refused` or `report-refused` where it never will; `limit-reached` where it
 * may from another network; `not-delivered` where it may another time
 */
export async function submit(url: string, body: Bytes, token?: Bytes): Promise<void> {
  for (let attempt = 0; ; attempt++) {
    const outcome = await withTimeout((signal) => post(url, body, token, signal),
      timeouts[0] + timeouts[1] * Math.ceil(body.length / 1024)).catch(unanswered);
    if (outcome === undefined) return;
    if (outcome.final) throw outcome.error;
    const wait = Math.max(retryDelays[attempt] ?? Infinity, 1000 * outcome.retryAfter);
    if (wait > 1000 * maxRetryAfter) throw outcome.error;
    await pause(wait);
  }
}

interface Failure {
  readonly error: DoonaError;
  /** Whether trying again is pointless. */
  readonly final: boolean;
  /** Seconds. */
  readonly retryAfter: number;
}

/**
 * The most bytes of reports that may outlive their page at one time: browsers refuse more than
 * 64 kB of all pages' fetches with keepalive.
 */
const maxKeepaliveBytes = 60_000;
let keepaliveBytes = 0;

async function post(url: string, body: Bytes, token: Bytes | undefined,
  signal: AbortSignal): Promise<Failure | undefined> {
  let response: Response;
  const keepalive = keepaliveBytes + body.length <= maxKeepaliveBytes;
  if (keepalive) keepaliveBytes += body.length;
  try {
    // Without a content type there is no preflight: one round trip less, and a page that is being
    // closed has no time for two. A token costs one, which browsers then remember.
    response = await fetch(url, {
      method: 'POST',
      headers: { ...anyLanguage, ...(token && { Authorization: `PrivateToken token="${toBase64url(token)}"` }) },
      body,
      keepalive,
      credentials: 'omit',
      referrerPolicy: 'no-referrer',
      redirect: 'manual', // which is not ok; workerd has no 'error'
      cache: 'no-store',
      signal,
    });
  } finally {
    if (keepalive) keepaliveBytes -= body.length;
  }
  if (response.ok) {
    void readBody(response, maxAcknowledged).catch(() => {}); // Cancelled at once, browsers would list it as failed.
    return undefined;
  }
  const { name, now } = await readProblem(response);
  if (name === alreadyStored) return undefined;
  if (retriable.has(name) || name === '') { // '': of a proxy or a portal on the way, not of the relay
    return failure(undelivered(`the relay answered ${name || response.status}`),
      retryAfter(response.headers.get('Retry-After')));
  }
  const [code, why] = permanent[name] ?? ['report-refused', name || String(response.status)];
  return { error: new DoonaError(code, `the relay refused the report: ${why}${clockOff(now)}`), final: true, retryAfter: 0 };
}

/** Reads a Retry-After header: seconds, or a date of HTTP. Returns seconds; 0 for none, or for what is neither. */
function retryAfter(text: string | null): number {
  const seconds = Number(text);
  if (!Number.isNaN(seconds)) return seconds;
  return Math.max((Date.parse(text!) - Date.now()) / 1000, 0) || 0;
}

/** Says by how much the clock here is off, in minutes, where that may be why. */
function clockOff(now: number | undefined): string {
  const ahead = now === undefined ? 0 : Math.round((Date.now() / 1000 - now - 30) / 60);
  if (Math.abs(ahead) < 2) return '';
  return `; this clock is about ${Math.abs(ahead)} minutes ${ahead > 0 ? 'ahead of' : 'behind'} the relay's`;
}

function unanswered(cause: unknown): Failure {
  return failure(undelivered("the relay didn't answer", cause), 0);
}

function failure(error: DoonaError, retryAfter: number): Failure {
  return { error, final: false, retryAfter };
}

function undelivered(reason: string, cause?: unknown): DoonaError {
  return new DoonaError('not-delivered', `couldn't deliver the report yet: ${reason}`, undefined, { cause });
}
