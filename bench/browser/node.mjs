// Times making one report in node, with Doona and with the peer. Prints {kind: {ours, peer}}, samples in ms.
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const request = JSON.parse(await readFile(String(process.argv[2]), 'utf8'));
const folder = await mkdtemp(join(tmpdir(), 'doona-bench-'));

/** Downloads a script from the site and imports it. @param {string} name */
async function load(name) {
  const file = join(folder, name.replace('.js', '.mjs'));
  await writeFile(file, await (await fetch(`${request.site}/${name}`)).text());
  return import(file);
}

const ours = await load('ours.js');
const peer = request.peer ? await load('peer.js') : null;
const module = new Uint8Array(await (await fetch(request.site + request.module)).arrayBuffer());
/** @type {Record<string, object>} */
const result = {};
for (const { kind, bundle, value } of request.offers) {
  const once = await ours.prepare(module, new Uint8Array(Buffer.from(bundle, 'base64')), value);
  result[kind] = await ours.sample(once, peer && peer.prepare(kind, request.relay));
}
await rm(folder, { recursive: true });
console.log(JSON.stringify(result));
