/**
 * Shows how much privacy budget the month costs a visitor: by question, by day, and in total.
 * @module
 */

import { byId, html } from '../dom.js';
import { exact, exactAtMost, number, oneIn } from '../format.js';
import type { Month } from './data.js';
import { head } from './lists.js';

export function showBudget({ budget }: Month): void {
  const { questions, days } = budget;
  byId('budget-answer').append(
    html('p', { class: 'answer' }, 'ε = ', html('b', {}, exactAtMost(budget.composed_epsilon)),
      ` of ${number(budget.epsilon)} for all ${questions.length * days.length} answers together, δ = ${oneIn(budget.delta)}`),
    html('p', { class: 'quiet' },
      'All questions were fixed before the first day, so their laws compose as one. Composed question by question and then added up it would be ',
      exactAtMost(budget.each_composed), '; adding up what every question claims for every day gives ',
      exactAtMost(budget.epsilon_sum),
      `. The promise holds if ${budget.needs}.`));
  const row = (name: string, ...cells: (Node | string)[]) => html('tr', {}, html('th', { scope: 'row' }, name),
    ...cells.map((cell) => html('td', {}, cell)));
  byId('budget').append(head('question', 'weight', 'ε a day', 'ε of the month, composed', 'added up'),
    html('tbody', {}, ...questions.map((of) => row(of.name, exact(of.weight), exactAtMost(of.epsilon),
      exactAtMost(of.composed_epsilon), exactAtMost(of.epsilon_sum)))),
    html('tfoot', {}, row('all together', '', exactAtMost(questions.reduce((sum, of) => sum + of.epsilon, 0)),
      exactAtMost(budget.composed_epsilon), exactAtMost(budget.epsilon_sum))));
  byId('spent').append(head('after day', 'ε composed', 'ε added up'), html('tbody', {},
    ...days.map((day) => row(String(day.day), exactAtMost(day.composed_epsilon), exactAtMost(day.epsilon_sum)))));
}
