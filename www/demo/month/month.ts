/**
 * The page of a site's month: the results of five questions over thirty days under one budget.
 * @module
 */

import { byId, html } from '../dom.js';
import { themeButton } from '../theme.js';
import { atMost, exact, number, oneIn, percent } from '../format.js';
import { showBudget } from './budget.js';
import { type List, type Month, fetchChart, fetchMonth } from './data.js';
import { barTable, head, numberRow } from './lists.js';
import { showSpeed } from './speed.js';

/** How many pages the list shows with bars: about as many as fit on a screen. */
const shownPages = 20;

/**
 * The minimum width of a chart in pixels. The demo draws a chart for its actual width, so that its text keeps its size.
 */
const narrowest = 260;

async function drawCharts(): Promise<void> {
  await Promise.all([...document.querySelectorAll<HTMLElement>('figure[data-chart]')].map(async (figure) => {
    const width = Math.max(narrowest, figure.clientWidth);
    if (figure.dataset['width'] === String(width)) return;
    figure.dataset['width'] = String(width);
    figure.replaceChildren(await fetchChart(figure.dataset['chart']!, width));
  }));
}

function showVisits({ visits, reports_per_question: reports }: Month): void {
  const { total, days } = visits;
  byId('visits-answer').append(
    html('p', { class: 'answer' }, html('b', {}, exact(total.estimate)), ' visits stayed'),
    html('p', { class: 'quiet' }, 'for ten seconds or for a second page: between ', exact(total.interval[0]), ' and ',
      exact(total.interval[1]), `. ${number(reports)} devices reported, which is exact: that a device took part is not hidden. How its visit went is.`));
  byId('visits').append(head('day', 'reports', 'visits', 'from', 'to', 'truth'),
    html('tbody', {}, ...days.map((day) => numberRow(day, day.reports))));
}

function showList(id: 'pages' | 'referrers' | 'countries', what: string, list: List, most: number): void {
  const hidden = list.entries.length - list.seen;
  byId(`${id}-note`).append('Where the day’s first visit ',
    { pages: 'began', referrers: 'came from', countries: 'was made' }[id], `. ${number(list.seen)} of ${number(list.entries.length)} are above the noise floor of `,
    exact(list.noise_floor), ' visits, all at once with 95 % confidence', hidden > 0
      ? `; of the other ${number(hidden)} nothing shows that they are anybody’s.` : '.');
  byId(id).append(barTable(list, what, most));
}

/** Builds the table of all pages only when a visitor opens it, because it has a thousand rows. */
function showAllPages(list: List): void {
  const all = byId<HTMLDetailsElement>('pages-all');
  all.addEventListener('toggle', () => {
    all.querySelector('table')!.replaceChildren(head('page', 'visits', 'from', 'to', 'truth'),
      html('tbody', {}, ...list.entries.map((entry) => numberRow(entry))));
  }, { once: true });
}

function showMade(month: Month): void {
  const { days, month: whole } = month.coverage;
  const of = ({ held, intervals }: { held: number; intervals: number }) =>
    `${number(held)} of ${number(intervals)} (${percent(held / intervals)})`;
  byId('coverage').textContent = `Of the 95 % intervals of single days ${of(days)} hold the truth; of those of the whole month ${of(whole)}.`;
  byId('made').textContent = month.made;
  byId('command').textContent = `make demo ARGS="--headless --month --seed ${month.seed}"`;
}

async function start(): Promise<void> {
  themeButton();
  const status = byId('status');
  const progress = byId<HTMLProgressElement>('progress');
  try {
    const month = await fetchMonth((share) => {
      progress.value = share;
      status.textContent = `Simulating the month… ${percent(share)}`;
    });
    showVisits(month);
    showList('pages', 'page', month.pages, shownPages);
    showAllPages(month.pages);
    showList('referrers', 'referrer', month.referrers, Infinity);
    showList('countries', 'country', month.countries, Infinity);
    showSpeed(month);
    showBudget(month);
    showMade(month);
    byId('month').hidden = false;
    progress.hidden = true;
    const { budget } = month;
    status.textContent = `${month.from} to ${month.to}: all of it is (ε = ${atMost(budget.composed_epsilon)}, δ = ${oneIn(budget.delta)}) private for a visitor who came every day. Simulated in ${number(month.elapsed_seconds)} s.`;
    await drawCharts();
    addEventListener('resize', () => void drawCharts().catch(() => undefined)); // The next resize retries.
  } catch (error) {
    progress.hidden = true;
    status.classList.add('bad');
    status.textContent = String(error);
  }
}

void start();
