/**
 * Shows the stages of a report on its path from the value to the verifier: a picture, a live count, and what each party
 * learns.
 * @module
 */

import { byId, html, narrow, svg } from './dom.js';
import type { State } from './state.js';
import { number, percent } from './format.js';

/**
 * The progress of the person's report: not made, being sealed and sent, at the first relay, in a batch that is filling,
 * released.
 */
export type Progress = 'none' | 'sending' | 'sent' | 'filling' | 'released';

/** The state of this person's report. */
export interface OwnReport {
  readonly epoch: number;
  readonly progress: Progress;
  /** How many simulated clients had reported in this epoch before this person. Their reports are in earlier batches. */
  readonly before: number;
  /** The size of the sent report in bytes; 0 before it is sent. */
  readonly bytes: number;
  /** The picked value in words. */
  readonly text: string;
}

interface Stage {
  readonly name: string;
  readonly picture: Element;
  readonly count: string;
  readonly text: string;
}

/** Returns how many reports the batch with this person's report has. */
export function batchFill(state: State, own: OwnReport): number {
  if (own.progress === 'none' || own.progress === 'sending') return 0;
  if (own.progress === 'released') return state.batch;
  return Math.min(state.batch, 1 + (state.epoch.number === own.epoch ? state.epoch.simulated - own.before : 0));
}

/** Shows the stages. In a narrow window their texts are closed until a tap. */
export function showStages(state: State, own: OwnReport): void {
  const released = own.progress === 'released';
  const reports = batchFill(state, own);
  const stages = [valueStage(own), noiseStage(state), onionStage(state, own), firstRelay(state, reports),
    ...laterRelays(state, released), verifierStage(state, released)];
  const done = released ? stages.length : { none: 0, sending: 1, sent: 3,
    filling: reports >= state.batch ? 4 : 3 }[own.progress as 'none'];
  const path = byId('path');
  const version = JSON.stringify([own, reports, state.by_hop, state.counts]);
  if (path.dataset['version'] === version) return; // A redraw would restart animations.
  path.dataset['version'] = version;
  const open = [...path.querySelectorAll('details')].map((details) => details.open);
  path.replaceChildren(...stages.map((stage, i) => {
    const now = i === done && own.progress !== 'none';
    return html('li', { 'data-state': i < done ? 'done' : now ? 'now' : 'ahead',
      ...(now && { 'aria-current': 'step' }) },
      html('details', { class: 'more', ...((open[i] ?? !narrow.matches) && { open: '' }) },
        html('summary', {}, html('span', { class: 'picture', 'aria-hidden': 'true' }, stage.picture),
          html('h3', {}, stage.name), html('span', { class: 'count' }, stage.count)),
        html('p', {}, stage.text)));
  }));
}

function valueStage(own: OwnReport): Stage {
  return { name: 'Value', picture: html('span', { class: 'chip' }, own.text), count: 'on this device',
    text: 'What you picked. It never leaves this page and is not stored.' };
}

const noise: Readonly<Record<string, string>> = {
  vectorsum: 'Coordinates are drawn at random, and their messages are random ones with this probability.',
  vectorgrid: 'Rounded to a point of a grid, and with this probability to a random one.',
  splitmix: 'Split into random shares with a little noise: a single share says nothing.',
  correlated: 'Sent with noise that cancels between clients, all but a little.',
  vectormean: 'Sent with noise that only the sum over all clients outweighs.',
  strings: 'A table is drawn at random, and your message is the cell that keeps your text there. With this probability it is any other cell instead.',
};

const dummies: Readonly<Record<string, string>> = {
  augmented: 'Sent as it is, in a slot like any other. Every relay adds dummies to the batch, in random numbers: they hide it.',
  strings: 'A table is drawn at random, and your message is the cell that keeps your text there. Every relay adds a fixed number of random cells: they hide yours.',
};

