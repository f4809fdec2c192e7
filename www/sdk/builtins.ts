/**
 * Tests the JavaScript builtins that the SDK uses. A library on the page may have replaced one. MooTools before 1.6 and
 * Prototype.js, for example, have an `Array.from` that ignores its second argument, and with it the budget check once
 * admitted every report. A test checks what a builtin does, not whether it is native: a correct polyfill passes.
 *
 * The SDK runs the tests when a page connects, before each report, and before each budget decision on the page's
 * thread. Outside its own subject, a test uses only syntax (operators, loops over an index), so one broken builtin
 * cannot hide another.
 * @module
 */

import { DoonaError } from './errors.js';

/** A builtin's name, and a test that returns true if the builtin does what the language specifies. */
export type BuiltinTest = readonly [name: string, works: () => unknown];

/**
 * Inputs of the tests. They are properties: the minifier would evaluate a call on a literal, and the test would check
 * nothing.
 */
const given = { pair: [1, 2], text: 'ab', ten: 10 };

/** Tests of the builtins that the page's thread uses; engine-builtins.ts tests the engine's. */
const tests: readonly BuiltinTest[] = [
  ['Error', () => new Error('a', { cause: 1 }).message === 'a' && new Error('a', { cause: 1 }).cause === 1],
  ['Symbol.iterator', () => {
    let sum = 0;
    for (const x of [1, 2]) sum += x;
    const [first, ...rest] = given.pair;
    return sum === 3 && first === 1 && rest.length === 1 && rest[0] === 2 && isList([...given.pair, 3], 1, 2, 3);
  }],
  ['Array.isArray', () => Array.isArray([]) && !Array.isArray({ length: 0 })],
  ['Array.prototype.at', () => [4, 5].at(-1) === 5 && [4, 5].at(0) === 4],
  ['Array.prototype.every', () => [1, 2].every((x, i) => x === i + 1) && ![1, 2].every((x) => x < 2)],
  ['Array.prototype.filter', () => isList([1, 2, 3].filter((x) => x !== 2), 1, 3)],
  ['Array.prototype.find', () => [1, 2, 3].find((x) => x > 1) === 2 && [1].find((x) => x > 1) === undefined],
  ['Array.prototype.flatMap', () => isList([1, 2].flatMap((x, i) => [x, i]), 1, 0, 2, 1)],
  ['Array.prototype.forEach', () => {
    let sum = 0;
    [5, 6].forEach((x, i) => (sum += x * (i + 1)));
    return sum === 17;
  }],
  ['Array.prototype.includes', () => [1, 2].includes(2) && ![1, 2].includes(3)],
  ['Array.prototype.join', () => [1, 2].join(', ') === '1, 2'],
  ['Array.prototype.map', () => isList([5, 6].map((x, i) => x + i), 5, 7)],
  ['Array.prototype.pop', () => {
    const list = [1, 2];
    return list.pop() === 2 && isList(list, 1);
  }],
  ['Array.prototype.push', () => {
    const list = [1];
    return list.push(2, 3) === 3 && isList(list, 1, 2, 3);
  }],
  ['Array.prototype.reduce', () => [1, 2, 3].reduce((sum, x) => sum + x, 4) === 10],
  ['Array.prototype.shift', () => {
    const list = [1, 2];
    return list.shift() === 1 && isList(list, 2);
  }],
  ['Array.prototype.slice', () => isList([1, 2, 3, 4].slice(1, 3), 2, 3)],
  ['Array.prototype.some', () => [1, 2].some((x, i) => x === 2 && i === 1) && ![1, 2].some((x) => x > 2)],
  ['Array.prototype.sort', () => isList([3, 10, 2].sort((a, b) => a - b), 2, 3, 10)],
  ['Array.prototype.values', () => {
    let sum = 0;
    for (const x of [1, 2].values()) sum += x;
    return sum === 3;
  }],
  ['ArrayBuffer.isView', () => ArrayBuffer.isView(new Uint8Array(1)) && !ArrayBuffer.isView([1])],
  ['Uint8Array', () => isList(new Uint8Array([1, 258]), 1, 2) && isList(new Uint8Array(2), 0, 0) &&
    isList(new Uint8Array(new Uint8Array([1, 2, 3]).buffer, 1, 2), 2, 3)],
  ['Uint8Array.prototype[Symbol.iterator]', () => isList([...new Uint8Array([1, 2])], 1, 2)],
  ['Uint8Array.prototype.every', () => new Uint8Array([1, 2]).every((x, i) => x === i + 1) &&
    !new Uint8Array([1, 2]).every((x) => x < 2)],
  ['Uint8Array.prototype.fill', () => isList(new Uint8Array([1, 2]).fill(0), 0, 0)],
  ['Uint8Array.prototype.set', () => {
    const bytes = new Uint8Array(3);
    bytes.set(new Uint8Array([1, 2]), 1);
    return isList(bytes, 0, 1, 2);
  }],
  ['Uint8Array.prototype.slice', () => {
    const bytes = new Uint8Array([1, 2, 3, 4]);
    const copy = bytes.slice(1, 3);
    bytes[1] = 9;
    return isList(copy, 2, 3) && isList(new Uint8Array([4]).slice(), 4);
  }],
  ['Uint8Array.prototype.subarray', () => {
    const bytes = new Uint8Array([1, 2, 3, 4]);
    const part = bytes.subarray(1, 3);
    bytes[1] = 9;
    return isList(part, 9, 3) && isList(bytes.subarray(2), 3, 4);
  }],
  ['Float64Array', () => isList(new Float64Array([0.5, 2]), 0.5, 2) && new Float64Array(2).length === 2],
  ['Float64Array.from', () => isList(Float64Array.from([0.5, 2]), 0.5, 2)],
  ['Float64Array.prototype.fill', () => isList(new Float64Array([1, 2]).fill(0), 0, 0)],
  ['Float64Array.prototype.slice', () => {
    const values = new Float64Array([0.5, 2]);
    const copy = values.slice();
    values[0] = 9;
    return isList(copy, 0.5, 2);
  }],
  ['Uint32Array', () => isList(new Uint32Array([2 ** 32 + 5]), 5)],
  ['String', () => String(given.ten) === '10' && String(undefined) === 'undefined'],
  ['String.fromCharCode', () => String.fromCharCode(given.ten + 87, 98) === 'ab'],
  ['String.prototype.charCodeAt', () => given.text.charCodeAt(1) === 98],
  ['String.prototype.endsWith', () => given.text.endsWith('b') && !given.text.endsWith('a')],
  ['String.prototype.includes', () => given.text.includes('b') && !given.text.includes('c')],
  ['String.prototype.indexOf', () => given.text.indexOf('b') === 1 && given.text.indexOf('c') === -1],
  ['String.prototype.normalize', () => `${given.text}e\u0301`.normalize('NFC') === 'ab\u00e9'],
  ['String.prototype.padStart', () => given.text.padStart(3, '0') === '0ab'],
  ['String.prototype.replaceAll', () => `${given.text}-ab`.replaceAll('a', '+') === '+b-+b'],
  ['String.prototype.slice', () => given.text.slice(1) === 'b' && given.text.slice(0, 1) === 'a'],
  ['String.prototype.split', () => {
    const parts = `${given.text},c`.split(',');
    return parts.length === 2 && parts[0] === 'ab' && parts[1] === 'c';
  }],
  ['String.prototype.startsWith', () => given.text.startsWith('a') && !given.text.startsWith('b')],
  ['Number', () => Number(`${given.ten}e-6`) === 1e-5 && Number('12') === 12],
  ['Number.MIN_VALUE', () => Number.MIN_VALUE > 0 && Number.MIN_VALUE / 2 === 0],
  ['Number.isFinite', () => Number.isFinite(1) && !Number.isFinite(1 / 0) && !Number.isFinite(0 / 0)],
  ['Number.isInteger', () => Number.isInteger(3) && !Number.isInteger(0.5)],
  ['Number.isNaN', () => Number.isNaN(0 / 0) && !Number.isNaN(1)],
  ['Number.parseInt', () => Number.parseInt('22.1') === 22],
  ['parseInt', () => parseInt('ff', 16) === 255],
  ['Number.prototype.toPrecision', () => given.ten.toPrecision(3) === '10.0'],
  ['Number.prototype.toString', () => given.ten.toString(16) === 'a'],
  ['Math.abs', () => Math.abs(-given.ten) === 10 && Math.abs(given.ten) === 10],
  ['Math.ceil', () => Math.ceil(given.ten / 4) === 3 && Math.ceil(given.ten) === 10],
  ['Math.exp', () => Math.exp(0) === 1 && isNear(Math.exp(1), 2.718281828459045)],
  ['Math.expm1', () => Math.expm1(0) === 0 && isNear(Math.expm1(1), 1.718281828459045)],
  ['Math.floor', () => Math.floor(given.ten / 4) === 2 && Math.floor(-given.ten / 4) === -3],
  ['Math.log10', () => isNear(Math.log10(1000), 3)],
  ['Math.max', () => Math.max(given.ten, 3, 12) === 12 && Math.max(given.ten, 3) === 10],
  ['Math.min', () => Math.min(given.ten, 3, 12) === 3 && Math.min(given.ten, 12) === 10],
  ['Math.round', () => Math.round(given.ten / 6) === 2 && Math.round(given.ten / 8) === 1],
  ['Object', () => Object(given) === given && typeof Object(1) === 'object'],
  ['Map', () => {
    const map = new Map([[1, 'a']]).set(2, 'b');
    let keys = 0;
    for (const key of map.keys()) keys += key;
    return map.size === 2 && map.get(1) === 'a' && keys === 3 && [...map.values()].length === 2 &&
      map.delete(1) && map.get(1) === undefined;
  }],
  ['Set', () => {
    const set = new Set([1]).add(2).add(2);
    return set.size === 2 && [...set].length === 2 && set.has(2) && set.delete(2) && !set.has(2);
  }],
  ['JSON.parse', () => (JSON.parse('{"a":[1]}') as { a: number[] }).a[0] === 1],
  ['JSON.stringify', () => JSON.stringify({ a: 1, b: 'c' }) === '{"a":1,"b":"c"}'],
  ['Date', () => new Date(86_400_000).getTime() === 86_400_000],
  ['Date.now', () => Date.now() >= 0],
  ['Date.parse', () => Date.parse('1970-01-02T00:00:00Z') === 86_400_000],
  ['Date.prototype.toISOString', () => new Date(0).toISOString() === '1970-01-01T00:00:00.000Z'],
  ['RegExp.prototype.test', () => /^[0-9a-f]*$/.test('0f') && !/^[0-9a-f]*$/.test('g')],
  ['RegExp.prototype.exec', () => /(b)c/.exec('abc')?.[1] === 'b' && /d/.exec('abc') === null],
  ['TextEncoder', () => isList(new TextEncoder().encode('a\u00e9'), 97, 0xc3, 0xa9)],
  ['TextEncoder.prototype.encodeInto', () => {
    const bytes = new Uint8Array(3);
    return new TextEncoder().encodeInto('a\u00e9', bytes).written === 3 && isList(bytes, 97, 0xc3, 0xa9);
  }],
  ['TextDecoder', () => new TextDecoder().decode(new Uint8Array([97, 0xc3, 0xa9])) === 'a\u00e9'],
  ['atob', () => atob('AP8=') === '\u0000\u00ff'],
  ['btoa', () => btoa('\u0000\u00ff') === 'AP8='],
  ['URL', () => new URL('b.js', 'https://a.example/c/').href === 'https://a.example/c/b.js'],
  ['URL.prototype.toString', () => `${new URL('https://a.example/')}` === 'https://a.example/'],
  // The page's thread draws only the time of sending. engine-builtins.ts tests that two draws differ.
  ['crypto.getRandomValues', () => crypto.getRandomValues(new Uint32Array(1))[0]! >= 0],
  // This test is synchronous, so it cannot see whether promises resolve.
  ['Promise', () => {
    let ran = false;
    const promise = new Promise<void>((resolve) => ((ran = true), resolve()));
    const all = [promise.then(() => {}), promise.catch(() => {}), promise.finally(() => {}), Promise.resolve(1),
      Promise.all([promise, 1]), Promise.race([promise, promise])];
    for (let i = 0; i < all.length; i++) if (typeof all[i]!.then !== 'function') return false;
    return ran;
  }],
];

/** Whether a list has exactly these numbers. */
export function isList(list: ArrayLike<number>, ...want: number[]): boolean {
  return sameNumbers(list, want);
}

/** Whether two lists have the same numbers. */
export function sameNumbers(a: ArrayLike<number>, b: ArrayLike<number>): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

/** Whether two numbers differ only by rounding. */
function isNear(a: number, b: number): boolean {
  return a / b > 1 - 1e-15 && a / b < 1 + 1e-15;
}

/** Runs the tests in `list`. @throws DoonaError `builtin-broken`; `field` names the builtin */
export function checkBuiltins(list: readonly BuiltinTest[] = tests): void {
  for (let i = 0; i < list.length; i++) {
    const test = list[i]!;
    let works: unknown = false;
    try {
      works = test[1]();
    } catch {
      // The builtin is missing or throws.
    }
    if (works !== true) throw builtinBroken(test[0]);
  }
}

/** Returns the error for a builtin that fails its test. */
export function builtinBroken(name: string): DoonaError {
  const message = `couldn't run on this page: ${name} doesn't do what JavaScript says; ` +
    'a library has replaced it, or the browser is too old';
  return new DoonaError('builtin-broken', message, name);
}
