// The command `doona copy FOLDER`: copies the files that a site must host. It reads the list from integrity.json and
// compares each file with its hash. It leaves files of older versions, because a cached page may still ask for them.
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

export const copyUsage = `Copies the files that a site must host: the scripts, the worker, the WASM modules and integrity.json.

  doona copy FOLDER

With a bundler that leaves new URL(…, import.meta.url) as it is (esbuild, Rollup), FOLDER is the folder of the bundle.
Otherwise the option modules names it: connect({ modules: '/doona/', … }) for FOLDER public/doona.`;

/**
 * Copies the files from the package's folder. Returns the number of files.
 * @param {URL} from ends in "/"
 * @param {string} folder
 */
export function copyFiles(from, folder) {
  const list = readFileSync(new URL('integrity.json', from));
  const hashes = /** @type {Record<string, string>} */ (JSON.parse(String(list)));
  mkdirSync(folder, { recursive: true });
  for (const [name, want] of Object.entries(hashes)) {
    const bytes = readFileSync(new URL(name, from));
    const got = `sha256-${createHash('sha256').update(bytes).digest('base64')}`;
    if (got !== want) throw new Error(`${name} in the package has the hash ${got}: want ${want}. Install it again.`);
    writeFileSync(join(folder, name), bytes);
  }
  writeFileSync(join(folder, 'integrity.json'), list);
  return Object.keys(hashes).length + 1;
}
