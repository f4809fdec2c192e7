/**
 * What was fetched from a relay and verified is kept, so that no later view asks for it. It lies in the store of
 * reports, not in the browser's HTTP cache: what a relay says to that cache comes back to it, and would tell it which
 * browser asks.
 * @module
 */

import { type Bytes, toHex, utf8 } from './bytes.js';
import { sha256 } from './signature.js';
import type { Store } from './store.js';

/** The most documents that are kept, and the most bytes of all. */
export const maxDocuments = 16;
export const maxBytes = 32 << 20;

/** How long after its end a document is kept, in milliseconds: reports of the last epoch may still be on their way. */
const grace = 600_000;

/** The names of two kinds of entries in the store, which no task has; `epoch` is the place of a document. */
const index = 'kept';
const content = 'kept document';

interface Entry {
  readonly place: number;
  /** What it is. */
  readonly name: string;
  /** SHA-256, in hexadecimal. */
  readonly hash: string;
  readonly size: number;
  /** When it was fetched, and from when on nothing needs it, in milliseconds. */
  readonly at: number;
  readonly end: number;
}

/** A document as it was fetched. */
export interface CachedDocument {
  readonly bytes: Bytes;
  readonly at: number;
}

/** The kept documents of a site. Two tabs may write at one time: what does not have its hash is as good as absent. */
export class DocumentCache {
  constructor(readonly store: Store) {}

  /** Returns a document, if it still is what was kept. */
  async get(name: string): Promise<CachedDocument | undefined> {
    const entry = (await this.#entries()).find((one) => one.name === name);
    if (!entry) return undefined;
    const bytes = (await this.store.sealed(content + entry.place))[0]?.body;
    return bytes && toHex(await sha256(bytes)) === entry.hash ? { bytes, at: entry.at } : undefined;
  }

  /** Keeps a document in the place of an older one of the name; the longest kept of others give way. */
  async put(name: string, { bytes, at }: CachedDocument, end: number): Promise<void> {
    if (bytes.length > maxBytes) return;
    const hash = toHex(await sha256(bytes));
    const entries = await this.#entries();
    const others = entries.filter((one) => one.name !== name).sort((a, b) => a.at - b.at);
    const size = () => others.reduce((sum, one) => sum + one.size, bytes.length);
    while (others.length >= maxDocuments || size() > maxBytes) await this.#remove(others.shift()!);
    let key = 0; // the first free one; by a loop, as old libraries on a page replace Array.from
    while (others.some((one) => one.place === key)) key++;
    for (const old of entries) if (old.name === name && old.place !== key) await this.#remove(old);
    // A part of a larger buffer would be kept with all of it.
    await this.store.put({ task: content + key, epoch: 0, state: 'sealed', body: bytes.slice() });
    const entry: Omit<Entry, 'place'> = { name, hash, size: bytes.length, at, end };
    await this.store.put({ task: index, epoch: key, state: 'sealed', body: utf8(JSON.stringify(entry)) });
  }

  /** Lists what is kept, and removes what is over. */
  async #entries(): Promise<Entry[]> {
    const out: Entry[] = [];
    for (const { epoch: place, body } of await this.store.sealed(index)) {
      const entry = { ...JSON.parse(new TextDecoder().decode(body)), place } as Entry;
      if (entry.end + grace > Date.now()) out.push(entry);
      else await this.#remove(entry);
    }
    return out;
  }

  async #remove({ place }: Entry): Promise<void> {
    await this.store.put({ task: index, epoch: place, state: 'dropped' });
    await this.store.put({ task: content + place, epoch: 0, state: 'dropped' });
  }
}
