/**
 * The released epochs: the chart and, for those who prefer it or cannot see one, a table.
 * @module
 */

import { bars, series } from './chart.js';
import { byId, html } from './dom.js';
import { type Row, type State, entries } from './state.js';
import { choiceLabels, number } from './words.js';

/** The chart is drawn for the width it has, so that its text keeps its size. */
const narrowest = 260;

/** Redraws when there is something new, or another width. */
export function showHistory(state: State, labels: boolean): void {
  const last = state.history.at(-1);
  const figure = byId('chart');
  const width = Math.max(narrowest, figure.clientWidth);
  const version = `${state.history.length} ${width}`;
  if (!last || figure.dataset['version'] === version) return;
  figure.dataset['version'] = version;
  const bins = state.query === 'histogram' ? choiceLabels(state, labels) : null;
  figure.replaceChildren(bins ? bars(last, bins, width) : series(state.history, state.unit, width));
  byId('empty').hidden = true;
  byId('numbers').hidden = false;
  byId('table').replaceChildren(
    html('thead', {}, html('tr', {}, ...heads(state, bins).map((text) => html('th', { scope: 'col' }, text)))),
    html('tbody', {}, ...lines(state.history, bins).map((cells) => html('tr', {}, ...cells.map((text) => html('td', {}, text))))),
  );
}

function heads(state: State, bins: readonly string[] | null): string[] {
  return [bins ? state.unit || 'bin' : 'epoch', 'reports', 'estimate', 'interval', 'truth'];
}

/** A line per epoch, the newest first; for histograms a line per bin of the newest. */
function lines(history: readonly Row[], bins: readonly string[] | null): string[][] {
  const rows = bins ? history.slice(-1) : [...history].reverse();
  return rows.flatMap((row) =>
    entries(row).map((e, i) => [
      bins?.[i] ?? String(row.epoch),
      number(row.users),
      number(e.estimate),
      `${number(e.interval[0])} to ${number(e.interval[1])}`,
      number(e.truth),
    ]),
  );
}
