/**
 * Tests the builtins that the engine uses. They run only if the engine is on the page's thread, because no worker could
 * start. In a worker nobody replaces builtins.
 * @module
 */

import { type BuiltinTest, builtinBroken, checkBuiltins, isList, sameNumbers } from './builtins.js';
import { fromHex } from './bytes.js';
import { retryKeyPair } from './webcrypto.js';

const tests: readonly BuiltinTest[] = [
  ['Array.prototype.findLast', () => [1, 2, 3].findLast((x) => x < 3) === 2],
  ['Array.prototype.reduceRight', () => [1, 2].reduceRight((text, x) => text + x, '') === '21'],
  ['BigInt', () => BigInt(5) === 5n && BigInt.asUintN(8, 257n) === 1n],
  ['DataView', () => {
    const bytes = new Uint8Array(8);
    const view = new DataView(bytes.buffer);
    view.setFloat64(0, -2.5, true);
    if (!isList(bytes, 0, 0, 0, 0, 0, 0, 4, 192)) return false;
    view.setUint32(0, 258, true);
    if (!isList(bytes, 2, 1, 0, 0, 0, 0, 4, 192) || view.getUint32(0, true) !== 258) return false;
    view.setBigUint64(0, 3n, true);
    return isList(bytes, 3, 0, 0, 0, 0, 0, 0, 0);
  }],
  ['Float64Array.prototype.forEach', () => {
    let sum = 0;
    new Float64Array([5, 6]).forEach((x, i) => (sum += x * (i + 1)));
    return sum === 17;
  }],
  ['Math.pow', () => Math.pow(3, '  '.length) === 9],
  ['Number.isSafeInteger', () => Number.isSafeInteger(2 ** 53 - 1) && !Number.isSafeInteger(2 ** 53)],
  ['Uint8Array.of', () => isList(Uint8Array.of(1, 2), 1, 2)],
  ['WeakMap', () => {
    const key = {};
    const map = new WeakMap([[key, 1]]);
    return map.get(key) === 1 && map.delete(key) && map.get(key) === undefined;
  }],
  ['crypto.getRandomValues', () => {
    const draw = () => crypto.getRandomValues(new Uint8Array(16)); // Two equal draws have probability 2⁻¹²⁸.
    const [zeros, a, b] = [new Uint8Array(16), draw(), draw()];
    return a.length === 16 && !sameNumbers(a, b) && !sameNumbers(a, zeros) && !sameNumbers(b, zeros);
  }],
];

/** Tests all builtins that the engine uses, except WebCrypto's. @throws DoonaError `builtin-broken` */
export function checkEngineBuiltins(): void {
  checkBuiltins();
  checkBuiltins(tests);
}

const hex = (text: string) => fromHex(text, text.length / 2)!;

const isBytes = (got: ArrayBuffer, want: string) => sameNumbers(new Uint8Array(got), hex(want));

/** Makes a key pair for X25519. */
const newPair = () => retryKeyPair(async () =>
  await crypto.subtle.generateKey('X25519', false, ['deriveBits']) as CryptoKeyPair);

/** Tests of the WebCrypto functions that check signatures and seal. */
const cryptoTests: readonly (readonly [name: string, works: (subtle: SubtleCrypto) => Promise<unknown>])[] = [
  ['crypto.subtle.digest', async (subtle) => isBytes(await subtle.digest('SHA-256', hex('616263')),
    'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad')], // FIPS 180-4
  ['crypto.subtle.importKey', async (subtle) =>
    (await subtle.importKey('raw', new Uint8Array(16), 'AES-GCM', true, ['encrypt'])).type === 'secret'],
  ['crypto.subtle.exportKey', async (subtle) => {
    const key = await subtle.importKey('raw', hex('616263'), { name: 'HMAC', hash: 'SHA-256' }, true, ['sign']);
    return isBytes(await subtle.exportKey('raw', key), '616263');
  }],
  ['crypto.subtle.verify', async (subtle) => { // RFC 8032, section 7.1, test 2
    const key = await subtle.importKey('raw', hex('3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c'),
      'Ed25519', false, ['verify']);
    const signature = hex('92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da' +
      '085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00');
    return await subtle.verify('Ed25519', key, signature, hex('72')) === true &&
      await subtle.verify('Ed25519', key, signature, hex('73')) === false;
  }],
  ['crypto.subtle.encrypt', async (subtle) => { // McGrew and Viega, GCM, test case 2
    const key = await subtle.importKey('raw', new Uint8Array(16), 'AES-GCM', false, ['encrypt']);
    const sealed = await subtle.encrypt({ name: 'AES-GCM', iv: new Uint8Array(12) }, key, new Uint8Array(16));
    return isBytes(sealed, '0388dace60b6a392f328c2b971b2fe78ab6e47d42cec13bdf53a67b21257bddf');
  }],
  ['crypto.subtle.sign', async (subtle) => { // RFC 4231, test case 2
    const key = await subtle.importKey('raw', hex('4a656665'), { name: 'HMAC', hash: 'SHA-256' }, false, ['sign']);
    return isBytes(await subtle.sign('HMAC', key, hex('7768617420646f2079612077616e7420666f72206e6f7468696e673f')),
      '5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843');
  }],
  ['crypto.subtle.generateKey', async (subtle) => {
    const draw = async () => new Uint8Array(await subtle.exportKey('raw', (await newPair()).publicKey));
    const [a, b] = [await draw(), await draw()];
    return a.length === 32 && b.length === 32 && !sameNumbers(a, b);
  }],
  ['crypto.subtle.deriveBits', async (subtle) => {
    const [a, b] = [await newPair(), await newPair()];
    const shared = async (own: CryptoKeyPair, other: CryptoKeyPair) =>
      new Uint8Array(await subtle.deriveBits({ name: 'X25519', public: other.publicKey }, own.privateKey, 256));
    const [ab, ba, aa] = [await shared(a, b), await shared(b, a), await shared(a, a)];
    return ab.length === 32 && sameNumbers(ab, ba) && !sameNumbers(ab, aa);
  }],
];

/** Tests the WebCrypto functions that a task opened in doona.wasm needs. @throws DoonaError `builtin-broken` */
export async function checkWebCrypto(): Promise<void> {
  for (let i = 0; i < cryptoTests.length; i++) {
    const test = cryptoTests[i]!;
    let works: unknown = false;
    try {
      works = await test[1](crypto.subtle);
    } catch {
      // The function is missing or fails.
    }
    if (works !== true) throw builtinBroken(test[0]);
  }
}
