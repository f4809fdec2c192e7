// A smoke test in Firefox: runs some cases of cases.mjs under the site's strict content security policy. Chromium, Node
// 22 and workerd run all cases; `make test-full PART=engines` also runs all of them in Firefox.
import { launchFirefox } from './harness.mjs';
import { inBrowser, suite } from './suite.mjs';

suite('Firefox', inBrowser(launchFirefox), [
  'webcrypto: what is sealed for "truthful" opens in Go',
  "webcrypto: another owner's task is refused",
  'webcrypto: a report with a token is taken, and the site\'s quota ends at two',
  'a post-quantum task is sealed by doona-full.wasm',
  'values outside the domain are refused and use up nothing',
  'several tasks share one ledger, which stops at maxTotalEpsilon',
  'an undelivered report waits and is sent at the next visit, without being asked',
]);
