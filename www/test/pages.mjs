// Functions that the tests of pages share: they take screenshots, check accessibility and layout, and compare numbers.
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

import { long } from './harness.mjs';

/** @typedef {import('playwright-core').Page} Page */

/** The folder for screenshots. www/screenshots.mjs turns four of them into docs/images. */
export const shots = new URL('../../build/screenshots/', import.meta.url).pathname;
mkdirSync(shots, { recursive: true });

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** @param {string} url of the demo @param {string} [task] @returns {Promise<any>} the state of a task */
export async function stateOf(url, task = 'live') {
  return (await fetch(`${url}/api/${task}`)).json();
}

/**
 * Fails if axe-core finds a serious or critical accessibility violation in the given colors. Pages of a kind share a
 * style sheet, so only one of each kind is checked in both colors; the long form checks all in both.
 * @param {Page} page
 * @param {...('light' | 'dark')} colors
 */
export async function requireAccessible(page, ...colors) {
  await page.evaluate(axe); // evaluated by the debugger, because the page's policy forbids this script
  for (const colorScheme of long ? /** @type {const} */ (['light', 'dark']) : colors) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    const found = await page.evaluate(async () => {
      // @ts-expect-error axe is a global of the script above
      const { violations } = await axe.run(document, { resultTypes: ['violations'] });
      return violations
        .filter((/** @type {any} */ v) => v.impact === 'serious' || v.impact === 'critical')
        .map((/** @type {any} */ v) => `${v.id}: ${v.nodes.map((/** @type {any} */ n) => n.html).join(' | ')}`.slice(0,
          600));
    });
    assert.deepEqual(found, [], `${page.url()} in ${colorScheme} colors`);
  }
}

/**
 * Saves a screenshot of the whole page. Fails if the page is wider than its window.
 * @param {Page} page
 * @param {string} name
 */
export async function screenshot(page, name) {
  const [wide, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(wide <= window, `${name} is ${wide} px wide in a window of ${window} px`);
  await page.screenshot({ path: `${shots}${name}.png`, fullPage: true, animations: 'disabled' });
}

/**
 * Saves a screenshot of the page in the given width and colors.
 * @param {Page} page
 * @param {string} name
 * @param {number} width
 * @param {'light' | 'dark'} colorScheme
 */
export async function screenshotAt(page, name, width, colorScheme) {
  await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
  await page.setViewportSize({ width, height: 900 });
  await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
  await screenshot(page, name);
}

/**
 * Fails if a text on the page is cut, overflows its box, or breaks within a word. Elements that scroll may be wider.
 * Elements <code> or with data-any may break anywhere: they contain ids or users' texts.
 * @param {Page} page
 * @param {string} what
 */
export async function requireWhole(page, what) {
  const found = await page.evaluate(() => {
    /** @type {string[]} */
    const out = [];
    const range = document.createRange();
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let next = texts.nextNode(); next; next = texts.nextNode()) {
      const text = /** @type {Text} */ (next);
      const parent = /** @type {Element} */ (text.parentElement);
      if (!text.data.trim() || !parent.checkVisibility() || parent.closest('.visually-hidden, script, datalist')) continue;
      const say = (/** @type {string} */ fault) => out.push(`${fault}: ${text.data.trim().slice(0, 80)}`);
      range.selectNodeContents(text);
      const drawing = parent.closest('svg');
      let box = /** @type {Element} */ (drawing ?? parent);
      const inline = () => /^(inline|contents)$/.test(getComputedStyle(box).display);
      while (!drawing && inline()) box = /** @type {Element} */ (box.parentElement);
      const { left, right } = box.getBoundingClientRect();
      const rects = [...range.getClientRects()].filter(({ width }) => width > 0);
      if (rects.some((rect) => rect.left < left - 1 || rect.right > right + 1)) say('runs out of its box');
      const cut = box.clientWidth > 0 && box.scrollWidth > box.clientWidth + 1;
      if (cut && !drawing && !box.closest('.scroll')) say('is cut');
      if (drawing || parent.closest('code, [data-any]')) continue;
      for (const { 0: word, index } of text.data.matchAll(/[\p{L}\p{N}]{2,}/gu)) {
        range.setStart(text, index);
        range.setEnd(text, index + word.length);
        const parts = [...range.getClientRects()].filter(({ width }) => width > 0);
        const lines = new Set(parts.map(({ top }) => Math.round(top)));
        if (lines.size > 1) say(`breaks within ${word}`);
      }
    }
    return out;
  });
  assert.deepEqual(found, [], what);
}

/** Formats a number like the pages (www/demo/format.ts, internal/display). @param {number} x */
export function number(x) {
  const digits = Math.abs(x) >= 99.95 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 3 };
  return x.toLocaleString('en', digits).replace('-', '−').replace(/^−0$/, '0');
}

/**
 * Returns the exact numbers (attribute `value`) of the <data> elements within a selector. Fails unless the text of each
 * element is its exact number, rounded.
 * @param {Page} page
 * @param {string} selector
 * @param {{ bounds?: boolean }} options if bounds is set, the texts must be rounded up
 */
export async function numbersIn(page, selector, { bounds = false } = {}) {
  const list = await page.locator(`${selector} data`).evaluateAll((elements) =>
    elements.map((e) => /** @type {const} */ ([Number(/** @type {HTMLDataElement} */ (e).value), e.textContent])));
  for (const [exact, text] of list) {
    const shown = (text ?? '').replaceAll(',', '').replace('−', '-');
    const last = 10 ** -(shown.split('.')[1] ?? '').length;
    const over = (Number(shown) - exact) / last;
    assert.ok(bounds ? over >= -0.0001 && over < 1 : Math.abs(over) <= 0.5001, `${text} stands for ${exact}`);
  }
  return list.map(([exact]) => exact);
}
