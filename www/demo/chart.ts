/**
 * The estimates as a picture: a time series with intervals, or a histogram's bars. Plain SVG: two
 * shapes and an axis need no library, scale with the page and take their colours from its CSS.
 * @module
 */

import { svg } from './dom.js';
import { type Row, entries } from './state.js';
import { number } from './words.js';

const height = 300;
const margin = { top: 14, right: 12, bottom: 44, left: 58 };

/** Marks at a place along the horizontal axis. */
interface Mark {
  readonly x: number;
  readonly label: string;
  readonly estimate: number;
  readonly truth: number;
  readonly interval: readonly [number, number];
}

/** Returns a series of the last epochs, as many as fit the width in pixels. */
export function series(rows: readonly Row[], unit: string, width: number): SVGSVGElement {
  const shown = rows.slice(-Math.floor(width / 36));
  const marks = shown.map((row, i) => ({ ...entries(row)[0]!, x: place(i, shown.length, width), label: String(row.epoch) }));
  const y = scale(marks, false);
  const last = marks.at(-1)!;
  const summary = `Estimate by epoch; the last is ${number(last.estimate)} ${unit}, between ${number(last.interval[0])} and ${number(last.interval[1])}, truth ${number(last.truth)}.`;
  const line = marks.map((m) => `${m.x},${y(m.estimate)}`).join(' ');
  return canvas(width, summary, [
    ...axis(width, y, marks, 'epoch'),
    ...marks.map((m) => svg('line', { class: 'band', x1: m.x, x2: m.x, y1: y(m.interval[0]), y2: y(m.interval[1]) })),
    svg('polyline', { class: 'line', points: line }),
    ...marks.map((m) => svg('line', { class: 'truth', x1: m.x - 11, x2: m.x + 11, y1: y(m.truth), y2: y(m.truth) })),
    ...marks.map((m) => svg('circle', { class: 'estimate', cx: m.x, cy: y(m.estimate), r: 4.5 }, title(m))),
  ]);
}

/** Returns the bars of one epoch's histogram. */
export function bars(row: Row, labels: readonly string[], width: number): SVGSVGElement {
  const list = entries(row);
  const marks = list.map((entry, i) => ({ ...entry, x: place(i, list.length, width), label: labels[i] ?? '' }));
  const y = scale(marks, true);
  const half = Math.min(26, (0.36 * (width - margin.left - margin.right)) / list.length);
  return canvas(width, `Histogram of epoch ${row.epoch}, ${list.length} bins; the numbers are in the table below.`, [
    ...axis(width, y, marks, `epoch ${row.epoch}`),
    ...marks.map((m) => {
      const [top, bottom] = [Math.min(y(m.estimate), y(0)), Math.max(y(m.estimate), y(0))];
      return svg('rect', { class: 'bar', x: m.x - half, width: 2 * half, y: top, height: bottom - top }, title(m));
    }),
    ...marks.map((m) => svg('line', { class: 'whisker', x1: m.x, x2: m.x, y1: y(m.interval[0]), y2: y(m.interval[1]) })),
    ...marks.map((m) => svg('line', { class: 'truth', x1: m.x - half, x2: m.x + half, y1: y(m.truth), y2: y(m.truth) })),
  ]);
}

function canvas(width: number, summary: string, children: SVGElement[]): SVGSVGElement {
  return svg('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': summary }, ...children);
}

function title(m: Mark): SVGTitleElement {
  const [lo, hi] = m.interval;
  return svg('title', {}, `${m.label}: ${number(m.estimate)} (${number(lo)} to ${number(hi)}), truth ${number(m.truth)}`);
}

function place(i: number, n: number, width: number): number {
  return margin.left + ((i + 0.5) * (width - margin.left - margin.right)) / n;
}

type Scale = ((value: number) => number) & { readonly lo: number; readonly hi: number };

function scale(marks: readonly Mark[], fromZero: boolean): Scale {
  const values = marks.flatMap((m) => [...m.interval, m.truth]);
  if (fromZero) values.push(0);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const pad = 0.08 * (high - low || Math.abs(high) || 1);
  const [lo, hi] = [low === 0 ? 0 : low - pad, high + pad];
  const inner = height - margin.top - margin.bottom;
  return Object.assign((value: number) => margin.top + (inner * (hi - value)) / (hi - lo), { lo, hi });
}

/** Grid lines at round values, and labels below as many marks as fit. */
function axis(width: number, y: Scale, marks: readonly Mark[], name: string): SVGElement[] {
  const out: SVGElement[] = [];
  const step = roundStep((y.hi - y.lo) / 5);
  for (let value = Math.ceil(y.lo / step) * step; value <= y.hi; value += step) {
    const at = y(value);
    out.push(svg('line', { class: 'grid', x1: margin.left, x2: width - margin.right, y1: at, y2: at }));
    out.push(svg('text', { x: margin.left - 8, y: at + 4, 'text-anchor': 'end' }, number(Math.abs(value) < step / 2 ? 0 : value)));
  }
  const longest = Math.max(...marks.map((m) => m.label.length));
  const every = Math.ceil((marks.length * (longest * 7 + 10)) / (width - margin.left - margin.right));
  marks.forEach((m, i) => {
    if (i % every === 0) out.push(svg('text', { x: m.x, y: height - margin.bottom + 18, 'text-anchor': 'middle' }, m.label));
  });
  out.push(svg('text', { x: (margin.left + width) / 2, y: height - 6, 'text-anchor': 'middle' }, name));
  return out;
}

/** The smallest of 1, 2, 5 times a power of ten that is at least x. */
function roundStep(x: number): number {
  const power = 10 ** Math.floor(Math.log10(x));
  return [1, 2, 5, 10].map((f) => f * power).find((candidate) => candidate >= x)!;
}
