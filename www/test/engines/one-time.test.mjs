// One-time visitors in WebKitGTK: how many events arrive. The environment variable DOONA_VISITORS names other engines,
// such as Chromium,Firefox. Fewer than 90 % arrive there so far: Firefox loses those of visitors who close their tab.
import { launch } from '../harness.mjs';
import { testVisitors } from '../one-time.mjs';
import { backForwardCache, browsers, started } from './browsers.mjs';

const engines = { ...browsers, Chromium: () => started(launch(backForwardCache)) };
const names = /** @type {(keyof typeof engines)[]} */ ((process.env.DOONA_VISITORS ?? 'WebKitGTK').split(','));
for (const name of names) testVisitors(name, engines[name]);
