// The worker that runs the cases in workerd: what a site's own worker would write, which must
// import the module, because workerd compiles none at run time.
import { cases } from './cases.mjs';
import full from './doona-full.wasm';
import * as sdk from './doona.js';
import browser from './doona.wasm';

export default {
  /** @param {Request} request */
  async fetch(request) {
    const { name, site, tasks } = await request.json();
    const options = { store: sdk.memoryStore(), compiled: { browser, full } };
    try {
      await cases[name]?.({ sdk, site, tasks, options });
      return Response.json({ error: null });
    } catch (error) {
      return Response.json({ error: /** @type {Error} */ (error).stack });
    }
  },
};
