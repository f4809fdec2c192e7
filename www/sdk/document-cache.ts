/**
 * A cache of verified tasks and streams, so that later page views need no request to the relay. The cache is in the
 * SDK's store, not in the browser's HTTP cache. A relay could put validators (ETag) into the HTTP cache and recognize
 * the browser when it sends them back.
 * @module
 */

import { type Bytes, toHex, utf8 } from './bytes.js';
import { sha256 } from './signature.js';
import type { Store } from './store.js';

/** The limits of the cache: the number of documents, and their total size in bytes. */
export const maxDocuments = 16;
export const maxBytes = 32 << 20;

/**
 * How long the cache keeps a document after its last epoch, in milliseconds: reports of that epoch may still be sent.
 */
const grace = 600_000;

/**
 * The cache stores its two kinds of entries as reports, with these words as task ids; no task has such an id. An index
 * entry's `epoch` is its key.
 */
const index = 'kept';
const content = 'kept document';

interface Entry {
  readonly key: number;
  /** The document's name: "task" or "stream" and an id. */
  readonly name: string;
  /** The document's SHA-256, in hexadecimal. */
  readonly hash: string;
  readonly size: number;
  /** When the document was fetched (`at`), and when it is no longer needed (`end`), in Unix milliseconds. */
  readonly at: number;
  readonly end: number;
}

/** A document, and when it was fetched (`at`), in Unix milliseconds. */
export interface CachedDocument {
  readonly bytes: Bytes;
  readonly at: number;
}

/**
 * The document cache of a site. Two tabs may write at the same time, so a document whose hash differs from its entry
 * counts as absent.
 */
export class DocumentCache {
  constructor(readonly store: Store) {}

  /** Returns a document; undefined if there is none or its hash is wrong. */
  async get(name: string): Promise<CachedDocument | undefined> {
    const entry = (await this.#entries()).find((one) => one.name === name);
    if (!entry) return undefined;
    const bytes = (await this.store.sealed(content + entry.key))[0]?.body;
    return bytes && toHex(await sha256(bytes)) === entry.hash ? { bytes, at: entry.at } : undefined;
  }

  /**
   * Adds a document and replaces an older one of the same name. If the cache is full, it removes the oldest other
   * documents.
   */
  async put(name: string, { bytes, at }: CachedDocument, end: number): Promise<void> {
    if (bytes.length > maxBytes) return;
    const hash = toHex(await sha256(bytes));
    const entries = await this.#entries();
    const others = entries.filter((one) => one.name !== name).sort((a, b) => a.at - b.at);
    const size = () => others.reduce((sum, one) => sum + one.size, bytes.length);
    while (others.length >= maxDocuments || size() > maxBytes) await this.#remove(others.shift()!);
    let key = 0; // the first free key; a loop, because old libraries replace Array.from
    while (others.some((one) => one.key === key)) key++;
    for (const old of entries) if (old.name === name && old.key !== key) await this.#remove(old);
    // Copies the bytes: for a view into a larger buffer, IndexedDB would store the whole buffer.
    await this.store.put({ task: content + key, epoch: 0, state: 'sealed', body: bytes.slice() });
    const entry: Omit<Entry, 'key'> = { name, hash, size: bytes.length, at, end };
    await this.store.put({ task: index, epoch: key, state: 'sealed', body: utf8(JSON.stringify(entry)) });
  }

  /** Lists the entries that have not expired, and removes the others. */
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
