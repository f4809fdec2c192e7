/**
 * What the CommonJS files doona.cjs and testing.cjs need of Node. www/build injects this file into them: its exports
 * replace the globals of these names.
 * @module
 */

/** The globals of Node itself. Jest's environment jsdom hides some of them from tests. */
const node = globalThis.process.getBuiltinModule('node:vm').runInThisContext('globalThis') as typeof globalThis;

/** The address of this script: a CommonJS module has no import.meta. */
export const scriptURL: string = globalThis.process.getBuiltinModule('node:url').pathToFileURL(__filename).href;

export const TextEncoder = globalThis.TextEncoder ?? node.TextEncoder;
export const TextDecoder = globalThis.TextDecoder ?? node.TextDecoder;
export const Request = globalThis.Request ?? node.Request;
export const Response = globalThis.Response ?? node.Response;
export const crypto = globalThis.crypto?.subtle ? globalThis.crypto : node.crypto;
