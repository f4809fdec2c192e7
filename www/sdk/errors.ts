/**
 * The one error class of the SDK. Callers should branch on `code`, because messages may change.
 * @module
 */

/** The codes of all errors. README.md says what a page can do about each. */
export type ErrorCode =
  | 'frame-refused' // A page of another origin has framed this one, and the option frames is not set.
  | 'origin-refused' // The task lists the origins whose pages may report; this page's origin is not listed.
  | 'builtin-broken' // A builtin of JavaScript fails its test: a library has replaced it, or the browser is too old.
  | 'insecure-context' // WebCrypto is missing: the page is neither HTTPS nor localhost.
  | 'invalid-option' // An argument of connect is missing or out of range.
  | 'task-unreachable' // The task could not be fetched; try again later.
  | 'task-refused' // Wrong owner, hash, signature, key list or encoding.
  | 'stream-broken' // The stream's tasks do not follow each other, or change what may not change.
  | 'stream-forked' // An earlier visit saw another task at a position of the stream, or another statement.
  | 'stream-replayed' // The stream lacks a task or a statement that an earlier visit saw.
  | 'stream-stopped' // The stream's owner has ended it.
  | 'set-refused' // Wrong owner, hash, signature or encoding of a set, or a table that a set may not have.
  | 'set-forked' // An earlier visit saw another set at a position, or a renewal changes what must stay.
  | 'claim-refused' // The task's parameters do not derive the guarantee it claims.
  | 'epsilon-too-large' // All epochs of the task together exceed maxEpsilon or the budget.
  | 'delta-too-large' // All epochs of the task together exceed maxDelta.
  | 'budget-exceeded' // This site's ledger would exceed the budget, or maxTotalEpsilon.
  | 'cap-reached' // This browser has made as many reports as the task takes of one browser for now.
  | 'storage-unavailable' // The store cannot keep what was reported.
  | 'module-failed' // The WASM module did not load or stopped.
  | 'invalid-value' // The value is outside the task's input domain; nothing was used up.
  | 'epoch-not-open' // The task has not begun.
  | 'task-ended' // The task's last epoch is over.
  | 'epoch-closed' // The epoch ended before the report arrived; it was dropped.
  | 'not-delivered' // The relay did not answer; the sealed report waits for flush().
  | 'limit-reached' // A quota of the epoch is used up: two later visits retry, an hour apart. Or the token is spent.
  | 'report-refused' // The relay will never accept this report; it was dropped.
  | 'withdrawn' // The report was dropped before it was delivered, because the page called forget() or optOut().
  | 'opted-out' // The visitor has opted out of reports at this site, or the browser sends Global Privacy Control.
  | 'closed'; // The page has closed the connection.

/** An error of the SDK. The message names the allowed range if a field is at fault. */
export class DoonaError extends Error {
  override readonly name = 'DoonaError';

  constructor(
    readonly code: ErrorCode,
    message: string,
    /** The name of the field at fault, in the task or in the options. */
    readonly field?: string,
    options?: { readonly cause?: unknown }, // The name ErrorOptions needs lib es2022.
  ) {
    super(message, options);
  }
}

/** Returns an `invalid-option` error that names the option and its range. */
export function invalidOption(option: string, got: unknown, want: string): DoonaError {
  return new DoonaError('invalid-option', `invalid ${option} ${String(got)}: want ${want}`, option);
}

export function taskRefused(reason: string, cause?: unknown): DoonaError {
  return new DoonaError('task-refused', `couldn't accept the task: ${reason}`, undefined, { cause });
}
