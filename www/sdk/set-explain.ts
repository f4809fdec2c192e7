/**
 * Says in English what a set does and does not promise to a visitor.
 * @module
 */

import type { Budget } from './budget.js';
import { addEpochs } from './epochs.js';
import type { OpenedSet } from './set-engine.js';

/** What a set promises, in words and numbers. */
export interface SetExplanation {
  /** All of it as plain text, one paragraph per line. */
  readonly text: string;
  /** The promise; of a set on trial, that there is none. */
  readonly promise: string;
  /** What each table asks, and how often. */
  readonly tables: readonly string[];
  /** What no device can promise. */
  readonly unpromised: readonly string[];
  /** Whether one operator runs all relays. */
  readonly trial: boolean;
  /** What all reports cost together; null for a set on trial. */
  readonly total: { readonly epsilon: number; readonly delta: number; readonly days: number } | null;
}

/** Explains an open set under a page's budget. */
export function explainSet({ name, trial, total, tables }: Pick<OpenedSet, 'name' | 'trial' | 'total' | 'tables'>,
  budget: Budget): SetExplanation {
  const relays = tables[0]!.task.relays.length;
  const said = tables.map(({ name: table, bare, task: { epochs } }) => {
    const each = lengthOf(epochs.length);
    if (bare) return `${table}: only that a browser came, once each ${each}.`;
    const limits = [
      epochs.cap && `at most ${epochs.cap.reports} times in ${epochs.cap.window} of them`,
      epochs.pace && `${epochs.pace.reports} times in each ${epochs.pace.window} of them`,
      epochs.events && `at most ${epochs.events.most} answers in ${epochs.events.window} of them differ from the default`,
    ].filter((text) => text !== undefined);
    return `${table}: one answer each ${each}${limits.map((limit) => `, ${limit}`).join('')}.`;
  });
  const promise = trial
    ? 'This set is on trial: one operator runs all relays. Nothing is promised by numbers. You must trust that one operator.'
    : `Whatever is learned or published from your answers in any ${total.days} days: no outcome is more than ` +
      `${factorOf(total.epsilon)} times as likely with your answers as with any others, except with a probability of ` +
      `${numberOf(total.delta)} (differential privacy with epsilon ${numberOf(total.epsilon)}, delta ` +
      `${numberOf(total.delta)}, for all tables together). This holds if at least one of ${relays} relays is honest.`;
  const spent = trial ? []
    : [`Your browser spends at most epsilon ${numberOf(budget.epsilon)}, delta ${numberOf(budget.delta)} at this site in ` +
      `any ${numberOf(budget.days)} days.`];
  const unpromised = [
    'That a browser came, at which time it left, and from which network: the first relay sees this.',
    'A visitor who clears the storage counts as a new browser, and may then answer again in the same week or month.',
    'The first relay and the verifier together can learn whether a browser had come earlier in the week or month.',
    ...(tables[0]!.task.clients.kind === 'token'
      ? ['That this browser asked for a token, and when: the issuer sees this. It cannot tell whose token a message carries.']
      : []),
    'Somebody with the device sees on which days it reported, and when its last rare answers were.',
  ];
  const text = [`Statistics of ${name}: once a day your browser sends one sealed message with ${tables.length} parts.`,
    ...said, promise, ...spent, 'Not promised:', ...unpromised].join('\n');
  return { text, promise, tables: said, unpromised, trial, total: trial ? null : total };
}

function lengthOf(length: number): string {
  if (addEpochs(length, 0, 1) === 31 * 86_400 && length > 31 * 86_400) return 'month';
  if (length % 604_800 === 0) return length === 604_800 ? 'week' : `${length / 604_800} weeks`;
  if (length % 86_400 === 0) return length === 86_400 ? 'day' : `${length / 86_400} days`;
  return `${length} seconds`;
}

/** Returns a number of at most three digits, rounded up. */
function numberOf(x: number): string {
  const step = 10 ** (Math.floor(Math.log10(x)) - 2);
  return String(Number((Math.ceil(x / step - 1e-9) * step).toPrecision(3)));
}

function factorOf(epsilon: number): string {
  return epsilon > 14 ? `e^${numberOf(epsilon)}` : numberOf(Math.exp(epsilon));
}
