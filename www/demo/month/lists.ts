/**
 * Shows lists as tables with a bar in each row. Screen readers read the numbers and skip the bars.
 * @module
 */

import { html, svg } from '../dom.js';
import { exact } from '../format.js';
import type { Entry, List } from './data.js';

/** Returns a table of a list's first `most` entries, with bars. */
export function barTable(list: List, what: string, most = list.entries.length): HTMLTableElement {
  const shown = list.entries.slice(0, most);
  const longest = Math.max(...shown.flatMap(({ interval, truth }) => [interval[1], truth]));
  const columnHead = (name: string, text: string) => html('th', { scope: 'col', class: name }, text);
  return html('table', { class: 'bars' },
    html('thead', {}, html('tr', {}, columnHead('name', what), columnHead('number', 'visits'),
      columnHead('range', 'between'), html('td', { class: 'picture' }))),
    html('tbody', {}, ...shown.map((entry) => row(entry, longest))));
}

function row(entry: Entry, longest: number): HTMLElement {
  return html('tr', entry.seen ? {} : { class: 'below' },
    html('th', { scope: 'row', class: 'name', title: entry.name }, entry.name),
    html('td', { class: 'number' }, ...estimateNodes(entry)),
    html('td', { class: 'range' }, ...intervalNodes(entry)),
    html('td', { class: 'picture', title: intervalNodes(entry).map((part) => typeof part === 'string' ? part
      : part.textContent).join('') }, bar(entry, longest)));
}

/**
 * Returns an entry's estimate. If the entry is below the noise floor, the estimate may be noise alone, so it returns an
 * upper bound instead.
 */
export function estimateNodes(entry: Entry): Node[] {
  if (entry.seen) return [exact(entry.estimate)];
  return [document.createTextNode('under '), exact(Math.max(0, entry.band[1]))];
}

function intervalNodes({ interval: [lo, hi] }: Entry): (Node | string)[] {
  return [exact(Math.max(0, lo)), ' and ', exact(Math.max(0, hi))];
}

/** Draws a bar from 0 to the estimate, with one line for the interval and one for the true value. */
function bar({ estimate: value, interval, truth, seen, band }: Entry, longest: number): SVGElement {
  const x = (v: number) => 1000 * Math.min(1, Math.max(0, v / longest));
  return svg('svg', { viewBox: '0 0 1000 20', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
    svg('rect', { class: 'bar', x: 0, y: 2, height: 16, width: x(seen ? value : band[1]) }),
    svg('line', { class: 'whisker', x1: x(interval[0]), x2: x(interval[1]), y1: 10, y2: 10 }),
    svg('line', { class: 'truth', x1: x(truth), x2: x(truth), y1: 3, y2: 17 }));
}

/** Returns a table row with the numbers of an entry, `more` first. */
export function numberRow(entry: Entry, ...more: number[]): HTMLElement {
  return html('tr', entry.seen ? {} : { class: 'below' }, html('th', { scope: 'row' }, entry.name),
    ...more.map((x) => html('td', {}, exact(x))), html('td', {}, ...estimateNodes(entry)),
    ...entry.interval.map((x) => html('td', {}, exact(Math.max(0, x)))), html('td', {}, exact(entry.truth)));
}

/** Returns a table's head. */
export function head(...texts: string[]): HTMLElement {
  return html('thead', {}, html('tr', {}, ...texts.map((text) => html('th', { scope: 'col' }, text))));
}
