/**
 * Shows the released results as a sentence, a chart and a table. The table also serves visitors who cannot see a chart.
 * @module
 */

import { byId, html } from './dom.js';
import { queries } from './queries.js';
import { type OwnReport, batchFill } from './stages.js';
import { type Entry, type Row, type State, answers, entries, fetchChart } from './state.js';
import { exact, number, percent } from './format.js';

/**
 * The minimum width of a chart in pixels. The demo draws a chart for its actual width, so that its text keeps its size.
 */
const narrowest = 260;

/** Shows how many reports the batch with this person's report has. */
export function showFilling(state: State, own: OwnReport): void {
  const waits = own.progress === 'sent' || own.progress === 'filling';
  byId('filling').hidden = !waits;
  if (!waits) return;
  byId('empty').hidden = true;
  const reports = batchFill(state, own);
  const bar = byId<HTMLProgressElement>('filled');
  [bar.max, bar.value] = [state.batch, reports];
  byId('filling-text').textContent = reports < state.batch
    ? `Your batch has ${number(reports)} of ${number(state.batch)} reports. It is opened when it is full.`
    : `Your batch is full: ${number(state.batch)} reports. The relays shuffle it, and the verifier adds it up.`;
}

/** Redraws the results if there are new results or the chart's width has changed. */
export async function showHistory(task: string, state: State): Promise<void> {
  const figure = byId('chart');
  const width = Math.max(narrowest, figure.clientWidth);
  const version = `${state.history.length} ${state.total?.users} ${width}`;
  if (!state.total || figure.dataset['version'] === version) return;
  figure.dataset['version'] = version;
  const chart = await fetchChart(task, width);
  if (chart) figure.replaceChildren(chart);
  byId('answer').replaceChildren(...answerNodes(state, state.total));
  byId('table').replaceChildren(
    html('thead', {}, html('tr', {}, ...columnNames(state).map((text) => html('th', { scope: 'col' }, text)))),
    html('tbody', {}, ...tableRows(state, state.total)),
  );
  byId('empty').hidden = true;
  const texts = asksTexts(state);
  if (texts && byId('numbers').hidden) byId<HTMLDetailsElement>('numbers').open = true;
  for (const id of ['answer', 'numbers']) byId(id).hidden = false;
  byId('legend').hidden = texts;
}

/** Whether the query asks for texts. Then the page shows a table and no chart. */
function asksTexts(state: State): boolean {
  return queries[state.query].shape === 'texts';
}

function isList(state: State): boolean {
  return asksTexts(state) || Array.isArray(state.total?.estimate);
}

/** Returns the estimate over all epochs as sentences. */
function answerNodes(state: State, total: Row): Node[] {
  const list = answers(state, total);
  const from = `${number(total.users)} reports in ${state.history.length === 1 ? 'one epoch' : `${number(state.history.length)} epochs`}`;
  if (isList(state)) {
    const hits = list.filter((e) => e.interval[0] <= e.truth && e.truth <= e.interval[1]).length;
    return [
      html('p', { class: 'answer' }, `The ${state.measure}, from ${from}.`),
      html('p', { class: 'quiet' },
        `${hits} of the ${list.length} intervals hold the truth of the simulated clients; about 1 in 20 may miss it.`),
      ...median(state),
      ...(state.about_texts ? [html('p', { class: 'quiet' }, state.about_texts)] : []),
    ];
  }
  const e = list[0]!;
  const { yesNo } = queries[state.query];
  const of = yesNo ? ` of ${number(total.users)}` : '';
  const share = yesNo ? ` (${percent(Math.min(1, Math.max(0, e.estimate / total.users)))})` : '';
  return [
    html('p', { class: 'answer' }, html('b', {}, exact(e.estimate)), `${of} ${state.answer_unit}`),
    html('p', { class: 'quiet' },
      `is the estimate of the ${state.measure}${share}, from ${from}: between `, exact(e.interval[0]), ' and ',
        exact(e.interval[1]),
      '. The truth of the simulated clients is ', exact(e.truth), '.'),
  ];
}

/** Returns a sentence about the median of a histogram's values. */
function median(state: State): Node[] {
  const median = state.distribution?.quantiles.find((q) => q.p === 0.5);
  if (!median) return [];
  return [html('p', { class: 'quiet' }, 'The median is about ', exact(median.estimate), ` ${state.unit}, between `,
    exact(median.interval[0]), ' and ', exact(median.interval[1]), '.')];
}

function columnNames(state: State): string[] {
  return [isList(state) ? state.axis : 'epoch', ...(isList(state) ? [] : ['reports']), 'estimate', 'from', 'to',
    'truth'];
}

/**
 * Returns one table row per entry if the answer has several. For a single number: a row for all epochs, then one per
 * epoch, newest first.
 */
function tableRows(state: State, total: Row): HTMLElement[] {
  const names = asksTexts(state) ? state.texts.map((found) => found.text) : state.entries;
  if (isList(state)) return answers(state, total).map((e, i) => tableRow(names[i] ?? String(i), null, e));
  const rows = [...state.history].reverse().map((row) => tableRow(String(row.epoch), row.users, entries(row)[0]!));
  return rows.length > 1 ? [tableRow('all', total.users, entries(total)[0]!), ...rows] : rows;
}

function tableRow(name: string, users: number | null, e: Entry): HTMLElement {
  const cells = [...(users === null ? [] : [users]), e.estimate, ...e.interval, e.truth];
  return html('tr', {}, html('th', { scope: 'row' }, name), ...cells.map((x) => html('td', {}, exact(x))));
}
