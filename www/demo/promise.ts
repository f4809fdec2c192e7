/**
 * Shows the guarantee that the SDK has checked on this device, in plain words.
 * @module
 */

import type { Doona, Guarantee } from '../sdk/index.js';
import { byId, html } from './dom.js';
import { atMost, number, oneIn } from './format.js';

export function showPromise({ guarantee: g }: Doona): void {
  byId('promise').replaceChildren(
    html('p', {}, `Even the verifier, who may know everyone else’s answer, can hardly tell yours: no other answer would change the odds of anything that is seen by more than a factor ${atMost(Math.exp(g.epsilon))}, except with a chance of ${oneIn(g.delta)}. This device has checked that.`),
    ...terms(g),
  );
  byId('not').replaceChildren(
    notPromised('That you took part is visible.', 'The first relay sees your network address, though not your answer.'),
    honestParties(g),
    ...(g.relay === 'whole' ? [notPromised('Your messages must stay in one batch.',
      'You send several messages. A malicious first relay can separate them, and no later relay notices.')] : []),
    ...(g.minimumHonest === 0 ? [] : [notPromised('Whoever can mint clients can surround you with its own.',
      `Then ${g.localEpsilon === null ? 'nothing' : `only ε₀ = ${atMost(g.localEpsilon)}`} is left. This demo counts network addresses, which does not stop someone with many addresses; a deployment uses tokens.`)]),
    notPromised('Reports are not checked for truth.',
      'A client can lie within the range of values, and the estimate then counts the lie.'),
  );
}

/** Says who must be honest. */
function honestParties(g: Guarantee): HTMLElement {
  const relays = g.relays === 1 ? 'The relay' : g.relay === 'first' ? 'The first relay'
    : `One of the ${number(g.relays)} relays`;
  if (g.minimumHonest === 0) {
    return notPromised(`${relays} must be honest, and nobody else.`,
      'It adds the noise, in full, and keeps from the verifier which messages it was handed. No device can check that. All other clients, the verifier and the other relays may work together against you.');
  }
  return notPromised(`${relays} and ${number(g.minimumHonest)} of the ${number(g.batch)} clients must be honest.`,
    'The relay keeps from the verifier how it shuffled, and the clients add their noise. No device can check either.');
}

/** Returns buttons for the symbols; a tap explains one symbol at a time. */
function terms(g: Guarantee): HTMLElement[] {
  const meaning = html('p', { id: 'meaning', class: 'quiet', role: 'status' });
  const buttons = meanings(g).map(([term, text]) => {
    const button = html('button', { type: 'button', class: 'small', 'aria-expanded': 'false',
      'aria-controls': 'meaning' }, term);
    button.addEventListener('click', () => {
      const shown = button.ariaExpanded === 'true';
      for (const other of buttons) other.ariaExpanded = String(other === button && !shown);
      meaning.textContent = shown ? '' : text;
    });
    return button;
  });
  return [html('p', { class: 'terms', role: 'group', 'aria-label': 'What the symbols mean' }, ...buttons), meaning];
}

function meanings(g: Guarantee): [term: string, text: string][] {
  const factor = atMost(Math.exp(g.epsilon));
  return [
    [`ε = ${atMost(g.epsilon)}`,
      `ε (epsilon) bounds what one report tells, in each epoch: the factor is e^ε = ${factor}. All ${number(g.epochs)} epochs of this demo together: ε ≤ ${atMost(g.totalEpsilon)}. A real task has few.`],
    [`δ = ${g.delta.toExponential()}`,
      `δ (delta) is the chance, in each epoch, that the factor does not hold: ${oneIn(g.delta)}.`],
    g.epsilonNoHonest === null ? ['no ε′', 'If nobody else who reports is honest, nothing is left of the promise.']
      : [`ε′ = ${atMost(g.epsilonNoHonest)}`,
        `ε′ is the ε that is left if nobody else who reports is honest: the factor is then ${atMost(Math.exp(g.epsilonNoHonest))}.`],
    g.localEpsilon === null ? ['no ε₀', 'If every relay works with the verifier, nothing is left of the promise.']
      : [`ε₀ = ${atMost(g.localEpsilon)}`,
        `ε₀ is the ε that is left if every relay works with the verifier: the factor is then ${atMost(Math.exp(g.localEpsilon))}.`],
  ];
}

function notPromised(what: string, more: string): HTMLElement {
  return html('li', {}, html('details', { class: 'more' }, html('summary', {}, html('b', {}, what)),
    html('span', {}, more)));
}
