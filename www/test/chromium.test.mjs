// Runs the cases of cases.mjs in Chromium. The relay is www/testserver on another origin, which opens all reports with
// Go code. node.test.mjs and workerd.test.mjs run them in Node 22 and workerd, engines/ in all other engines.
import { launch } from './harness.mjs';
import { inBrowser, suite } from './suite.mjs';

suite('Chromium', inBrowser(launch));
