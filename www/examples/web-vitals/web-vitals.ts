/**
 * The example page around private-vitals.ts. It shows the outcome of this visit's two reports, and the verifier's
 * results for all visits. In the demo, most of these visits are simulated.
 * @module
 */

import type { ConnectOptions, Receipt } from 'doona';

import { byId, html } from '../../demo/dom.js';
import { describeError } from '../../demo/errors.js';
import { type Location, type State, entries, fetchChart, fetchState, fill } from '../../demo/state.js';
import { themeButton } from '../../demo/theme.js';
import { atMost, exact, number } from '../../demo/format.js';
import { reportVitals } from './private-vitals.js';

const pollEvery = 1500;

/**
 * Options for one task: ε = 1 a day for a week. maxTotalEpsilon is large because the demo at the same origin spends far
 * more ε.
 */
function limited({ task_url: task, owner }: State): ConnectOptions {
  return { task, owner, maxEpsilon: 7, maxTotalEpsilon: 1e5 };
}

async function start(): Promise<void> {
  themeButton();
  const [lcp, cls] = await Promise.all([fetchState('lcp'), fetchState('cls')]);
  const others = lcp.batch - 1;
  byId('others').textContent = `A batch is opened when ${number(lcp.batch)} visitors have reported. The demo can play the other ${number(others)}, each with a real report of a made-up visit.`;
  const button = byId<HTMLButtonElement>('fill');
  button.textContent = `Simulate ${number(others)} visits`;
  button.addEventListener('click', () => void simulate(button, lcp, cls));
  void show();
  await reportVitals(limited(lcp), limited(cls), (name, value, receipt) => void showReceipt(name, value, receipt));
  byId('status').textContent = 'Both tasks are checked: this visit can report.';
}

async function showReceipt(name: string, value: number, receipt: Promise<Receipt>): Promise<void> {
  const line = byId(name);
  const measured = name === 'LCP' ? `${number(value)} ms` : number(value);
  line.textContent = `${measured} on this device …`;
  try {
    const { repeated, bytes } = await receipt;
    line.textContent = repeated
      ? `${measured} on this device. You have reported today, and one report a day stands.`
      : `${measured} on this device; ${number(bytes)} sealed bytes leave when you leave this tab.`;
  } catch (error) {
    line.textContent = `${measured} on this device. ${describeError(error)}`;
  }
}

async function simulate(button: HTMLButtonElement, lcp: State, cls: State): Promise<void> {
  button.disabled = true;
  try {
    await Promise.all([fill('lcp', lcp.epoch.number), fill('cls', cls.epoch.number)]);
    byId('status').textContent = 'The simulated visits have reported.';
  } catch (error) {
    byId('status').textContent = describeError(error);
  }
  button.disabled = false;
}

async function show(): Promise<void> {
  try {
    const [lcp, cls] = await Promise.all([fetchState('lcp'), fetchState('cls')]);
    await Promise.all([showTask('lcp', lcp, paint), showTask('cls', cls, shift)]);
  } catch {
    // The demo is busy or stopped: poll again.
  }
  setTimeout(() => void show(), pollEvery);
}

async function showTask(task: string, state: State, words: (state: State) => Node[]): Promise<void> {
  const figure = byId(`${task}-chart`);
  const version = `${state.total?.users} ${figure.clientWidth}`;
  if (!state.total || figure.dataset['version'] === version) return;
  figure.dataset['version'] = version;
  byId(task).replaceChildren(...words(state),
    html('p', { class: 'quiet' },
      `From ${number(state.total.users)} visits; (${atMost(state.epsilon)}, ${state.delta.toExponential()})-DP for each.`));
  const chart = await fetchChart(task, Math.max(260, figure.clientWidth));
  if (chart) figure.replaceChildren(chart);
}

/** Google's thresholds: good up to the first, poor above the second. */
const thresholds = { lcp: [2500, 4000], cls: [0.1, 0.25] } as const;

function paint(state: State): Node[] {
  const p75 = state.distribution?.quantiles.find((q) => q.p === 0.75);
  if (!p75) return [];
  return [
    html('p', { class: 'answer' }, html('b', {}, exact(p75.estimate)), ' ms is the 75th percentile'),
    html('p', { class: 'quiet' }, 'between ', exact(p75.interval[0]), ' and ', exact(p75.interval[1]), ' ms: ',
      verdict(p75, thresholds.lcp), '.'),
  ];
}

function shift(state: State): Node[] {
  const { estimate, interval } = entries(state.total!)[0]!;
  return [
    html('p', { class: 'answer' }, html('b', {}, exact(estimate)), ' is the mean shift'),
    html('p', { class: 'quiet' }, 'between ', exact(interval[0]), ' and ', exact(interval[1]), ': ',
      verdict({ estimate, interval }, thresholds.cls), '.'),
  ];
}

/** Rates the interval, such as "good". Names two ratings if its ends differ. */
function verdict({ interval }: Location, [good, poor]: readonly [number, number]): HTMLElement {
  const rate = (x: number) => (x <= good ? 'good' : x <= poor ? 'needs improvement' : 'poor');
  const [from, to] = interval.map(rate) as [string, string];
  return html('span', { class: 'verdict' }, from === to ? from : `${from}, or ${to}`);
}

void start().catch((error: unknown) => {
  byId('status').textContent = describeError(error);
});
