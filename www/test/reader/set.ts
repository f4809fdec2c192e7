/**
 * Reads sets of tables, their keys and their submissions (docs/SPEC.md, section 15).
 * @module
 */

import { createDecipheriv, createHmac, createPrivateKey, createPublicKey, diffieHellman } from 'node:crypto';

import { Refused, isSigned, rootOf, sha256 } from './bundle.ts';
import { toHex } from './files.ts';
import { type Task, decode, isOrigin, parseTask } from './task.ts';

type Bytes = Uint8Array;

export interface Table {
  name: string;
  id: Bytes;
  bare: boolean;
  task: Task;
  /** The task's fields by their position in its canonical form. */
  fields: any[];
  clock: number;
}

export interface Set {
  id: Bytes;
  tables: Table[];
  /** The signed key lists of each clock. */
  lists: Bytes[][];
}

const refuse = (expect: string, what = expect): never => {
  throw new Refused(expect, what);
};

/** Opens a set's bundle. The owner's key is known in advance. */
export function openSet(raw: Bytes, owner: Bytes): Set {
  const [set, signer, signature, tasks, lists] = strict(raw, 5);
  if (toHex(signer) !== toHex(owner)) refuse('owner');
  if (!isSigned(owner, 'set', set, signature)) refuse('signer', 'the set');
  const [label, version, name, trust, total, tables, through, renewal] = strict(set, 8);
  if (label !== 'doona-set' || version !== 1n) refuse('encoding', 'label or version');
  if (!/^[ -~]{1,64}$/.test(name)) refuse('field:name');
  if (trust !== 'two' && trust !== 'trial') refuse('field:trust');
  if (!isDecimal(total[0], 100)) refuse('field:total.epsilon');
  if (!isDecimal(total[1], 1) || Number(total[1]) === 1) refuse('field:total.delta');
  if (total[2] < 1n || total[2] > 36525n) refuse('field:total.days');
  if (tables.length < 1 || tables.length > 32) refuse('field:tables');
  const names: string[] = tables.map(([table]: any) => table);
  if (tables.some(([, , bare]: any) => bare > 1n)) refuse('field:tables.bare');
  if (new globalThis.Set(names).size < names.length || !names.every((table) => /^[A-Za-z][\w-]{0,63}$/.test(table))) {
    refuse('field:tables.name');
  }
  if (!through.every((origin: string, i: number) => isOrigin(origin) && !(i > 0 && through[i - 1] >= origin))) {
    refuse('field:through');
  }
  const isRenewal = ([position, , , first]: any) => position > 0n && first.length === tables.length;
  if (renewal.length > 1 || !renewal.every(isRenewal)) refuse('field:renewal');
  if (tasks.length !== tables.length) refuse('set', 'a task too few or too many');
  const position = renewal[0]?.[0] ?? 0n;
  const clocks: string[] = [];
  const opened: Table[] = tables.map(([table, id, bare]: any, i: number) => {
    if (toHex(sha256(tasks[i])) !== toHex(id)) refuse('set', 'another task');
    const fields = decode(tasks[i]);
    const epochs = fields[11].slice(0, 3).join();
    if (!clocks.includes(epochs)) clocks.push(epochs);
    return { name: table, id, bare: bare === 1n, task: parseTask(tasks[i]), fields, clock: clocks.indexOf(epochs) };
  });
  opened.forEach((table, i) => {
    checkTable(table, opened[0]!, position);
    for (const { old, new: next, signature } of table.task.stream?.rotations ?? []) {
      const bytes = (text: string) => Buffer.from(text.replace('ed25519:', ''), 'base64url');
      const body = Buffer.concat([renewal[0][3][i], bytes(next)]);
      if (isSigned(bytes(old), 'rotation', body, bytes(signature))) continue;
      refuse(`field:tables.${table.name}.stream.rotations`);
    }
  });
  if (lists.length !== clocks.length) refuse('set', 'a clock too few or too many');
  for (const { fields, clock } of opened) {
    const parties = [...fields[13], fields[14]];
    if (lists[clock].length < parties.length) refuse('set', 'a list too few');
    parties.forEach(([, , hash], hop) => {
      if (toHex(sha256(strict(lists[clock][hop], 2)[0])) !== toHex(hash)) refuse('set', 'another list');
    });
  }
  return { id: sha256(set), tables: opened, lists };
}

