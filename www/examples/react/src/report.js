import { connect } from 'doona';

import task from '../.doona/task.json'; // Of `npx doona dev`. In earnest: the task, its owner's key and a budget.

let doona;

/** Reports a value. One connection serves the page, whatever components come and go. */
export async function report(value) {
  doona ??= connect(task);
  return (await doona).report(value);
}
