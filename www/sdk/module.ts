/**
 * A running WASM module, doona.wasm or doona-full.wasm: docs/wasm.md is its ABI.
 * @module
 */

import { type Bytes, concat } from './bytes.js';
import { wasi } from './wasi.js';

/** The exports of both modules; the last two are doona-full.wasm's. */
interface Exports {
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
  submission(handle: number, epoch: bigint): number;
}

/** An error the module returned: a field error, or a message alone. */
export class ModuleError extends Error {
  constructor(
    readonly field: string | undefined,
    message: string,
  ) {
    super(message);
  }
}

/** The module stopped: the runtime's last words, a trap, or a function that was left out of it. It never runs again. */
export class ModuleStopped extends Error {}

/** Plaintext slots by lane: kind ‖ message, all of one size. */
export type Lanes = readonly (readonly Bytes[])[];

/** Zeros plaintext slots. */
export function forget(lanes: Lanes): void {
  for (const slots of lanes) slots.forEach((slot) => slot.fill(0));
}

/** One instance; a page needs one for all its tasks. */
export class Module {
  readonly #exports: Exports;
  #stopped: ModuleStopped | undefined;

  private constructor(exports: Exports) {
    this.#exports = exports;
  }

  /** @throws ModuleStopped */
  static async start(compiled: WebAssembly.Module): Promise<Module> {
    const host = wasi();
    try {
      const instance = await WebAssembly.instantiate(compiled, { wasi_snapshot_preview1: host.imports });
      const exports = instance.exports as unknown as Exports;
      host.attach(exports.memory);
      exports._initialize();
      return new Module(exports);
    } catch (cause) {
      throw new ModuleStopped(`couldn't start the module: ${(cause as Error).message}`, { cause });
    }
  }

  /** @throws ModuleStopped where it has stopped before, as every method below */
  alive(): void {
    if (this.#stopped) throw this.#stopped;
  }

  /** Opens a canonical task and checks its claim. @throws ModuleError */
  open(canonical: Bytes): number {
    return this.#run((exports) => {
      this.#write(canonical);
      return this.#check(exports.open());
    });
  }

  /** Opens a bundle: all of connect's checks. doona-full.wasm only. @throws ModuleError */
  openBundle(owner: Bytes, id: Bytes, bundle: Bytes): number {
    return this.#run((exports) => {
      this.#write(concat(owner, id, bundle));
      return this.#check(exports.open_bundle());
    });
  }

  /** The ε₀ of one client's messages; Infinity where the protocol has none. */
  epsilon0(handle: number): number {
    return this.#run((exports) => exports.epsilon0(handle));
  }

  /** ε of all epochs of the task together. */
  totalEpsilon(handle: number): number {
    return this.#run((exports) => exports.total_epsilon(handle));
  }

  /** ε of so many epochs together at a δ, of a stream also of more than the task has; Infinity if there is none. */
  epsilonWithin(handle: number, epochs: number, delta: number): number {
    return this.#run((exports) => exports.epsilon_within(handle, epochs, delta));
  }

  /** Randomizes a value into padded slots. @throws ModuleError */
  randomize(handle: number, value: Float64Array, slotSize: number): Lanes {
    return this.#run((exports) => {
      this.#writeValue(value);
      this.#check(exports.randomize(handle));
      const slots = this.#result();
      exports.input(0); // forget the unsealed result
      return readLanes(slots, slotSize);
    });
  }

  /** Randomizes and seals a value. doona-full.wasm only. @throws ModuleError */
  submission(handle: number, epoch: number, value: Float64Array): Bytes {
    return this.#run((exports) => {
      this.#writeValue(value);
      this.#check(exports.submission(handle, BigInt(epoch)));
      return this.#result();
    });
  }

  #run<T>(work: (exports: Exports) => T): T {
    this.alive();
    try {
      return work(this.#exports);
    } catch (cause) {
      if (cause instanceof ModuleError) throw cause;
      new Uint8Array(this.#exports.memory.buffer).fill(0); // the value is in it
      this.#stopped = new ModuleStopped(`the module stopped: ${(cause as Error).message}`, { cause });
      throw this.#stopped;
    }
  }

  #write(bytes: Uint8Array): void {
    const at = this.#exports.input(bytes.length);
    new Uint8Array(this.#exports.memory.buffer, at, bytes.length).set(bytes);
  }

  #writeValue(value: Float64Array): void {
    const bytes = new Uint8Array(8 * value.length);
    const view = new DataView(bytes.buffer);
    value.forEach((x, i) => view.setFloat64(8 * i, x, true));
    this.#write(bytes);
    bytes.fill(0);
  }

  #result(): Bytes {
    return new Uint8Array(this.#exports.memory.buffer, this.#exports.result(), this.#exports.result_size()).slice();
  }

  #check(status: number): number {
    if (status >= 0) return status;
    const [first, got, want] = readStrings(this.#result());
    if (want === undefined) throw new ModuleError(undefined, first ?? '');
    throw new ModuleError(first, `invalid ${first} ${got}: want ${want}`);
  }
}

function readLanes(result: Bytes, slotSize: number): Lanes {
  const view = new DataView(result.buffer);
  const lanes: Bytes[][] = [];
  for (let at = 0; at < result.length; ) {
    const slots = view.getUint32(at, true);
    at += 4;
    lanes.push(Array.from({ length: slots }, () => result.subarray(at, (at += slotSize))));
  }
  return lanes;
}

function readStrings(result: Bytes): string[] {
  const view = new DataView(result.buffer);
  const out: string[] = [];
  for (let at = 0; at < result.length; ) {
    const size = view.getUint32(at, true);
    out.push(new TextDecoder().decode(result.subarray(at + 4, at + 4 + size)));
    at += 4 + size;
  }
  return out;
}
