/**
 * Messages for visitors: what happened to the report and what to do.
 * @module
 */

import { DoonaError, type ErrorCode } from '../sdk/index.js';

const messages: Partial<Record<ErrorCode, string>> = {
  'builtin-broken': 'This browser is too old, or something has changed how its pages work. Nothing was sent.',
  'insecure-context': 'Nothing can be sealed on this page: open it by https, or on this machine.',
  'task-unreachable': 'The first relay does not answer, so this device cannot check what it would take part in. Nothing was sent. Please load the page again.',
  'task-refused': 'This device refused the task: its owner did not sign it in this form. Nothing was sent.',
  'claim-refused': 'This device refused the task: it promises more than its noise gives. Nothing was sent.',
  'storage-unavailable': 'This browser does not let the page store anything, perhaps because the window is private. You could report twice without knowing, so nothing is sent.',
  'module-failed': 'The program that draws the noise did not load. Nothing was sent. Please load the page again.',
  'budget-exceeded': 'You have reported as often as this device allows. Nothing was sent.',
  'invalid-value': 'The task does not take this value. Nothing was sent: please pick another.',
  'epoch-not-open': 'By this device’s clock the demo has not begun. Nothing was sent: is the clock right?',
  'task-ended': 'This demo has run for all its epochs. Start it again for more.',
  'not-delivered': 'Your report is sealed, and the relay did not answer: it is sent at your next visit.',
  'limit-reached': 'Somebody else at your network address has reported in this epoch. Please try again in the next one.',
  'frame-refused': 'Another site shows this page inside one of its own. Nothing was sent: please open it by itself.',
  'origin-refused': 'The task does not accept reports from pages at this address. Nothing was sent.',
  'report-refused': 'The relay refused the report, so it is not counted. Please try again in the next epoch.',
};

/** Returns the message for a visitor about an error. */
export function describeError(error: unknown): string {
  const known = error instanceof DoonaError && messages[error.code];
  return known || 'The demo does not answer. Please load the page again.';
}
