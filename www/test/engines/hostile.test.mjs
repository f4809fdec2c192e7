// Tests the SDK on hostile pages in every engine: each page has the outcome that docs/browsers.md lists.
import { launchFirefox } from '../harness.mjs';
import { startChromium, started, testPages } from '../hostile.mjs';
import { startWebKit } from './webdriver.mjs';

testPages('Chromium', () => startChromium(), { slow: true, concurrency: 4 });
testPages('Firefox', () => started(launchFirefox()), { slow: true, concurrency: 1 });
testPages('WebKitGTK', async () => {
  const { open, stop } = await startWebKit();
  const leave = () => open('about:blank');
  return { open: async (url) => (await open(url), leave), stop };
}, { slow: true, concurrency: 1 });