function checkTable({ name, bare, task, fields }: Table, first: Table, position: bigint): void {
  const field = (part = '') => `field:tables.${name}${part}`;
  if (task.noise?.kind !== 'cells' || task.assumption !== 'none') refuse(field('.noise'));
  if (task.total) refuse(field('.claim.total'));
  if (task.params.has('gamma')) refuse(field('.params.gamma'));
  if (task.lanes !== 1n || task.perLane !== 1n || task.padding !== 'full') refuse(field('.slots'));
  const parties = ({ fields }: { fields: any[] }) =>
    [...fields[13], fields[14]].map(([url, key]) => `${url} ${toHex(key)}`).join();
  if (fields[15] !== first.fields[15]) refuse(field('.kem'));
  if (parties({ fields }) !== parties(first)) refuse(field());
  if (task.origins.join() !== first.task.origins.join()) refuse(field('.clients.origins'));
  if (fields !== first.fields && fields[12][0] !== 'address') refuse(field('.clients.kind'));
  const [days, own] = [beginnings(first.fields[11]), beginnings(fields[11])];
  if (!own.every((at) => days.includes(at))) refuse(field('.epochs'));
  if (!task.stream !== !first.task.stream) refuse(field('.stream'));
  if (task.stream ? task.stream.position !== position : position > 0n) refuse(field('.stream.position'));
  const mayChange = ['clients.issuer.url', 'clients.origins', 'clients.quota', 'name', 'relays.url', 'verifier.url'];
  if (!(task.stream?.allow ?? []).every((part) => mayChange.includes(part))) refuse(field('.stream.allow'));
  if (bare && (task.limits.cap || task.limits.events)) refuse(field('.epochs'));
}

/** When the epochs begin, and when the last ends, in Unix seconds. */
function beginnings([start, length, count]: bigint[]): number[] {
  const at = new Date(1000 * Number(start));
  return Array.from({ length: Number(count) + 1 }, (_, i) => length === 1n << 32n
    ? Date.UTC(at.getUTCFullYear(), at.getUTCMonth() + i) / 1000 : Number(start) + i * Number(length));
}

/** Returns a table's epoch on a day, and whether the table is open then. */
export function epochOn({ tables: [first] }: Set, { fields }: Table, day: number): { epoch: number; open: boolean } {
  const at = beginnings(first!.fields[11])[day]!;
  const own = beginnings(fields[11]);
  const open = at >= own[0]! && at < own.at(-1)!;
  const begun = own.filter((begin) => begin <= at).length;
  return { epoch: Math.max(0, Math.min(begun, own.length - 1) - 1), open };
}

/** Checks the keys of a block of a clock. Returns the keys of each party, by epoch. */
export function openKeys(set: Set, clock: number, raw: Bytes): { first: number; keys: Bytes[][] } {
  const { fields } = set.tables.find((table) => table.clock === clock)!;
  const [start, blocks] = strict(raw, 2);
  const [count, first, lists] = [Number(fields[11][2]), Number(start), set.lists[clock]!];
  if (blocks.length !== lists.length || first % 8 !== 0 || first >= count) refuse('keylist');
  const parties = [...fields[13], fields[14]];
  return { first, keys: blocks.map(([together, path]: Bytes[], hop: number) => {
    const [list, signature] = decode(lists[hop]!);
    if (!isSigned(parties[hop][1], 'keys', list, signature)) refuse('signer', 'a key list');
    const [label, , kem, total, root] = strict(list, 5);
    const epochs = Math.min(8, count - first);
    if (label !== 'doona-keys' || kem !== fields[15] || Number(total) !== count) refuse('keylist');
    if (together!.length !== 32 * epochs) refuse('keylist');
    if (toHex(rootOf(together!, first / 8, Math.ceil(count / 8), path!)) !== toHex(root)) refuse('keylist');
    return Array.from({ length: epochs }, (_, i) => together!.subarray(32 * i, 32 * i + 32));
  }) };
}

const slotSize = ({ task, fields }: Table) => 17 + Number(task.messageBytes) + 48 + 64 * (fields[13].length - 1);

/** Opens the submission of a day at the first relay. `secret` is the relay's private key of the first clock. */
export function openSubmission(set: Set, day: number, secret: Bytes, body: Bytes): { tag: Bytes; slots: Bytes[] } {
  const header = (size: number) => (size < 256 ? 2 : 3);
  const sizes = set.tables.map(slotSize);
  const content = 1 + 18 + 1 + sizes.reduce((sum, size) => sum + header(size) + size, 0); // at most 15 tables
  const envelope = content + 48;
  if (body.length !== 2 + header(envelope) + envelope) refuse('size');
  const [version, sealed] = strict(body, 2);
  if (version !== 1n) refuse('content');
  const [tag, slots] = decode(open(secret, set.id, day, 0, 2, sealed));
  const right = tag.length === 16 && slots.length === sizes.length &&
    slots.every((slot: Bytes, i: number) => slot.length === sizes[i]);
  return right ? { tag, slots } : refuse('content');
}

