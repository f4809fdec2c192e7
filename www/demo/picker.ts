/**
 * The form in which a person picks a value: a slider for a number, radio buttons for bins and yes or no, a slider per
 * coordinate of a vector, a text field for a text. Below, it shows which practice messages the value gives
 * (practice.ts).
 * @module
 */

import { byId, html, svg } from './dom.js';
import { queries } from './queries.js';
import type { State } from './state.js';
import { number, withUnit } from './format.js';

/** A value that the task accepts. */
export type Value = number | readonly number[] | string;

/** The form. */
export interface Picker {
  value(): Value;
  /** The value in words. */
  text(): string;
  /**
   * Shows the share of each symbol in the practice messages. Null hides them: a message of this protocol is not one
   * symbol.
   */
  practice(shares: readonly number[] | null): void;
}

/** Fills the form. Calls `changed` whenever the value changes. */
export function picker(state: State, changed: () => void): Picker {
  const { shape, yesNo } = queries[state.query];
  const out = shape === 'texts' ? textInput(state) : shape === 'vector' ? sliders(state)
    : shape === 'number' && !yesNo ? slider(state) : choices(state);
  byId('picker').addEventListener('input', changed);
  return out;
}

/** Returns a step of 1, 2 or 5 times a power of ten, at least 1/200 of the range. */
function stepOf(state: State): number {
  const power = 10 ** Math.floor(Math.log10((state.hi - state.lo) / 100));
  return [1, 2, 5, 10].map((f) => f * power).find((step) => (state.hi - state.lo) / step <= 200)!;
}

function rangeInput(state: State, name: string, at: number): HTMLInputElement {
  const step = stepOf(state);
  const value = state.lo + step * Math.round((at * (state.hi - state.lo)) / step);
  return html('input', { type: 'range', min: state.lo, max: state.hi, step, value, 'aria-label': name });
}

function slider(state: State): Picker {
  const input = rangeInput(state, state.title, 1 / 3);
  input.id = 'value';
  const shown = html('output', { class: 'value', for: 'value' });
  const text = () => withUnit(input.valueAsNumber, state.unit);
  const show = () => {
    shown.replaceChildren(number(input.valueAsNumber), ' ', html('small', {}, state.unit));
    input.setAttribute('aria-valuetext', text());
  };
  input.addEventListener('input', show);
  show();
  const strip = svg('svg', { class: 'strip', viewBox: '0 0 1000 56', preserveAspectRatio: 'none',
    'aria-hidden': 'true' });
  const ends = html('div', { class: 'ends', 'aria-hidden': 'true' },
    html('span', {}, `${number(state.lo)} or less`), html('span', {}, `${number(state.hi)} or more`));
  byId('picker').append(shown, input, strip, ends);
  return {
    value: () => input.valueAsNumber,
    text,
    practice(shares) {
      if (!shares) return strip.remove();
      // The symbols divide the range into equal steps, from its low end to its high end.
      const width = Math.min(60, 500 / shares.length);
      strip.replaceChildren(...shares.map((share, i) => {
        const height = share === 0 ? 0 : 3 + 53 * share;
        return svg('rect', { x: (i / (shares.length - 1)) * (1000 - width), width, y: 56 - height, height });
      }));
    },
  };
}

function choices(state: State): Picker {
  const group = html('div', { class: 'choices' }, ...state.entries.map((text, i) => choice(text, i)));
  byId('picker').append(group);
  const width = (state.hi - state.lo) / state.bins;
  const picked = () => Number(group.querySelector<HTMLInputElement>('input:checked')!.value);
  return {
    // For a bin of a range, the value is the middle of the bin. The client's code maps it back to the bin.
    value: () => (queries[state.query].yesNo || state.labels ? picked() : state.lo + (picked() + 0.5) * width),
    text: () => state.entries[picked()]!,
    practice(shares) {
      group.querySelectorAll<HTMLElement>('span').forEach((span, i) => span.style.setProperty('--share',
        String(shares?.[i] ?? 0)));
    },
  };
}

function choice(text: string, index: number): HTMLLabelElement {
  const input = html('input', { type: 'radio', name: 'value', value: index });
  input.defaultChecked = index === 0;
  return html('label', {}, input, html('span', {}, text));
}

/** How many characters of a text the picture of the stage "Value" shows. */
const chipLength = 14;

/** Returns a field to type or pick a text. */
function textInput(state: State): Picker {
  const input = html('input', { type: 'text', id: 'value', list: 'texts', value: state.entries[0] ?? '', required: '',
    autocomplete: 'off', spellcheck: 'false', 'aria-label': state.title, 'aria-describedby': 'line-note' });
  byId('picker').append(input,
    html('datalist', { id: 'texts' }, ...state.entries.map((text) => html('option', { value: text }))),
    html('p', { class: 'quiet', id: 'line-note' },
      `Pick one or type any other; ${number(state.bins)} bytes of it count. What many report is listed as it is: nothing that names a person belongs here.`));
  return {
    value: () => input.value,
    text: () => (input.value.length > chipLength ? `${input.value.slice(0, chipLength)}…` : input.value),
    practice: () => undefined,
  };
}

function sliders(state: State): Picker {
  const inputs = state.entries.map((name, i) => rangeInput(state, `coordinate ${name}`, 0.5 + 0.3 * Math.sin(i + 1)));
  const outputs = inputs.map(() => html('output', {}));
  const values = () => inputs.map((input) => input.valueAsNumber);
  const note = html('p', { class: 'quiet' });
  const show = () => {
    inputs.forEach((input, i) => outputs[i]!.replaceChildren(number(input.valueAsNumber)));
    if (!queries[state.query].ball) return;
    const norm = Math.hypot(...values());
    note.textContent = `Length ${number(norm)}${norm > 1 ? ': it will be scaled to 1' : ', at most 1'}.`;
  };
  byId('picker').addEventListener('input', show);
  byId('picker').append(html('div', { class: 'coordinates' },
    ...inputs.map((input, i) => html('label', {}, html('span', {}, state.entries[i]!), input, outputs[i]!))), note);
  show();
  return { value: values, text: () => `(${values().slice(0, 3).map(number).join(', ')}${values().length > 3 ? ', …' : ''})`, practice: () => undefined };
}
