/**
 * The guarantee in plain words, from what the SDK checked on this device.
 * @module
 */

import type { Guarantee } from '../sdk/index.js';
import { byId, html } from './dom.js';
import { number, oneIn } from './words.js';

export function showPromise(g: Guarantee): void {
  const factor = number(Math.exp(g.epsilon));
  byId('promise').replaceChildren(
    html('p', {}, `Whatever is published, and even the verifier, who may know everyone else's answer, can hardly tell what you picked: no other answer of yours would change the odds of any outcome by more than a factor ${factor}, except with a chance of ${oneIn(g.delta)}. This device has checked that the task's parameters give that.`),
    html('dl', {},
      html('dt', {}, `ε = ${number(g.epsilon)}`), html('dd', {}, `per epoch, δ = ${g.delta.toExponential()}. All ${number(g.epochs)} epochs of this demo together: ε ≤ ${number(g.totalEpsilon)}. A real task has few.`),
      html('dt', {}, `${number(g.minimumHonest)} of ${number(g.batch)}`), html('dd', {}, 'reports in the batch must be of honest clients, and one relay must not collude. That no device can check.'),
      ...local(g),
    ),
    html('p', { class: 'quiet' }, 'Not hidden: that you took part. The first relay sees your network address, though not your answer.'),
  );
}

function local(g: Guarantee): HTMLElement[] {
  const [value, text] =
    g.localEpsilon === null
      ? ['nothing', 'is left if every relay colludes with the verifier.']
      : [`ε₀ = ${number(g.localEpsilon)}`, 'is all that is left if every relay colludes with the verifier.'];
  return [html('dt', {}, value), html('dd', {}, text)];
}
