/**
 * Draws practice messages, which show the effect of the local randomizer. doona-small.wasm, which also draws the real
 * message, draws them for the picked value. The page never sends them. Nobody learns whether the real message is
 * random.
 * @module
 */

import { parseBundle } from '../sdk/bundle.js';
import { modules } from '../sdk/files.js';
import { moduleURL } from '../sdk/load.js';
import { Module } from '../sdk/module.js';
import type { State } from './state.js';

/** The number of practice messages that are drawn for a value. */
export const draws = 200;

/** Draws practice messages. */
export interface Practice {
  /** The number of different messages (symbols) of the protocol. */
  readonly symbols: number;
  /** Draws practice messages for a value. Returns the share of each symbol among them. */
  draw(value: number | readonly number[]): readonly number[];
}

/**
 * Resolves to null if a message of the task's protocol is not one symbol. Rejects if this device cannot run
 * doona-small.wasm.
 */
export async function startPractice(state: State): Promise<Practice | null> {
  if (state.protocol !== 'histogram' && state.protocol !== 'realsum') return null;
  const { integrity } = modules.small;
  const [response, compiled] = await Promise.all([
    fetch(state.task_url, { credentials: 'omit', cache: 'no-store' }),
    WebAssembly.compileStreaming(fetch(moduleURL('small'), { integrity })),
  ]);
  const module = await Module.start(compiled);
  const { canonical, task } = parseBundle(new Uint8Array(await response.arrayBuffer()));
  const handle = module.open(canonical);
  const symbols = task.protocol === 'histogram' ? task.input.bins : Number(task.params.get('k')!) + 1;
  const draw = (value: number | readonly number[]) => {
    const counts = new Array<number>(symbols).fill(0);
    const vector = Float64Array.from(typeof value === 'number' ? [value] : value);
    for (let i = 0; i < draws; i++) {
      const slot = module.randomize(handle, vector, 1 + task.slots.messageBytes)[0]![0]!;
      const symbol = slot.subarray(1).reduce((y, byte) => 256 * y + byte, 0);
      counts[symbol]!++;
    }
    return counts.map((count) => count / draws);
  };
  return { symbols, draw };
}
