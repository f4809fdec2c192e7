// One-time visitors in Chromium: some of the visits, in which the pages wait for a draft. engines/one-time.test.mjs has
// all.
import { backForwardCache, started } from './engines/browsers.mjs';
import { launch } from './harness.mjs';
import { testVisitors } from './one-time.mjs';

testVisitors('Chromium', () => started(launch(backForwardCache)), { every: 7, most: 0, concurrency: 8 });
