/**
 * Shows loading times by kind of device: shares, the 75 % quantile, and differences between kinds of devices.
 * @module
 */

import { byId, html } from '../dom.js';
import { exact, number } from '../format.js';
import type { Device, Figure, Month, Pair } from './data.js';
import { head } from './lists.js';

export function showSpeed({ speed }: Month): void {
  byId('devices').append(...speed.devices.map(device));
  byId('pairs').append(...speed.differences.map(pair));
  const columns = [...speed.devices, ...speed.differences];
  byId('shares').append(
    head('seconds', ...columns.flatMap((of) => ['first' in of ? `${of.first} less ${of.second}` : of.name, 'from', 'to'])),
    html('tbody', {}, ...speed.bins.map((bin, i) => html('tr', {}, html('th', { scope: 'row' }, bin),
      ...columns.flatMap(({ shares }) => shareCells(shares[i] ?? null))))));
}

/** Returns three table cells: a share in percent and its interval. They say "too few" if too few clients reported. */
function shareCells(figure: Figure | null): HTMLElement[] {
  if (!figure) return ['too few', '', ''].map((text) => html('td', {}, text));
  return [figure.estimate, ...figure.interval].map((x) => html('td', {}, exact(100 * x)));
}

function device(of: Device, at: number): HTMLElement {
  return html('div', {}, html('h4', {}, capitalize(of.name)),
    html('dl', { class: 'facts' },
      ...factNodes('reports', of.reports, 1, ''), ...factNodes('good, up to 2.5 s', of.good, 100, ' %'),
      ...factNodes('poor, above 4 s', of.poor, 100, ' %'), ...factNodes('75 % quantile', of.p75_seconds, 1, ' s')),
    html('figure', { 'data-chart': `device-${at}` }));
}

function pair(of: Pair, at: number): HTMLElement {
  return html('div', {}, html('h4', {}, `${capitalize(of.first)} less ${of.second}`),
    html('dl', { class: 'facts' },
      ...factNodes('good, in points', of.good, 100, ''), ...factNodes('poor, in points', of.poor, 100, '')),
    html('figure', { 'data-chart': `difference-${at}` }));
}

/** Returns a number with its name, its interval and the true value. */
function factNodes(name: string, figure: Figure | null, scale: number, unit: string): HTMLElement[] {
  if (!figure) return [html('dt', {}, 'too few'), html('dd', {}, name)];
  const [lo, hi] = figure.interval;
  return [html('dt', {}, exact(scale * figure.estimate), unit),
    html('dd', {}, `${name}: ${number(scale * lo)} to ${number(scale * hi)}; truth ${number(scale * figure.truth)}`)];
}

function capitalize(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
