/**
 * Calls a running WASM module: doona-small.wasm, doona.wasm or doona-full.wasm. docs/wasm.md documents its ABI.
 * @module
 */

import { type Bytes, concat } from './bytes.js';
import { wasi } from './wasi.js';

/** The size of the tag in every layer of a report, in bytes. */
export const tagSize = 16;

/**
 * Names a module: `browser` is doona.wasm, for every page; `small` is doona-small.wasm, the same with fewer protocols;
 * `full` is doona-full.wasm, which also seals.
 */
export type ModuleName = 'browser' | 'small' | 'full';

/** The exports of the modules. Only doona-full.wasm has the last two. */
export interface Exports {
  memory: WebAssembly.Memory;
  _initialize(): void;
  input(size: number): number;
  result(): number;
  result_size(): number;
  open(): number;
  epsilon0(handle: number): number;
  total_epsilon(handle: number): number;
  epsilon_within(handle: number, epochs: number, delta: number): number;
  randomize(handle: number): number;
  open_bundle(): number;
  submission(handle: number, epoch: bigint, tags: number): number;
}

/** An error that the module returned. `field` names the invalid field, if one is at fault. */
export class ModuleError extends Error {
  constructor(
    readonly field: string | undefined,
    message: string,
  ) {
    super(message);
  }
}

/**
 * The module stopped and cannot run again: its runtime exited, it trapped, or it called a function that its build left
 * out.
 */
export class ModuleStopped extends Error {}

/** Plaintext slots by lane. Each slot is kind (1 byte) ‖ message; all slots have the same size. */
export type Lanes = readonly (readonly Bytes[])[];

/** Overwrites plaintext slots with zeros. */
export function zeroLanes(lanes: Lanes): void {
  for (const slots of lanes) slots.forEach((slot) => slot.fill(0));
}

/**
 * How much the memory of doona.wasm may grow, in bytes, before a fresh instance replaces it: doona.wasm never collects
 * garbage. A report takes some kilobytes; a report of a long vector takes megabytes.
 */
export const maxGrowth = 64 * 2 ** 20;

/** A running WASM module. One instance serves all tasks of a page. */
export class Module {
  readonly #compiled: WebAssembly.Module;
  readonly #collects: boolean;
  #exports: Exports;
  /** The memory size, in bytes, above which a fresh instance replaces this one. */
  #restartSize: number;
  #stopped: ModuleStopped | undefined;
  /** The tasks opened so far, by handle. */
  readonly #opened: { readonly by: 'open' | 'open_bundle'; readonly argument: Bytes }[] = [];

  private constructor(compiled: WebAssembly.Module, collects: boolean, exports: Exports) {
    this.#compiled = compiled;
    this.#collects = collects;
    this.#exports = exports;
    this.#restartSize = this.#size() + maxGrowth;
  }

  /** Starts a module. Only doona-full.wasm collects garbage. @throws ModuleStopped */
  static async start(compiled: WebAssembly.Module, name: ModuleName = 'browser'): Promise<Module> {
    const host = wasi();
    try {
      const instance = await WebAssembly.instantiate(compiled, importsOf(host));
      return new Module(compiled, name === 'full', initialize(host, instance));
    } catch (cause) {
      throw new ModuleStopped(`couldn't start the module: ${(cause as Error).message}`, { cause });
    }
  }

