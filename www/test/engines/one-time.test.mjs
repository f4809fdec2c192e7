// One-time visitors in three engines: how many events arrive.
import { launch } from '../harness.mjs';
import { testVisitors } from '../one-time.mjs';
import { backForwardCache, browsers, started } from './browsers.mjs';

for (const [engine, start] of Object.entries({ ...browsers, Chromium: () => started(launch(backForwardCache)) })) {
  testVisitors(engine, start);
}
