// The worker that runs the cases in edge-runtime.
import * as sdk from '../../../build/www/doona.js';
import { answer } from '../answer.mjs';

const respond = answer(sdk, { compiled });
addEventListener('fetch', (event) => event.respondWith(respond(event.request)));
