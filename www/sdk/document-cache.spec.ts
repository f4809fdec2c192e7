/**
 * Tests that the document cache stays within its limits, returns only documents that were put into it, and removes
 * expired ones.
 * @module
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { Bytes } from './bytes.js';
import { DocumentCache, maxBytes, maxDocuments } from './document-cache.js';
import type { Report, Store } from './store.js';
import { memoryStore } from './store-memory.js';

const later = Date.now() + 3_600_000;

/** Returns a store, and a function that lists the entries in it that have a body. */
function watched(): { store: Store; all: () => Report[] } {
  const inner = memoryStore();
  const reports = new Map<string, Report>();
  const store = { ...inner, put: async (report: Report) => {
    reports.set(`${report.task}/${report.epoch}`, report);
    await inner.put(report);
  } };
  return { store, all: () => [...reports.values()].filter(({ body }) => body) };
}

const document = (size: number, at: number, content = at): { bytes: Bytes; at: number } =>
  ({ bytes: new Uint8Array(size).fill(content), at });

test('the cache returns the newest document of a name and nothing else', async () => {
  const { store, all } = watched();
  const kept = new DocumentCache(store);
  await kept.put('task a', document(5, 1), later);
  await kept.put('task b', document(6, 2), later);
  await kept.put('task a', document(7, 3), later);
  assert.deepEqual(await new DocumentCache(store).get('task a'), document(7, 3));
  assert.deepEqual(await kept.get('task b'), document(6, 2));
  assert.equal(await kept.get('stream a'), undefined);
  assert.equal(all().length, 4, 'two documents, and an entry for each');
});

test('a document with another hash than its entry counts as absent', async () => {
  const { store, all } = watched();
  const kept = new DocumentCache(store);
  await kept.put('task a', document(5, 1), later);
  const [content] = all().filter(({ body }) => body!.length === 5);
  await store.put({ ...content!, body: new Uint8Array(5) });
  assert.equal(await kept.get('task a'), undefined);
  await kept.put('task a', document(5, 2), later);
  assert.deepEqual(await kept.get('task a'), document(5, 2));
});

test('the cache removes the oldest documents if there are too many, or too many bytes', async () => {
  const { store, all } = watched();
  const kept = new DocumentCache(store);
  for (let at = 0; at <= maxDocuments; at++) await kept.put(`task ${at}`, document(3, at), later);
  assert.equal(await kept.get('task 0'), undefined);
  for (let at = 1; at <= maxDocuments; at++) assert.deepEqual(await kept.get(`task ${at}`), document(3, at));
  assert.equal(all().length, 2 * maxDocuments);

  await kept.put('large', document(maxBytes, 99), later);
  assert.deepEqual(await kept.get('large'), document(maxBytes, 99));
  assert.equal(all().length, 2);
  await kept.put('too large', document(maxBytes + 1, 100), later);
  assert.equal(await kept.get('too large'), undefined);
  assert.equal(all().length, 2, 'a document above the limit must not push out others');
});

test('any look-up removes documents ten minutes after their end', async (t) => {
  const { store, all } = watched();
  const kept = new DocumentCache(store);
  const now = Date.now();
  await kept.put('task a', document(5, 1), now);
  t.mock.method(Date, 'now', () => now + 599_999);
  assert.deepEqual(await kept.get('task a'), document(5, 1));
  t.mock.method(Date, 'now', () => now + 600_000);
  assert.equal(await kept.get('task b'), undefined);
  assert.deepEqual(all(), []);
});