/** Opens a slot of a table at a later hop. */
export function openSlot(table: Table, epoch: number, hop: number, secret: Bytes, slot: Bytes): Bytes {
  return open(secret, table.id, epoch, hop, 0, slot);
}

/** Opens HPKE (RFC 9180, base mode) with DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and AES-128-GCM. */
function open(secret: Bytes, id: Bytes, epoch: number, hop: number, kind: number, sealed: Bytes): Bytes {
  const der = (prefix: string, key: Bytes) => Buffer.concat([Buffer.from(prefix, 'hex'), key]);
  const privateKey = createPrivateKey({ key: der('302e020100300506032b656e04220420', secret), format: 'der', type: 'pkcs8' });
  const own = createPublicKey(privateKey).export({ format: 'der', type: 'spki' }).subarray(-32);
  const share = sealed.subarray(0, 32);
  const publicKey = createPublicKey({ key: der('302a300506032b656e032100', share), format: 'der', type: 'spki' });
  const kem = Buffer.from('KEM\x00\x20', 'latin1');
  const dh = extract(kem, '', 'eae_prk', diffieHellman({ privateKey, publicKey }));
  const shared = expand(kem, dh, 'shared_secret', Buffer.concat([share, own]), 32);
  const be64 = Buffer.alloc(8);
  be64.writeBigUInt64BE(BigInt(epoch));
  const keyId = sha256(Uint8Array.of(0, 0x20), own);
  const info = Buffer.concat([Buffer.from('doona-v1 onion'), id, be64, Uint8Array.of(hop), keyId]);
  const suite = Buffer.from('HPKE\x00\x20\x00\x01\x00\x01', 'latin1');
  const context = Buffer.concat([Uint8Array.of(0), extract(suite, '', 'psk_id_hash', Buffer.alloc(0)),
    extract(suite, '', 'info_hash', info)]);
  const key = extract(suite, shared, 'secret', Buffer.alloc(0));
  const cipher = createDecipheriv('aes-128-gcm', expand(suite, key, 'key', context, 16),
    expand(suite, key, 'base_nonce', context, 12));
  cipher.setAAD(Uint8Array.of(0, 0, kind));
  cipher.setAuthTag(sealed.subarray(-16));
  try {
    return Buffer.concat([cipher.update(sealed.subarray(32, -16)), cipher.final()]);
  } catch {
    return refuse('open');
  }
}

const hmac = (key: Bytes | string, ...parts: Bytes[]) => createHmac('sha256', key).update(Buffer.concat(parts)).digest();
const named = (suite: Bytes, label: string) => [Buffer.from('HPKE-v1'), suite, Buffer.from(label)];
const extract = (suite: Bytes, salt: Bytes | string, label: string, input: Bytes) =>
  hmac(salt, ...named(suite, label), input);
const expand = (suite: Bytes, key: Bytes, label: string, info: Bytes, size: number) =>
  hmac(key, Uint8Array.of(0, size), ...named(suite, label), info, Uint8Array.of(1)).subarray(0, size);

const isDecimal = (text: string, most: number) =>
  text.length <= 24 && /^\d+(\.\d+)?(e-?\d+)?$/.test(text) && Number(text) > 0 && Number(text) <= most;

/** Decodes an array of a known length, in canonical form. */
function strict(bytes: Bytes, length: number): any[] {
  let fields;
  try {
    fields = decode(bytes);
  } catch (cause) {
    return refuse('encoding', String(cause));
  }
  if (fields.length !== length || toHex(encode(fields)) !== toHex(bytes)) refuse('encoding');
  return fields;
}

function encode(value: any): Bytes {
  const number = (n: bigint, size: number) =>
    Array.from({ length: size }, (_, i) => Number((n >> BigInt(8 * (size - 1 - i))) & 255n));
  const head = (n: number, fixed: number, small: number, leads: number[]) => n < small ? [fixed | n]
    : n < 256 && leads[0] ? [leads[0], n] : [leads[1]!, ...number(BigInt(n), 2)];
  if (typeof value === 'bigint') {
    if (value < 128n) return Uint8Array.of(Number(value));
    const size = [1, 2, 4, 8].find((bytes) => value < 1n << BigInt(8 * bytes))!;
    return Uint8Array.of(0xcc + Math.log2(size), ...number(value, size));
  }
  if (typeof value === 'string') {
    const text = Buffer.from(value);
    return Buffer.concat([Buffer.from(head(text.length, 0xa0, 32, [0xd9, 0xda])), text]);
  }
  if (value instanceof Uint8Array) return Buffer.concat([Buffer.from(head(value.length, 0, 0, [0xc4, 0xc5])), value]);
  return Buffer.concat([Buffer.from(head(value.length, 0x90, 16, [0, 0xdc])), ...value.map(encode)]);
}
