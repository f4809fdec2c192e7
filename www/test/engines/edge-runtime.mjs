// Starts Vercel's edge-runtime, which runs a script with Web APIs but without Node's.
import { build } from 'esbuild';

/**
 * Bundles a worker as Next.js does, and starts it. The runtime cannot compile WASM, so the worker gets compiled modules
 * as variables, as from an import of "doona.wasm?module".
 * @param {string} file
 * @param {{browser: WebAssembly.Module, full: WebAssembly.Module}} compiled
 */
export async function startEdgeRuntime(file, compiled) {
  const installed = 'edge-runtime'; // A variable, so that type checks pass where the package is not installed.
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