  /** Checks that the module runs, as every method below does. @throws ModuleStopped */
  alive(): void {
    if (this.#stopped) throw this.#stopped;
  }

  /** Opens a canonical task, checks its claim and returns the task's handle. @throws ModuleError */
  open(canonical: Bytes): number {
    return this.#run(() => this.#open('open', canonical));
  }

  /**
   * Opens a bundle, runs all checks of `connect` and returns the task's handle. doona-full.wasm only.
   * @throws ModuleError
   */
  openBundle(owner: Bytes, id: Bytes, bundle: Bytes): number {
    return this.#run(() => this.#open('open_bundle', concat(owner, id, bundle)));
  }

  /** Returns ε₀ of one client's messages; Infinity if the protocol has none. */
  epsilon0(handle: number): number {
    return this.#run((exports) => exports.epsilon0(handle));
  }

  /** Returns the ε of all epochs of the task together. */
  totalEpsilon(handle: number): number {
    return this.#run((exports) => exports.total_epsilon(handle));
  }

  /**
   * Returns the ε of `epochs` epochs together at `delta`; Infinity if no ε holds. A stream may need more epochs than
   * its task has.
   */
  epsilonWithin(handle: number, epochs: number, delta: number): number {
    return this.#run((exports) => exports.epsilon_within(handle, epochs, delta));
  }

  /** Randomizes a value into padded slots. @throws ModuleError */
  randomize(handle: number, value: Float64Array, slotSize: number): Lanes {
    return this.#run((exports) => {
      this.#writeValue(value);
      this.#check(exports.randomize(handle));
      const slots = this.#result();
      exports.input(0); // The module now overwrites the unsealed slots with zeros.
      return readLanes(slots, slotSize);
    });
  }

  /** Randomizes and seals a value, with the given tags or random ones. doona-full.wasm only. @throws ModuleError */
  submission(handle: number, epoch: number, value: Float64Array, tags: Bytes = new Uint8Array()): Bytes {
    return this.#run((exports) => {
      this.#writeValue(value, tags);
      this.#check(exports.submission(handle, BigInt(epoch), tags.length / tagSize));
      return this.#result();
    });
  }

  #run<T>(work: (exports: Exports) => T): T {
    this.alive();
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
    this.#exports = initialize(host, new WebAssembly.Instance(this.#compiled, importsOf(host)));
    new Uint8Array(old.memory.buffer).fill(0);
    this.#opened.forEach(({ by, argument }, handle) => {
      if (this.#openInstance(by, argument) !== handle) throw new Error('a fresh instance gave a task another handle');
    });
    this.#restartSize = this.#size() + maxGrowth;
  }

  #open(by: 'open' | 'open_bundle', argument: Bytes): number {
    const handle = this.#openInstance(by, argument);
    this.#opened.push({ by, argument });
    return handle;
  }

  #openInstance(by: 'open' | 'open_bundle', argument: Bytes): number {
    this.#write(argument);
    return this.#check(this.#exports[by]());
  }

  #size(): number {
    return this.#exports.memory.buffer.byteLength;
  }

  #write(bytes: Uint8Array): void {
    const at = this.#exports.input(bytes.length) >>> 0;
    new Uint8Array(this.#exports.memory.buffer, at, bytes.length).set(bytes);
  }

  #writeValue(value: Float64Array, tags?: Bytes): void {
    const bytes = new Uint8Array((tags?.length ?? 0) + 8 * value.length);
    const view = new DataView(bytes.buffer, tags?.length);
    if (tags) bytes.set(tags);
    value.forEach((x, i) => view.setFloat64(8 * i, x, true));
    this.#write(bytes);
    bytes.fill(0);
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

export type Host = ReturnType<typeof wasi>;

export const importsOf = (host: Host): WebAssembly.Imports => ({ wasi_snapshot_preview1: host.imports });

export function initialize(host: Host, instance: WebAssembly.Instance): Exports {
  const exports = instance.exports as unknown as Exports;
  host.attach(exports.memory);
  exports._initialize();
  return exports;
}

export function readLanes(result: Bytes, slotSize: number): Lanes {
  const view = new DataView(result.buffer);
  const lanes: Bytes[][] = [];
  for (let at = 0; at < result.length; ) {
    const slots = view.getUint32(at, true);
    at += 4;
    const lane: Bytes[] = [];
    for (let i = 0; i < slots; i++) lane.push(result.subarray(at, (at += slotSize)));
    lanes.push(lane);
  }
  return lanes;
}

export function readStrings(result: Bytes): string[] {
  const view = new DataView(result.buffer);
  const out: string[] = [];
  for (let at = 0; at < result.length; ) {
    const size = view.getUint32(at, true);
    out.push(new TextDecoder().decode(result.subarray(at + 4, at + 4 + size)));
    at += 4 + size;
  }
  return out;
}
