// The cases of cases.mjs in Chromium, against a relay on another origin that opens all reports in Go. node.test.mjs and
// workerd.test.mjs run them in Node 22 and workerd; all other engines are in engines/.
import { launch } from './harness.mjs';
import { inBrowser, suite } from './suite.mjs';

suite('Chromium', inBrowser(launch));