function noiseStage(state: State): Stage {
  const byRelays = state.assumption === 'none';
  const own = byRelays ? state.gamma === null && dummies[state.protocol] : noise[state.protocol];
  const text = own || 'With this probability your message is a random one instead. Nobody learns whether yours was, not even this page.';
  if (state.gamma === null) return { name: 'Noise', picture: ring(1, '≈'),
    count: byRelays ? 'added by relays' : 'drawn on this device', text };
  return { name: 'Coin', picture: ring(state.gamma, percent(state.gamma)), count: `γ = ${percent(state.gamma)}`, text };
}

/** Returns a ring around a text; `share` of the ring is filled. */
function ring(share: number, text: string): SVGSVGElement {
  const length = 2 * Math.PI * 38;
  return svg('svg', { viewBox: '0 0 100 100' },
    svg('circle', { class: 'coin', cx: 50, cy: 50, r: 38 }),
    svg('circle', { class: 'chance', cx: 50, cy: 50, r: 38, 'stroke-dasharray': `${share * length} ${length}`,
      transform: 'rotate(-90 50 50)' }),
    svg('text', { x: 50, y: 56, 'text-anchor': 'middle' }, text));
}

function onionStage(state: State, own: OwnReport): Stage {
  const layers = state.hops + 1;
  const rings = Array.from({ length: layers },
    (_, i) => svg('circle', { class: `layer patch-${(i % 4) + 1}`, cx: 50, cy: 50, r: 44 - (i * 36) / layers }));
  return {
    name: 'Onion',
    picture: svg('svg', { viewBox: '0 0 100 100' }, ...rings, svg('circle', { class: 'core', cx: 50, cy: 50, r: 5 })),
    count: own.bytes > 0 ? `${layers} layers, ${number(own.bytes)} bytes` : `${layers} layers`,
    text: 'Sealed for the verifier and again for each relay. One size, whatever you picked.',
  };
}

function firstRelay(state: State, filled: number): Stage {
  return {
    name: 'Relay 1',
    picture: quilt(1, filled / state.batch, filled > 0),
    count: `${number(filled)} of ${number(state.batch)} reports`,
    text: 'Sees your address and sealed bytes: the outlined patch. At a full batch it opens one layer, shuffles, and sends the batch on.',
  };
}

function laterRelays(state: State, released: boolean): Stage[] {
  if (state.hops === 1) return [];
  const last = state.by_hop.at(-1)!;
  return [{
    name: state.hops === 2 ? 'Relay 2' : `Relays 2 to ${state.hops}`,
    picture: quilt(2, released ? 1 : 0, false),
    count: `${number(last.in)} in, ${number(last.out)} out`,
    text: 'Opens the next layer and shuffles again. Yours is among these, and nobody can say which.',
  }];
}

function verifierStage(state: State, released: boolean): Stage {
  return {
    name: 'Verifier',
    picture: html('span', { class: released ? 'chip sum' : 'chip' }, 'Σ'),
    count: `${number(state.counts.verified)} messages counted`,
    text: 'Opens shuffled messages without names, adds them up and takes the expected noise away.',
  };
}

/**
 * Draws a batch as 100 patches. `share` of them are colored, `seed` varies the colors, and `own` outlines the person's
 * patch.
 */
function quilt(seed: number, share: number, own: boolean): SVGSVGElement {
  const on = Math.ceil(100 * share - 1e-9);
  const patches = Array.from({ length: 100 }, (_, i) => {
    const order = (i * 37 + 13 * seed) % 100; // the order in which patches are filled
    const color = 1 + (((i + seed) * (7 + 4 * seed) * (3 + (i >> 2))) % 4);
    const mark = own && order === 0 ? ' own' : '';
    return svg('rect', { class: `patch${order < on ? ` patch-${color}` : ''}${mark}`, x: 10 * (i % 10) + 0.7,
      y: 10 * Math.floor(i / 10) + 0.7, width: 8.6, height: 8.6, rx: 1.6 });
  });
  return svg('svg', { viewBox: '-2 -2 104 104' }, ...patches);
}
