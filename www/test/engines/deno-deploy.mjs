// The worker that runs the cases in deno serve.
import * as sdk from '../../../build/www/doona.js';
import { answer } from '../answer.mjs';

export default { fetch: answer(sdk) };
