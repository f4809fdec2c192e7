// Visits of one-time visitors in Chromium. They read until all is sealed: no event may be lost then.
import { backForwardCache, started } from './engines/browsers.mjs';
import { launch } from './harness.mjs';
import { testVisitors } from './one-time.mjs';

testVisitors('Chromium', () => started(launch(backForwardCache)), { every: 5, most: 0, concurrency: 6 });
