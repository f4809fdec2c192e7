// Regenerates docs/images from screenshots that the page tests take. Run ./www/test.sh first, then `node
// www/screenshots.mjs`. Chromium crops each screenshot and encodes it as a WebP file below 150 kB.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';

import { launch } from './test/harness.mjs';
import { shots } from './test/pages.mjs';

const folder = new URL('../docs/images/', import.meta.url);
mkdirSync(folder, { recursive: true });

const browser = await launch();
const page = await browser.newPage({ viewport: { width: 1280, height: 1200 } });
const session = await page.context().newCDPSession(page);
for (const [from, to, width, height] of /** @type {const} */ ([
  ['demo-mean-light', 'demo', 1180, 1270],
  ['verifier-bins-light', 'verifier', 1180, 1200],
  ['web-vitals-light', 'web-vitals', 1180, 1090],
  ['month-1280-light', 'month', 1280, 1500],
])) {
  const source = readFileSync(`${shots}${from}.png`).toString('base64');
  await page.setContent(`<body style="margin:0"><img src="data:image/png;base64,${source}">`);
  const clip = { x: 0, y: 0, width, height, scale: 0.85 };
  const { data } = await session.send('Page.captureScreenshot',
    { format: 'webp', quality: 86, clip, captureBeyondViewport: true });
  const image = Buffer.from(data, 'base64');
  if (image.length >= 150_000) throw new Error(`${to}.webp is ${image.length} bytes: want less than 150000`);
  writeFileSync(new URL(`${to}.webp`, folder), image);
}
await browser.close();
