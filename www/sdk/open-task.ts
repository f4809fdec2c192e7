/**
 * A task that is open in a WASM module: in doona-small.wasm; in doona.wasm, if that lacks the task's protocol; in
 * doona-full.wasm, once such a module stops. The SDK then discards the output of the stopped module and randomizes
 * anew.
 * @module
 */

import type { Bytes } from './bytes.js';
import type { Draft, Engine, OpenRequest, OpenedTask } from './engine.js';
import type { ModuleName } from './module.js';

/** A task that passed every check. It moves to doona-full.wasm if its module stops. */
export class OpenTask {
  readonly #engine: Engine;
  readonly #request: Omit<OpenRequest, 'module'>;
  /** Starts doona-full.wasm. */
  readonly #startFull: () => Promise<unknown>;
  #opened: OpenedTask;

  private constructor(engine: Engine, request: Omit<OpenRequest, 'module'>, startFull: () => Promise<unknown>,
    opened: OpenedTask) {
    this.#engine = engine;
    this.#request = request;
    this.#startFull = startFull;
    this.#opened = opened;
  }

  /**
   * Opens a task in `module`, whose start `start` began, or in the one that it needs.
   * @throws DoonaError `task-refused`, `claim-refused`, `module-failed`; errors of `start`
   */
  static async open(engine: Engine, request: Omit<OpenRequest, 'module'>, module: ModuleName,
    start: (name: ModuleName) => Promise<unknown>): Promise<OpenTask> {
    const startFull = () => start('full');
    let opened = await engine.open({ ...request, module });
    if (opened === undefined) {
      await start('browser');
      opened = await engine.open({ ...request, module: 'browser' });
    }
    opened ??= await openFull(engine, request, startFull);
    return new OpenTask(engine, request, startFull, opened);
  }

  /** The checked task. */
  get opened(): OpenedTask {
    return this.#opened;
  }

  /** Returns the ε of `epochs` epochs together at `delta`; Infinity if no ε holds. */
  epsilonWithin(epochs: number, delta: number): Promise<number> {
    return this.#use((handle) => this.#engine.epsilonWithin(handle, epochs, delta));
  }

  /** Resolves if the task's module or doona-full.wasm runs. @throws DoonaError `module-failed` */
  async check(): Promise<void> {
    await this.#use((handle) => this.#engine.check(handle));
  }

  /**
   * Randomizes and seals a value. It zeroes the value or transfers its buffer to the worker.
   * @throws DoonaError as Engine.submission
   */
  submission(epoch: number, value: Float64Array): Promise<Bytes> {
    return this.#seal(value, (handle, given) => this.#engine.submission(handle, epoch, given));
  }

  /** Seals a draft, with the tags of the epoch's first one. Otherwise as submission. */
  draft(epoch: number, value: Float64Array, tags?: Bytes): Promise<Draft> {
    return this.#seal(value, (handle, given) => this.#engine.draft(handle, epoch, given, tags));
  }

  async #seal<T>(value: Float64Array, seal: (handle: number, value: Float64Array) => Promise<T | null>): Promise<T> {
    const copy = value.slice();
    const values = [copy, value];
    try {
      return await this.#use((handle) => seal(handle, values.pop()!));
    } finally {
      for (const held of [value, copy]) if (held.length > 0) held.fill(0); // An empty one was transferred.
    }
  }

  async #use<T>(work: (handle: number) => Promise<T | null>): Promise<T> {
    const result = await work(this.#opened.handle);
    if (result !== null) return result;
    this.#opened = await openFull(this.#engine, this.#request, this.#startFull);
    return (await work(this.#opened.handle))!;
  }
}

async function openFull(engine: Engine, request: Omit<OpenRequest, 'module'>,
  start: () => Promise<unknown>): Promise<OpenedTask> {
  await start();
  return (await engine.open({ ...request, module: 'full' }))!;
}
