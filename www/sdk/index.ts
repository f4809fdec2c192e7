/**
 * Doona: private statistics from browsers. A value is randomized on the device, sealed in layers
 * and shuffled by relays; no single party sees who reported what.
 *
 *     const doona = init({
 *       task: 'https://relay.example/v1/tasks/…',
 *       owner: 'ed25519:…',
 *       budget: { epsilon: 10, delta: 1e-5, days: 365 },
 *     });
 *     doona.report(42);
 *
 * @module
 */

export { type Budget } from './budget.js';
export { connect } from './connect.js';
export { type Doona, type Flushed, type Forgotten, type Receipt, type ReportOptions } from './doona.js';
export { DoonaError, type ErrorCode } from './errors.js';
export type { Assumption, Devices, ExplainOptions, Explanation, Language } from './explain.js';
export { type ClientOptions, type DoonaClient, type InitOptions, type Status, init } from './facade.js';
export { type Guarantee } from './guarantee.js';
export { type ConnectOptions, type StreamOptions, type TaskOptions, type TokenSource } from './options.js';
export { type Cost, type Latest, type Line, type Permit, type Price, type Report, type Run, type Store } from './store.js';
export { memoryStore } from './store-memory.js';
export { type Party, type Task } from './task.js';
export { type Value, type Vector } from './value.js';
