/**
 * The paths of Deno and Bun in the installed Node packages.
 * @module
 */
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const packages = fileURLToPath(new URL('node_modules/', import.meta.url));

export const deno = join(packages, `@deno/linux-${process.arch}-glibc`);
export const bun = join(packages, `@oven/bun-linux-${process.arch === 'arm64' ? 'aarch64' : process.arch}`);
