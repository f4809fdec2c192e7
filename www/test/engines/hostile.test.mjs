// Tests the SDK on hostile pages in every engine: each page has the outcome that docs/browsers.md lists.
import { launchFirefox } from '../harness.mjs';
import { startChromium, started, testPages } from '../hostile.mjs';
import { startWebKit } from './webdriver.mjs';

testPages('Chromium', startChromium, true);
testPages('Firefox', () => started(launchFirefox()), true);
testPages('WebKitGTK', async () => {
  const { open, stop } = await startWebKit();
  return { open, leave: () => open('about:blank'), stop };
}, true);
