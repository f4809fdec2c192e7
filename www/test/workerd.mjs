// The worker that runs the cases in workerd. Like a site's own worker, it must import the module, because workerd
// compiles none at run time.
import { answer } from './answer.mjs';
import full from './doona-full.wasm';
import * as sdk from './doona.js';
import browser from './doona.wasm';

export default { fetch: answer(sdk, { compiled: { browser, full } }) };
