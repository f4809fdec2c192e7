// Tests the SDK on hostile pages in Chromium: each page has the outcome that docs/browsers.md lists. Slow pages are only
// in the long form; engines/hostile.test.mjs tests all pages in Firefox and WebKitGTK.
import { long } from './harness.mjs';
import { startChromium, testPages } from './hostile.mjs';

testPages('Chromium', startChromium, long);
