import { connect } from 'doona';

import task from '../.doona/task.json'; // `npx doona dev` writes it. In production: the task, its owner's key and a budget.

let doona;

/** Reports a value. All components share the page's one connection. */
export async function report(value) {
  doona ??= connect(task);
  return (await doona).report(value);
}
