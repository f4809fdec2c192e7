// Runs the cases of cases.mjs in workerd. The relay is www/testserver, which opens all reports with Go code.
import { startWorkerd } from './harness.mjs';
import { suite } from './suite.mjs';

suite('workerd', async ({ site, tasks }) => {
  const { url, version, stop } = await startWorkerd();
  return {
    version,
    stop,
    run: async (name) => {
      const response = await fetch(url, { method: 'POST', body: JSON.stringify({ name, site, tasks }) });
      return response.ok ? (await response.json()).error : `workerd answered ${response.status}: ${await response.text()}`;
    },
  };
});
