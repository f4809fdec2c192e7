import { init } from 'doona';

import task from '../.doona/task.json'; // `npx doona dev` writes it. In production: the task, its owner's key and a budget.

let doona;

/** Reports a value. All components share the page's one client. Nothing is thrown: errors go to the option onError. */
export function report(value) {
  doona ??= init({ ...task, debug: true });
  doona.report(value);
}
