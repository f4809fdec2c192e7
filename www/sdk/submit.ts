/**
 * Posts sealed reports to the first relay. A retry sends identical bytes, and the relay stores identical bytes only
 * once. So a retry is always safe.
 * @module
 */

import { type Bytes, toBase64url } from './bytes.js';
import { DoonaError, type ErrorCode } from './errors.js';
import { pause, throwIfAborted, withTimeout } from './timing.js';
import { anyLanguage, readBody, readProblem } from './response.js';

/** The delays before the retries, in milliseconds: three retries after the first attempt. */
const retryDelays = [500, 1500, 4000];

/** The longest Retry-After, in seconds, that a call waits for. Beyond it the report waits for flush(). */
const maxRetryAfter = 10;

/** The time limit of one attempt, in milliseconds: the first number, plus the second per kilobyte of the report. */
const timeouts = [10_000, 100] as const;

/** The size limit of the relay's acknowledgement, in bytes. The SDK ignores its content. */
const maxAcknowledged = 1024;

/** The names of the relay's problems after which a retry of the same bytes may succeed. */
const retriable = ['overloaded', 'slow-down', 'clock-in-doubt', 'state-rolled-back', 'internal', 'epoch-not-open'];

/**
 * The relay's problem if it already stores these bytes from another network address: the device changed networks before
 * a retry. It counts as delivered.
 */
const alreadyStored = 'replayed';

/**
 * The relay's permanent problems that have their own error code: the code and an explanation. Others become
 * `report-refused`.
 */
const permanent: Readonly<Record<string, readonly [ErrorCode, string]>> = {
  'epoch-closed': ['epoch-closed', 'its epoch is over'],
  'foreign-origin': ['origin-refused', 'the task takes no reports of pages of this origin'],
  limit: ['limit-reached', 'this client, or another at its network address, has reported in this epoch, or its token is spent'],
};

/** How to post a report. */
export interface Submission {
  readonly token?: Bytes | undefined;
  /** Aborts the request, or the wait for a retry. */
  readonly signal?: AbortSignal;
  /** Asked before each attempt, which counts from 0. If it returns false, nothing more is sent. */
  readonly isWanted?: (attempt: number) => Promise<boolean>;
  /** Whether to retry after the first attempt. Default true. */
  readonly retries?: boolean;
  /** Called right after the first request has begun. */
  readonly onRequest?: (() => void) | undefined;
}

/**
 * Posts a report and retries it. Resolves to true once the relay has acknowledged the report, which means that the
 * relay has stored it durably; to false once the report is not wanted any more.
 * @throws DoonaError `epoch-closed`, `origin-refused` or `report-refused`: the relay will never accept the report;
 * `limit-reached`: the relay may accept it from another network; `not-delivered`: the relay may accept it later. The
 * signal's reason if it is aborted
 */
export async function submit(url: string, body: Bytes,
  { token, signal, isWanted, retries = true, onRequest }: Submission = {}): Promise<boolean> {
  for (let attempt = 0; ; attempt++) {
    const wanted = !isWanted || (await isWanted(attempt));
    throwIfAborted(signal);
    if (!wanted) return false;
    const attempted = withTimeout((request) => post(url, body, token, request),
      timeouts[0] + timeouts[1] * Math.ceil(body.length / 1024), signal);
    if (attempt === 0) onRequest?.();
    const outcome = await attempted.catch(unanswered);
    throwIfAborted(signal);
    if (outcome === undefined) return true;
    if (outcome.final) throw outcome.error;
    const wait = Math.max(retries ? retryDelays[attempt] ?? Infinity : Infinity, 1000 * outcome.retryAfter);
    if (wait > 1000 * maxRetryAfter) throw outcome.error;
    await pause(wait, signal);
  }
}

interface Failure {
  readonly error: DoonaError;
  /** Whether a retry is pointless. */
  readonly final: boolean;
  /** The relay's Retry-After in seconds; 0 for none. */
  readonly retryAfter: number;
}

/**
 * The limit on concurrent reports with keepalive, which may outlive their page, in bytes. Browsers refuse more than 64
 * kB at once.
 */
const maxKeepaliveBytes = 60_000;
let keepaliveBytes = 0;

async function post(url: string, body: Bytes, token: Bytes | undefined,
  signal: AbortSignal): Promise<Failure | undefined> {
  let response: Response;
  const keepalive = keepaliveBytes + body.length <= maxKeepaliveBytes;
  if (keepalive) keepaliveBytes += body.length;
  try {
    // No content type is set, so that there is no CORS preflight: a page that is closing has no time for two round
    // trips. With a token there is a preflight, whose result browsers cache.
    response = await fetch(url, {
      method: 'POST',
      headers: { ...anyLanguage, ...(token && { Authorization: `PrivateToken token="${toBase64url(token)}"` }) },
      body,
      keepalive,
      credentials: 'omit',
      referrerPolicy: 'no-referrer',
      redirect: 'manual', // a redirect is not 201; workerd lacks 'error'
      cache: 'no-store',
      signal,
    });
  } finally {
    if (keepalive) keepaliveBytes -= body.length;
  }
  // Only 201 means success: a service worker's offline page, a blocker or a captive portal may answer 200.
  if (response.status === 201) {
    void readBody(response, maxAcknowledged).catch(() => {}); // Cancelled, it would be listed as failed.
    return undefined;
  }
  const { name, now } = await readProblem(response);
  if (name === alreadyStored) return undefined;
  if (retriable.includes(name) || name === '') { // '': a proxy or captive portal answered
    return failure(undelivered(`the relay answered ${name || response.status}`),
      retryAfter(response.headers.get('Retry-After')));
  }
  const [code, why] = permanent[name] ?? ['report-refused', name || String(response.status)];
  return { error: new DoonaError(code, `the relay refused the report: ${why}${clockOff(now)}`), final: true, retryAfter: 0 };
}

/** Parses a Retry-After header: seconds, or an HTTP date. Returns seconds; 0 if it is absent or invalid. */
function retryAfter(text: string | null): number {
  const seconds = Number(text);
  if (!Number.isNaN(seconds)) return seconds;
  return Math.max((Date.parse(text!) - Date.now()) / 1000, 0) || 0;
}

/**
 * Returns a hint if this device's clock differs from the relay's by 2 minutes or more, because that may be the cause of
 * a refusal.
 */
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
