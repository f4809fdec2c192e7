// Vercel's edge-runtime: runs a script in a context with Web APIs and without Node's.
import { build } from 'esbuild';

/**
 * Bundles a worker like Next.js and starts it. The runtime compiles no modules, so they are compiled beforehand and
 * bound as variables, like an import of "doona.wasm?module".
 * @param {string} file
 * @param {{browser: WebAssembly.Module, full: WebAssembly.Module}} compiled
 */
export async function startEdgeRuntime(file, compiled) {
  const installed = 'edge-runtime'; // A variable: only these tests install the package, so its types may be missing.
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
