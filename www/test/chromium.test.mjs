// The cases of cases.mjs in Chromium, against a relay on another origin whose Go code opens what arrives. node.test.mjs
// and workerd.test.mjs have Node 22 and workerd; all other engines are in engines/.
import { launch } from './harness.mjs';
import { inBrowser, suite } from './suite.mjs';

suite('Chromium', inBrowser(launch));
