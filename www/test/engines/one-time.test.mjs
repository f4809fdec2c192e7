// One-time visitors in three engines: how many events arrive. The environment variable DOONA_VISITORS names fewer of
// them, such as Chromium,Firefox.
import { launch } from '../harness.mjs';
import { testVisitors } from '../one-time.mjs';
import { backForwardCache, browsers, started } from './browsers.mjs';

const engines = { ...browsers, Chromium: () => started(launch(backForwardCache)) };
const names = /** @type {(keyof typeof engines)[]} */ (
  (process.env.DOONA_VISITORS ?? 'Chromium,Firefox,WebKitGTK').split(','));
for (const name of names) testVisitors(name, engines[name]);
