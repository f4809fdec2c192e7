/**
 * A cache of tasks and streams that were fetched from a relay and verified, so that later views need no request. It is
 * in the store of reports, not in the browser's HTTP cache: a relay could set validators that the browser sends back,
 * and recognize the browser by them.
 * @module
 */

import { type Bytes, toHex, utf8 } from './bytes.js';
import { sha256 } from './signature.js';
import type { Store } from './store.js';

/** The most documents in the cache, and the most bytes of all of them. */
export const maxDocuments = 16;
export const maxBytes = 32 << 20;

/** How long the cache keeps a document after its end, in milliseconds: reports of its last epoch may still be sent. */
const grace = 600_000;

/** The task names of the cache's two kinds of entries in the store; no task has them. An entry's `epoch` is its key. */
const index = 'kept';
const content = 'kept document';

interface Entry {
  readonly key: number;
  /** The document's name: "task" or "stream" and an id. */
  readonly name: string;
  /** The document's SHA-256, in hexadecimal. */
  readonly hash: string;
  readonly size: number;
  /** When the document was fetched, and when it is no longer needed, in Unix milliseconds. */
  readonly at: number;
  readonly end: number;
}

/** A document, and when it was fetched in Unix milliseconds. */
export interface CachedDocument {
  readonly bytes: Bytes;
  readonly at: number;
}

/** The cache of a site. Two tabs may write at once, so a document without the hash of its entry counts as absent. */
export class DocumentCache {
  constructor(readonly store: Store) {}

  /** Returns a document if it has the hash of its entry. */
  async get(name: string): Promise<CachedDocument | undefined> {
    const entry = (await this.#entries()).find((one) => one.name === name);
    if (!entry) return undefined;
    const bytes = (await this.store.sealed(content + entry.key))[0]?.body;
    return bytes && toHex(await sha256(bytes)) === entry.hash ? { bytes, at: entry.at } : undefined;
  }

  /** Adds a document and replaces an older one of the same name. Removes the oldest others if the cache is full. */
  async put(name: string, { bytes, at }: CachedDocument, end: number): Promise<void> {
    if (bytes.length > maxBytes) return;
    const hash = toHex(await sha256(bytes));
    const entries = await this.#entries();
    const others = entries.filter((one) => one.name !== name).sort((a, b) => a.at - b.at);
    const size = () => others.reduce((sum, one) => sum + one.size, bytes.length);
    while (others.length >= maxDocuments || size() > maxBytes) await this.#remove(others.shift()!);
    let key = 0; // the first free one; in a loop, because old libraries of a page replace Array.from
    while (others.some((one) => one.key === key)) key++;
    for (const old of entries) if (old.name === name && old.key !== key) await this.#remove(old);
    // The copy matters: a view into a larger buffer would store all of the buffer.
    await this.store.put({ task: content + key, epoch: 0, state: 'sealed', body: bytes.slice() });
    const entry: Omit<Entry, 'key'> = { name, hash, size: bytes.length, at, end };
    await this.store.put({ task: index, epoch: key, state: 'sealed', body: utf8(JSON.stringify(entry)) });
  }

  /** Lists the entries, and removes expired ones. */
  async #entries(): Promise<Entry[]> {
    const out: Entry[] = [];
    for (const { epoch: key, body } of await this.store.sealed(index)) {
      const entry = { ...JSON.parse(new TextDecoder().decode(body)), key } as Entry;
      if (entry.end + grace > Date.now()) out.push(entry);
      else await this.#remove(entry);
    }
    return out;
  }

  async #remove({ key }: Entry): Promise<void> {
    await this.store.put({ task: index, epoch: key, state: 'dropped' });
    await this.store.put({ task: content + key, epoch: 0, state: 'dropped' });
  }
}
