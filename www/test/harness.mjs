// What the browser tests share: the test server, Chromium, and pages that fail a test when the
// page's policy is violated or anything is written to the console.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

import { chromium } from 'playwright-core';

/** @typedef {{task: string, owner: string}} Offer */
/**
 * @typedef {{path: string, epoch: number, body: string, answer: string, messages: string[][],
 *   error: string, header: Record<string, string[]>}} Submission
 */

const root = fileURLToPath(new URL('../..', import.meta.url));

/** Launches Debian's Chromium; CHROMIUM names another. */
export function launch() {
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
      '--disable-background-networking', '--disable-component-update', '--disable-sync'],
  });
}

/**
 * Starts a program that lives until its standard input ends, and returns its first line.
 * @param {string} file
 * @param {string[]} args
 */
export async function startServer(file, args = []) {
  const child = spawn(file, args, { cwd: root, stdio: ['pipe', 'pipe', 'inherit'] });
  const lines = createInterface(child.stdout);
  const [line] = await Promise.race([
    once(lines, 'line'),
    once(child, 'exit').then(() => assert.fail(`${file} ended before it was ready`)),
  ]);
  return { line: String(line), stop: () => child.stdin.end() };
}

/** Starts www/testserver. */
export async function startTestServer() {
  const { line, stop } = await startServer('build/testserver');
  /** @type {{site: string, relay: string, tasks: Record<string, Offer>}} */
  const offers = JSON.parse(line);
  const control = (/** @type {string} */ name, /** @type {unknown} */ body) =>
    fetch(`${offers.site}/test/${name}`, { method: 'POST', body: JSON.stringify(body) });
  return {
    ...offers,
    stop,
    /** @returns {Promise<Submission[]>} what arrived since the last call */
    take: async () => (await control('take', null)).json(),
    /** Answers the next submissions with errors. @param {string[]} names */
    fail: (...names) => control('fail', names),
  };
}

/**
 * Opens a page in a context and records every violation and console message.
 * @param {import('playwright-core').BrowserContext} context
 * @param {string} url
 */
export async function open(context, url) {
  const page = await context.newPage();
  /** @type {string[]} */
  const complaints = [];
  page.on('console', (message) => complaints.push(message.text()));
  page.on('pageerror', (error) => complaints.push(String(error)));
  await page.addInitScript(() => {
    addEventListener('securitypolicyviolation', (event) => {
      console.error(`violated ${event.violatedDirective}: ${event.blockedURI}`);
    });
  });
  await page.goto(url);
  return { page, complaints };
}
