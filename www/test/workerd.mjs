// The worker that runs the cases in workerd. It imports the WASM modules, as a site's own worker must: workerd cannot
// compile WASM at run time.
import { answer } from './answer.mjs';
import full from './doona-full.wasm';
import * as sdk from './doona.js';
import browser from './doona.wasm';

export default { fetch: answer(sdk, { compiled: { browser, full } }) };
