/**
 * Where a person picks a value: a slider for numbers, choices for bins and yes or no.
 * @module
 */

import { byId, html } from './dom.js';
import type { State } from './state.js';
import { choiceLabels, number } from './words.js';

/** Fills the form and returns a function that reads the value picked. */
export function picker(state: State, labels: boolean): () => number {
  return state.query === 'mean' || state.query === 'sum' ? slider(state) : choices(state, labels);
}

function slider(state: State): () => number {
  const step = (state.hi - state.lo) / 180;
  const middle = state.lo + 60 * step;
  const input = html('input', {
    type: 'range', id: 'value', min: state.lo, max: state.hi, step, value: middle, 'aria-label': `${state.title} ${state.unit}`,
  });
  const shown = html('output', { class: 'value', for: 'value' });
  const show = () => {
    const text = number(input.valueAsNumber);
    shown.replaceChildren(text, ' ', html('small', {}, state.unit));
    input.setAttribute('aria-valuetext', `${text} ${state.unit}`);
  };
  input.addEventListener('input', show);
  show();
  const ends = html('div', { class: 'ends', 'aria-hidden': 'true' },
    html('span', {}, number(state.lo)), html('span', {}, `${number(state.hi)} or more`));
  byId('picker').append(shown, input, ends);
  return () => input.valueAsNumber;
}

function choices(state: State, labels: boolean): () => number {
  const texts = choiceLabels(state, labels);
  const group = html('div', { class: 'choices' }, ...texts.map((text, i) => choice(text, i)));
  byId('picker').append(group);
  const width = (state.hi - state.lo) / state.bins;
  return () => {
    const picked = Number(group.querySelector<HTMLInputElement>('input:checked')!.value);
    // A bin of a range is reported by its middle, which the task maps back to the bin.
    return state.query === 'count' || labels ? picked : state.lo + (picked + 0.5) * width;
  };
}

function choice(text: string, index: number): HTMLLabelElement {
  const input = html('input', { type: 'radio', name: 'value', value: index });
  input.defaultChecked = index === 0;
  return html('label', {}, input, html('span', {}, text));
}
