/**
 * The protocols by name (docs/SPEC.md, section 11).
 * @module
 */

import { augmented } from './augmented.ts';
import { correlated } from './correlated.ts';
import { rappor } from './rappor.ts';
import { histogram, realsum, vectorgrid } from './response.ts';
import type { Source } from './source.ts';
import { splitmix } from './splitmix.ts';
import type { Task } from './task.ts';
import type { Lanes, Protocol } from './values.ts';
import { strings } from './strings.ts';
import { vectormean } from './vectormean.ts';
import { vectorsum } from './vectorsum.ts';

const protocols: Record<string, (task: Task) => Protocol> = {
  histogram, realsum, splitmix, correlated, rappor, vectorsum, vectorgrid, vectormean, augmented, strings,
};

export function open(task: Task): Protocol {
  return protocols[task.protocol]!(task);
}

/** Pads a client's messages with covers and shuffles them (sections 6 and 10). An empty message is a cover. */
export function slotsOf(task: Task, source: Source, messages: Lanes): Lanes {
  return messages.map((lane) => {
    const slots = [...lane];
    const least = task.padding === 'full' ? Number(task.perLane) : 1;
    while (slots.length < least) slots.push(new Uint8Array());
    return source.shuffle(slots);
  });
}
