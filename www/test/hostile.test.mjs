// Tests the SDK on hostile pages in Chromium: each page has the outcome that docs/browsers.md lists. Only the long form
// tests slow pages; engines/hostile.test.mjs tests all pages in Firefox and WebKitGTK, too.
import { long } from './harness.mjs';
import { startChromium, testPages } from './hostile.mjs';

testPages('Chromium', startChromium, { slow: long, concurrency: 4 });
