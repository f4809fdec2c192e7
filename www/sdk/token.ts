/**
 * Requests anonymous tokens (docs/SPEC.md, section 13). The issuer signs a token without seeing it (blind.ts). So
 * nobody, not even the issuer, can tell whose token a report carries.
 * @module
 */

import { type Bytes, bigEndian, concat, equal, latin1, utf8 } from './bytes.js';
import { DoonaError } from './errors.js';
import { pause, throwIfAborted, withTimeout } from './timing.js';
import type { TokenSource } from './options.js';
import { readBody, readProblem } from './response.js';
import { sha256 } from './signature.js';
import { type Task, version } from './task.js';

/** The size limit of an issuer's answer, in bytes; a directory of one key has about 600. */
const maxAnswer = 16 << 10;

/** The delays before the retries, in milliseconds. */
const retryDelays = [500, 1500, 4000];

/** The task and epoch that a token is for. */
export interface TokenPurpose {
  /** The task's id, in bytes and in hexadecimal. */
  readonly id: Bytes;
  readonly idText: string;
  readonly task: Task;
  readonly epoch: number;
  /** The id of the issuer's key for the epoch, as in the task's key list. */
  readonly keyId: Bytes;
  readonly source: TokenSource | undefined;
  /** Aborts the requests. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * Gets a token from the task's issuer. A retry sends the same request, which the issuer counts once. `loading` resolves
 * to the script blind.ts, which pages load only for tasks with tokens.
 * @throws DoonaError `limit-reached` if the issuer has no further token for this person in this epoch;
 * `not-delivered` if the request failed and may succeed later; the signal's reason if it is aborted
 */
export async function fetchToken(wanted: TokenPurpose, loading: Promise<typeof import('./blind.js')>): Promise<Bytes> {
  const { id, idText, task, epoch, keyId, source = fromIssuer, signal: outer } = wanted;
  const base = `${task.clients.issuer.url}/v1/tasks/${idText}/epochs/${epoch}`;
  loading.catch(() => {}); // Its rejection is handled once it is awaited.
  const directory = await fetchWithRetries((signal) =>
    fetch(`${base}/issuer-directory`,
      { credentials: 'omit', referrerPolicy: 'no-referrer', redirect: 'manual', cache: 'no-store', signal }), outer);
  try {
    const { blind } = await loading;
    const { request, finalize } =
      await blind(await findKey(directory, keyId), keyId, await challengeOf(task, id, epoch));
    return await finalize(await fetchWithRetries((signal) => source(request,
      { task: idText, epoch, uri: `${base}/token-request`, signal }), outer));
  } catch (cause) {
    throwIfAborted(outer);
    // After module-failed, the script may load at a later attempt.
    const ours = cause instanceof DoonaError && cause.code !== 'module-failed';
    throw ours ? cause : noToken((cause as Error).message, cause);
  }
}

/** Runs `work` while no other tab of the site holds the lock `name`. Without Web Locks it just runs `work`. */
export async function withLock<T>(name: string, work: () => Promise<T>): Promise<T> {
  const locks = globalThis.navigator?.locks;
  return locks ? ((await locks.request(name, work)) as T) : work();
}

/** Returns the TokenChallenge of a task's epoch (RFC 9577, section 2.1). */
export async function challengeOf(task: Task, id: Bytes, epoch: number): Promise<Bytes> {
  const context = await sha256(concat(utf8(`doona-v${version} token`), id, bigEndian(epoch, 8)));
  return concat(
    bigEndian(2, 2),
    opaque16(host(task.clients.issuer.url)),
    bigEndian(context.length, 1),
    context,
    opaque16(host(task.relays[0]!.url)),
  );
}

function opaque16(text: string): Bytes {
  const bytes = utf8(text);
  return concat(bigEndian(bytes.length, 2), bytes);
}

/** Returns the host and port of a task's URL. */
function host(url: string): string {
  return url.slice(url.indexOf('//') + 2).split('/')[0]!;
}

/** Finds the token key of type 2 whose SHA-256 is `keyId` in an issuer directory (RFC 9578, section 4). */
async function findKey(directory: Bytes, keyId: Bytes): Promise<Bytes> {
  const { 'token-keys': keys } = JSON.parse(new TextDecoder().decode(directory)) as {
    'token-keys': { 'token-type': number; 'token-key': string }[];
  };
  for (const { 'token-type': type, 'token-key': text } of keys) {
    if (type !== 2) continue;
    const spki = latin1(atob(text.replaceAll('-', '+').replaceAll('_', '/')));
    if (equal(await sha256(spki), keyId)) return spki;
  }
  throw new Error('its key is not the one the task names');
}

function fromIssuer(request: Bytes,
  { uri, signal }: { readonly uri: string; readonly signal: AbortSignal }): Promise<Response> {
  return fetch(uri, {
    method: 'POST',
    headers: { 'Content-Type': 'application/private-token-request' },
    body: request,
    credentials: 'omit',
    referrerPolicy: 'no-referrer',
    redirect: 'manual', // A redirect then fails the check of response.ok. workerd does not support 'error'.
    cache: 'no-store',
    signal,
  });
}

/** Sends a request and returns the answer's body. Retries if the failure may be temporary. */
async function fetchWithRetries(ask: (signal: AbortSignal) => Promise<Response>,
  outer?: AbortSignal): Promise<Bytes> {
  for (let attempt = 0; ; attempt++) {
    let why: string;
    try {
      return await withTimeout(async (signal) => readAnswer(await ask(signal)), undefined, outer);
    } catch (cause) {
      throwIfAborted(outer);
      if (cause instanceof DoonaError) throw cause;
      why = (cause as Error).message;
    }
    const wait = retryDelays[attempt];
    if (wait === undefined) throw noToken(why);
    await pause(wait, outer);
  }
}

/** Returns an answer's body. @throws Error if a retry may succeed; DoonaError if not */
async function readAnswer(response: Response): Promise<Bytes> {
  if (response.ok) return readBody(response, maxAnswer);
  const { name } = await readProblem(response);
  if (name === 'limit') {
    throw new DoonaError('limit-reached', 'the issuer has no further token for this person in this epoch');
  }
  const why = name || String(response.status);
  throw response.status < 500 ? noToken(`it answered ${why}`) : new Error(why);
}

function noToken(reason: string, cause?: unknown): DoonaError {
  return new DoonaError('not-delivered', `couldn't get a token from the issuer: ${reason}`, undefined, { cause });
}
