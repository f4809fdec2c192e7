// An npm registry on this machine with only the package doona and its optional packages, as they will be once they are
// published: a package manager resolves the packages of all platforms, and installs one.
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** Returns the package.json in an archive. @param {string} archive */
async function manifestOf(archive) {
  return JSON.parse((await run('tar', ['-xzOf', archive, 'package/package.json'])).stdout);
}

/** Packs a package with only a package.json, for a platform whose archive this machine has not built.
 * @param {string} folder @param {Record<string, unknown>} manifest */
async function packEmpty(folder, manifest) {
  await mkdir(join(folder, 'package'), { recursive: true });
  await writeFile(join(folder, 'package/package.json'), JSON.stringify(manifest));
  const archive = join(folder, `${String(manifest.name).replace('/', '-')}.tgz`);
  await run('tar', ['-czf', archive, '-C', folder, 'package']);
  return readFile(archive);
}

/** Starts a registry with these archives. @param {readonly string[]} archives */
export async function startRegistry(archives) {
  /** @type {Map<string, {manifest: any, bytes: Buffer}>} */
  const packages = new Map();
  for (const archive of archives) {
    const manifest = await manifestOf(archive);
    packages.set(manifest.name, { manifest, bytes: await readFile(archive) });
  }
  const folder = await mkdtemp(join(tmpdir(), 'doona-registry-'));
  const { version, optionalDependencies } = packages.get('doona')?.manifest ?? {};
  for (const name of Object.keys(optionalDependencies)) {
    const [os, cpu] = name.replace('@doona/', '').split('-');
    const manifest = { name, version, os: [os], cpu: [cpu] };
    if (!packages.has(name)) packages.set(name, { manifest, bytes: await packEmpty(folder, manifest) });
  }
  await rm(folder, { recursive: true });
  let url = '';
  const server = createServer((request, response) => {
    const path = decodeURIComponent(String(request.url)).slice(1);
    const name = path.replace(/\/-\/.*$/, '');
    const found = packages.get(name);
    if (!found) return response.writeHead(404, { 'Content-Type': 'application/json' }).end('{"error": "not found"}');
    if (path !== name) return response.writeHead(200, { 'Content-Type': 'application/octet-stream' }).end(found.bytes);
    const dist = { tarball: `${url}${name}/-/package.tgz`,
      shasum: createHash('sha1').update(found.bytes).digest('hex'),
      integrity: `sha512-${createHash('sha512').update(found.bytes).digest('base64')}` };
    response.writeHead(200, { 'Content-Type': 'application/json' }).end(JSON.stringify({ name,
      'dist-tags': { latest: version }, versions: { [version]: { ...found.manifest, dist } },
      time: { created: '2026-01-01T00:00:00.000Z', modified: '2026-01-01T00:00:00.000Z', [version]: '2026-01-01T00:00:00.000Z' } }));
    return undefined;
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  url = `http://127.0.0.1:${port}/`;
  return { url, stop: () => server.close() };
}
