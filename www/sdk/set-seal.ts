/**
 * Seals the submissions of a set (docs/SPEC.md, section 15). A submission has one slot for each table, sealed under the
 * table's own task and epoch, and one envelope under the set's id, sealed to the first relay's key of the first table.
 * @module
 */

import type { Keys } from './bundle.js';
import type { Bytes } from './bytes.js';
import { importKey, seal } from './hpke.js';
import { tagSize } from './module.js';
import { array, bin, uint } from './msgpack.js';
import { type Hop, aadOf, infoOf, sealSlot } from './seal.js';
import { version } from './task.js';

/** The kind of plaintext of a set's envelope. */
export const kindSet = 2;

/** What seals a table's slot on a day. */
export interface TableKeys {
  /** The id of the table's task. */
  readonly id: Bytes;
  /** The table's epoch on the day. */
  readonly epoch: number;
  /** The keys of the block that contains the epoch. */
  readonly keys: Keys;
}

/** Returns how many tags a day's submissions have: the envelope's, and for each table one for each hop from 1 on. */
export function tagsOf(tables: number, hops: number): number {
  return 1 + tables * hops;
}

/** Seals the submissions of one day of a set. */
export class SetSealer {
  readonly #envelope: Promise<Hop>;
  /** The hops of each table. Hop 0 is there only so that the others have their number. */
  readonly #tables: readonly Promise<readonly Hop[]>[];

  /** @param id the set's id @param day the epoch of the first table */
  constructor(id: Bytes, day: number, tables: readonly TableKeys[]) {
    const first = tables[0]!.keys;
    this.#envelope = hopOf(id, day, 0, first.hops[0]![day - first.first]!);
    this.#tables = tables.map(({ id: task, epoch, keys }) => {
      const at = epoch - keys.first;
      return Promise.all(keys.hops.map((all, hop) => (hop === 0 ? this.#envelope : hopOf(task, epoch, hop, all[at]!))));
    });
    for (const waiting of [this.#envelope, ...this.#tables]) waiting.catch(() => {}); // submission() awaits them.
  }

  /** Seals a table's slot. The drafts of a day share their tags. @throws Error if a key cannot be sealed to */
  async slot(table: number, plain: Bytes, tags: Bytes): Promise<Bytes> {
    const hops = await this.#tables[table]!;
    const from = tagSize * table * (hops.length - 1); // Hop 1's tag is one further: the first tag is the envelope's.
    return sealSlot(hops, 0, plain, tags.subarray(from));
  }

  /** Returns the body to post, with the sealed slots of all tables. @throws Error if the key cannot be sealed to */
  async submission(slots: readonly Bytes[], tags: Bytes): Promise<Bytes> {
    const content = array([bin(tags.subarray(0, tagSize)), array(slots.map(bin))]);
    const { key, info } = await this.#envelope;
    return array([uint(version), bin(await seal(key, info, aadOf(0, kindSet), content))]);
  }
}

async function hopOf(id: Bytes, epoch: number, hop: number, serialized: Bytes): Promise<Hop> {
  return { key: await importKey(serialized), info: await infoOf(id, epoch, hop, serialized) };
}
