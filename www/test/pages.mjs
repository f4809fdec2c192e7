// What the tests of pages share: where screenshots go, accessibility, and text free of markup.
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

/** @typedef {import('playwright-core').Page} Page */

/** Where screenshots are written; www/screenshots.mjs makes three into docs/images. */
export const shots = new URL('../../build/screenshots/', import.meta.url).pathname;
mkdirSync(shots, { recursive: true });

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/**
 * Fails where axe-core finds a serious or critical violation, in the given colors. One style sheet
 * has the colors of all pages of a kind: one of them is tried in both, and with DOONA_FULL=1 all.
 * @param {Page} page
 * @param {...('light' | 'dark')} colors
 */
export async function requireAccessible(page, ...colors) {
  await page.evaluate(axe); // through the debugger: the page's policy allows no such script
  for (const colorScheme of process.env['DOONA_FULL'] === '1' ? /** @type {const} */ (['light', 'dark']) : colors) {
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
 * Saves a picture of the whole page; it must not be wider than its window.
 * @param {Page} page
 * @param {string} name
 */
export async function screenshot(page, name) {
  const [wide, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(wide <= window, `${name} is ${wide} px wide in a window of ${window} px`);
  await page.screenshot({ path: `${shots}${name}.png`, fullPage: true, animations: 'disabled' });
}

/**
 * The same in the given width and colors.
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

/** A number as the pages write it (www/demo/words.ts, internal/look). @param {number} x */
export function number(x) {
  const digits = Math.abs(x) >= 99.95 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 3 };
  return x.toLocaleString('en', digits).replace('-', '−').replace(/^−0$/, '0');
}

/**
 * The page's <data> elements within a selector: what people read must be the rounding of what
 * programs read. Returns the exact numbers.
 * @param {Page} page
 * @param {string} selector
 */
export async function numbersIn(page, selector) {
  const list = await page.locator(`${selector} data`).evaluateAll((elements) =>
    elements.map((e) => /** @type {const} */ ([Number(/** @type {HTMLDataElement} */ (e).value), e.textContent])));
  for (const [exact, text] of list) {
    const shown = (text ?? '').replaceAll(',', '').replace('−', '-');
    const last = 10 ** -(shown.split('.')[1] ?? '').length;
    assert.ok(Math.abs(Number(shown) - exact) <= 0.5001 * last, `${text} stands for ${exact}`);
  }
  return list.map(([exact]) => exact);
}
