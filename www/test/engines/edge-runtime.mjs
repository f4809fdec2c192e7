// Vercel's edge-runtime: a script in a context that has the Web's interfaces and none of Node's.
import { build } from 'esbuild';

/**
 * Bundles a worker as Next.js would and starts it. Modules are compiled beforehand and bound as variables, as an
 * import of "doona.wasm?module" is: the runtime compiles none.
 * @param {string} file
 * @param {{browser: WebAssembly.Module, full: WebAssembly.Module}} compiled
 */
export async function startEdgeRuntime(file, compiled) {
  const installed = 'edge-runtime'; // Only for this part of the tests: its types are not there for the others.
  const { EdgeRuntime } = await import(installed);
  const { outputFiles } = await build({ entryPoints: [file], bundle: true, format: 'iife', target: 'es2022',
    write: false, logOverride: { 'empty-import-meta': 'silent' } });
  const runtime = new EdgeRuntime({
    initialCode: String(outputFiles[0]?.text),
    extend: (/** @type {object} */ context) => Object.assign(context, { compiled }),
  });
  return async (/** @type {string} */ body) => {
    const response = await runtime.dispatchFetch('http://edge.test/', { method: 'POST', body });
    await response.waitUntil();
    return /** @type {Promise<any>} */ (response.json());
  };
}
