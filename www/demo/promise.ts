/**
 * The guarantee in plain words, from what the SDK checked on this device.
 * @module
 */

import type { Doona, Guarantee } from '../sdk/index.js';
import { byId, html } from './dom.js';
import { number, oneIn } from './words.js';

export function showPromise({ guarantee: g }: Doona): void {
  const relay = g.relay === 'first' ? 'the first relay' : 'one relay';
  const several = g.relay === 'whole';
  const factor = number(Math.exp(g.epsilon));
  byId('promise').replaceChildren(
    html('p', {}, `Whatever is published, and even the verifier, who may know everyone else’s answer, can hardly tell what you picked: no other answer of yours would change the odds of any outcome by more than a factor ${factor}, except with a chance of ${oneIn(g.delta)}. This device has checked that the task’s parameters give that.`),
    html('dl', { class: 'facts' },
      ...fact(`ε = ${number(g.epsilon)}`,
        `per epoch: the factor is e^ε = ${factor}. All ${number(g.epochs)} epochs of this demo together: ε ≤ ${number(g.totalEpsilon)}. A real task has few.`),
      ...fact(`δ = ${g.delta.toExponential()}`, 'per epoch: the chance that the factor does not hold.'),
      ...alone(g),
      ...local(g),
    ),
  );
  byId('not').replaceChildren(
    missing('That you took part is visible.', 'The first relay sees your network address, though not your answer.'),
    ...(g.minimumHonest === 0
      ? [missing(`One of the ${number(g.relays)} relays must not collude with the verifier,`,
        'and add the noise it should. No device can check that. Of the other clients none need be honest.')]
      : [missing(`${number(g.minimumHonest)} of the ${number(g.batch)} reports must be of honest clients,`,
        `and ${relay} must not collude with the verifier. No device can check either.`)]),
    ...(several ? [missing('Your messages must stay in one batch.',
      'You send several; a first relay that deviates can part them, and no later one can see it.')] : []),
    ...(g.minimumHonest === 0 ? [] : [missing('Whoever can mint clients can surround you with its own.',
      `Then ${g.localEpsilon === null ? 'nothing' : `only ε₀ = ${number(g.localEpsilon)}`} is left. This demo counts network addresses, which stops nobody who has many; a deployment uses tokens.`)]),
    missing('Reports are not checked for truth.',
      'A client can lie within the range of values, and the estimate then counts the lie.'),
  );
}

function fact(term: string, text: string): HTMLElement[] {
  return [html('dt', {}, term), html('dd', {}, text)];
}

function missing(what: string, more: string): HTMLElement {
  return html('li', {}, html('b', {}, what), ` ${more}`);
}

function alone(g: Guarantee): HTMLElement[] {
  if (g.aloneEpsilon === null) return fact('no ε′', 'If nobody else who reports is honest, nothing is left.');
  return fact(`ε′ = ${number(g.aloneEpsilon)}`, 'is what is left if nobody else who reports is honest.');
}

function local(g: Guarantee): HTMLElement[] {
  return g.localEpsilon === null
    ? fact('no ε₀', 'If every relay colludes with the verifier, nothing is left.')
    : fact(`ε₀ = ${number(g.localEpsilon)}`, 'is all that is left if every relay colludes with the verifier.');
}
