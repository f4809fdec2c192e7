/**
 * The life of a report, step by step, in words that say what each party learns.
 * @module
 */

import { byId, html } from './dom.js';
import type { State } from './state.js';
import { number, oneIn } from './words.js';

/** How far the report has come: nothing yet, sealed and sent, shuffled, or counted. */
export type Progress = 'none' | 'sending' | 'sent' | 'filling' | 'released';

const reached: Readonly<Record<Progress, number>> = { none: 0, sending: 1, sent: 3, filling: 3, released: 5 };

/** Shows the steps; bytes is what the first relay received, where known. */
export function showLife(state: State, progress: Progress, bytes: number): void {
  const blanket = state.gamma === null ? '' : ` With probability ${share(state.gamma)} it is a random one instead.`;
  const size = bytes > 0 ? `${number(bytes)} bytes, whatever you picked.` : 'One size, whatever you picked.';
  const steps: [string, string][] = [
    ['Value', 'What you picked. It never leaves this page and is not stored.'],
    ['Message', `Your value, randomized once on this device.${blanket}`],
    ['Onion', `Sealed for the verifier and again for each relay. ${size}`],
    [
      state.hops === 1 ? '1 relay' : `${state.hops} relays`,
      bytes > 0
        ? `The first saw your address and ${number(bytes)} sealed bytes. It waits for ${number(state.batch)} reports; each relay opens one layer and shuffles.`
        : `Each opens one layer and shuffles ${number(state.batch)} reports. None can read them.`,
    ],
    ['Verifier', `Opens ${number(state.batch)} shuffled messages, not knowing whose they are, and adds them up.`],
  ];
  const done = reached[progress];
  byId('life').replaceChildren(
    ...steps.map(([name, text], i) => html('li', { 'data-state': stateOf(i, done, progress) }, html('b', {}, name), text)),
  );
}

function stateOf(step: number, done: number, progress: Progress): string {
  if (step < done) return 'done';
  return step === done && progress !== 'none' ? 'now' : 'ahead';
}

function share(gamma: number): string {
  return gamma >= 0.001 ? `${number(100 * gamma)} %` : oneIn(gamma);
}
