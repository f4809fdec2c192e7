/**
 * Tests the builtins that pages with a set use beside those of other pages.
 * @module
 */

import { type BuiltinTest, checkBuiltins } from './builtins.js';

const tests: readonly BuiltinTest[] = [
  ['Array.prototype.entries', () => {
    let text = '';
    for (const [i, x] of ['a', 'b'].entries()) text += i + x;
    return text === '0a1b';
  }],
  ['Array.prototype.findIndex', () => [4, 5].findIndex((x) => x > 4) === 1 && [4].findIndex((x) => x > 4) === -1],
  ['Object.entries', () => Object.entries({ a: 1, b: 2 }).join(' ') === 'a,1 b,2'],
  ['Object.fromEntries', () => {
    const { a, b } = Object.fromEntries([['a', 1], ['b', 2]]);
    return a === 1 && b === 2;
  }],
];

/** Tests all builtins that the page's script of sets uses. @throws DoonaError `builtin-broken` */
export function checkSetBuiltins(): void {
  checkBuiltins();
  checkBuiltins(tests);
}
