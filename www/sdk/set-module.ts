/**
 * Calls doona-set.wasm, the module of pages with a set. It has the exports of doona-small.wasm and `set_delta`, as has
 * doona-full.wasm. Class Module calls the other modules.
 * @module
 */

import type { Bytes } from './bytes.js';
import { type Exports, type Host, ModuleError, ModuleStopped, importsOf, initialize, maxGrowth, readLanes,
  readStrings } from './module.js';
import { wasi } from './wasi.js';

/** What a set's module exports beside the exports of the other modules. */
interface SetExports extends Exports {
  set_delta(): number;
}

/** The copies of a table's law: the table's handle, and how many. */
export type Copies = readonly [handle: number, count: number];

/** A running module. */
export class SetModule {
  readonly #compiled: WebAssembly.Module;
  readonly #collects: boolean;
  #exports: SetExports;
  /** The memory size, in bytes, above which a fresh instance replaces this one. */
  #restartSize: number;
  #stopped: ModuleStopped | undefined;
  /** The canonical tasks opened so far, by handle. */
  readonly #opened: Bytes[] = [];

  private constructor(compiled: WebAssembly.Module, collects: boolean, exports: SetExports) {
    this.#compiled = compiled;
    this.#collects = collects;
    this.#exports = exports;
    this.#restartSize = this.#size() + maxGrowth;
  }

  /** Starts a module. Only doona-full.wasm collects garbage. @throws ModuleStopped */
  static async start(compiled: WebAssembly.Module, collects = false): Promise<SetModule> {
    const host = wasi();
    try {
      return new SetModule(compiled, collects, begin(host, await WebAssembly.instantiate(compiled, importsOf(host))));
    } catch (cause) {
      throw new ModuleStopped(`couldn't start the module: ${(cause as Error).message}`, { cause });
    }
  }

  /** Opens a canonical task, checks its claim and returns the task's handle. @throws ModuleError */
  open(canonical: Bytes): number {
    return this.#run(() => {
      const handle = this.#open(canonical);
      this.#opened.push(canonical);
      return handle;
    });
  }

  /** Returns the δ at `epsilon` of all copies of the tables' laws together. `delta` is the δ that the set claims. */
  setDelta(epsilon: number, delta: number, tables: readonly Copies[]): number {
    return this.#run((exports) => {
      const argument = new Uint8Array(16 + 8 * tables.length);
      const view = new DataView(argument.buffer);
      view.setFloat64(0, epsilon, true);
      view.setFloat64(8, delta, true);
      tables.forEach(([handle, count], i) => {
        view.setUint32(16 + 8 * i, handle, true);
        view.setUint32(20 + 8 * i, count, true);
      });
      this.#write(argument);
      return exports.set_delta();
    });
  }

  /** Returns the plaintext slot of a value: kind (1 byte) ‖ message. @throws ModuleError */
  slot(handle: number, value: Float64Array, size: number): Bytes {
    return this.#run((exports) => {
      const bytes = new Uint8Array(8 * value.length);
      const view = new DataView(bytes.buffer);
      value.forEach((x, i) => view.setFloat64(8 * i, x, true));
      this.#write(bytes);
      bytes.fill(0);
      this.#check(exports.randomize(handle));
      const slots = this.#result();
      exports.input(0); // The module now overwrites the unsealed slot with zeros.
      return readLanes(slots, size)[0]![0]!;
    });
  }

  #run<T>(work: (exports: SetExports) => T): T {
    if (this.#stopped) throw this.#stopped;
    try {
      if (!this.#collects && this.#size() > this.#restartSize) this.#restart();
      return work(this.#exports);
    } catch (cause) {
      if (cause instanceof ModuleError) throw cause;
      new Uint8Array(this.#exports.memory.buffer).fill(0); // The memory may still contain the value.
      this.#stopped = new ModuleStopped(`the module stopped: ${(cause as Error).message}`, { cause });
      throw this.#stopped;
    }
  }

  /** Starts a fresh instance, zeroes the old instance's memory, and opens the same tasks under the same handles. */
  #restart(): void {
    const host = wasi();
    const old = this.#exports;
    this.#exports = begin(host, new WebAssembly.Instance(this.#compiled, importsOf(host)));
    new Uint8Array(old.memory.buffer).fill(0);
    this.#opened.forEach((canonical, handle) => {
      if (this.#open(canonical) !== handle) throw new Error('a fresh instance gave a task another handle');
    });
    this.#restartSize = this.#size() + maxGrowth;
  }

  #open(canonical: Bytes): number {
    this.#write(canonical);
    return this.#check(this.#exports.open());
  }

  #size(): number {
    return this.#exports.memory.buffer.byteLength;
  }

  #write(bytes: Uint8Array): void {
    const at = this.#exports.input(bytes.length) >>> 0;
    new Uint8Array(this.#exports.memory.buffer, at, bytes.length).set(bytes);
  }

  #result(): Bytes {
    const at = this.#exports.result() >>> 0;
    return new Uint8Array(this.#exports.memory.buffer, at, this.#exports.result_size() >>> 0).slice();
  }

  #check(status: number): number {
    if (status >= 0) return status;
    const [first, got, want] = readStrings(this.#result());
    if (want === undefined) throw new ModuleError(undefined, first ?? '');
    throw new ModuleError(first, `invalid ${first} ${got}: want ${want}`);
  }
}

function begin(host: Host, instance: WebAssembly.Instance): SetExports {
  return initialize(host, instance) as SetExports;
}
