/**
 * Tests that requests to relays and issuers bypass the browser's cache, send no cookies and follow no redirects.
 * test/again.test.mjs checks the first two in a restarted browser.
 * @module
 */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { type TestContext, test } from 'node:test';

import * as blind from './blind.js';
import { type Bytes, fromHex } from './bytes.js';
import { connect } from './connect.js';
import { sha256 } from './signature.js';
import { memoryStore } from './store-memory.js';
import { submit } from './submit.js';
import { parseTask } from './task.js';
import { fetchToken } from './token.js';

const [vector]: any[] = JSON.parse(readFileSync('../testdata/v1/token.json', 'utf8'));
const hex = (text: string): Bytes => fromHex(text, text.length / 2)!;
const relay = 'https://relay.test/v1';
const [id, owner] = ['00'.repeat(32), `ed25519:${'A'.repeat(43)}`];
const headers = { 'Content-Type': 'application/problem+json' };
const page = { owner, budget: { epsilon: 1, delta: 1, days: 1 }, store: memoryStore() };

/** Asks an issuer for its directory, and then for a token, which the issuer refuses. */
async function askForToken(): Promise<void> {
  const canonical = hex(vector.task);
  await fetchToken({ id: await sha256(canonical), idText: id, task: parseTask(canonical), epoch: vector.epoch,
    keyId: await sha256(hex(vector.key)), source: undefined }, Promise.resolve(blind));
}

/** Runs a call, refuses all its requests, and returns them. */
async function requests(t: TestContext, ask: () => Promise<unknown>): Promise<string[]> {
  const [asked, how] = [[] as string[], new Set<string>()];
  t.mock.method(globalThis, 'fetch', async (url: string | URL, init: RequestInit = {}) => {
    const { pathname } = new URL(url);
    if (!pathname.startsWith('/v1/')) return new Response(null, { status: 404 }); // the SDK's own files
    const { method = 'GET', cache, credentials, redirect, referrerPolicy } = init;
    asked.push(`${method} ${pathname.replace(/^.*\/(issuer|token)/, '$1')}`);
    how.add(`${cache} ${credentials} ${redirect} ${referrerPolicy}`);
    if (pathname.endsWith('directory')) return new Response(vector.directory);
    return new Response('{"type":"urn:doona:error:malformed"}', { status: 400, headers });
  });
  await assert.rejects(ask());
  assert.deepEqual([...how], ['no-store omit manual no-referrer']);
  return asked;
}

test('a task: no cache, no cookies, no redirect', async (t) => {
  const ask = () => connect({ ...page, task: `${relay}/tasks/${id}` });
  assert.deepEqual(await requests(t, ask), [`GET /v1/tasks/${id}`]);
});

test('a stream: no cache, no cookies, no redirect', async (t) => {
  const ask = () => connect({ ...page, stream: `${relay}/streams/${id}` });
  assert.deepEqual(await requests(t, ask), [`GET /v1/streams/${id}`]);
});

test('a report: no cache, no cookies, no redirect', async (t) => {
  assert.deepEqual(await requests(t, () => submit(`${relay}/report`, new Uint8Array(9))), ['POST /v1/report']);
});

test('a token: no cache, no cookies, no redirect', async (t) => {
  assert.deepEqual(await requests(t, askForToken), ['GET issuer-directory', 'POST token-request']);
});
