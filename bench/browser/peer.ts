/**
 * Makes one report with the peer, @divviup/dap: Prio3 in the Distributed Aggregation Protocol (DAP).
 * @module
 */

import { Task } from '@divviup/dap';

import type { Once } from './sample.js';

/** The peer's task and the value to report, by the kind in the rows' names. */
const tasks: Readonly<Record<string, readonly [spec: object, measurement: unknown]>> = {
  count: [{ type: 'count' }, true],
  sum16: [{ type: 'sum', bits: 16 }, 12345],
  histogram16: [{ type: 'histogram', length: 16, chunkLength: 4 }, 3],
  histogram256: [{ type: 'histogram', length: 256, chunkLength: 16 }, 3],
  vector1000: [{ type: 'sumVec', length: 1000, bits: 1, chunkLength: 32 }, Array(1000).fill(0)],
};

/** Returns a task whose two aggregators are at the address `base`. */
function connect(name: string, base: string): { task: any; measurement: unknown } {
  const [spec, measurement] = tasks[name]!;
  const id = 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA';
  const parameters = { id, leader: `${base}/leader`, helper: `${base}/helper`, timePrecisionSeconds: 3600, ...spec };
  return { task: new Task(parameters as any), measurement };
}

/** Returns a function that makes one report. Its first call fetches the aggregators' keys. */
export function prepare(name: string, base: string): Once {
  const { task, measurement } = connect(name, base);
  return async () => (await task.generateReport(measurement)).encode().length;
}

export async function send(name: string, base: string): Promise<void> {
  const { task, measurement } = connect(name, base);
  await task.sendMeasurement(measurement);
}
