/**
 * Sets of Doona: statistics of a site in several tables, with one total and one sealed submission a day.
 *
 *     const set = await connectSet({
 *       url: '/doona/v1/sets/…',
 *       owner: 'ed25519:…',
 *       defaults: { entry: 0, countries: 0 },
 *       budget: { epsilon: 10, delta: 1e-5, days: 365 },
 *     });
 *     set.report('entry', 3);
 *
 * @module
 */

export { type Budget } from './budget.js';
export { DoonaError, type ErrorCode } from './errors.js';
export { connectSet, optIn, optOut } from './set-connect.js';
export { type SetConnection, type SetReceipt, type SetStatus } from './set-connection.js';
export { type SetExplanation } from './set-explain.js';
export { type Outcome } from './set-ledger.js';
export { type SetOptions } from './set-options.js';
export { type Value, type Vector } from './value.js';
