/**
 * The WASI functions that the Go runtime in the WASM modules imports (wasm/*\/host.txt). They offer only what the
 * runtime needs: random bytes and a clock, but no file system and no network.
 * @module
 */

const success = 0;
const badDescriptor = 8;

/** The module called proc_exit. A module that exited cannot run again. */
export class ModuleExit extends Error {}

/** Returns the imports of an instance. Call `attach` with its memory before it runs. */
export function wasi(): { imports: WebAssembly.ModuleImports; attach: (memory: WebAssembly.Memory) => void } {
  let memory: WebAssembly.Memory;
  let stderr = ''; // the last 2000 characters that the runtime wrote to standard error, for ModuleExit
  const view = () => new DataView(memory.buffer);

  const empty = (count: number, size: number): number => {
    view().setUint32(count, 0, true);
    view().setUint32(size, 0, true);
    return success;
  };
  const write = (_fd: number, vectors: number, count: number, written: number): number => {
    let total = 0;
    for (let i = 0; i < count; i++) {
      const at = view().getUint32(vectors + 8 * i, true);
      const size = view().getUint32(vectors + 8 * i + 4, true);
      stderr = (stderr + new TextDecoder().decode(new Uint8Array(memory.buffer, at, size))).slice(-2000);
      total += size;
    }
    view().setUint32(written, total, true);
    return success;
  };
  // Ends every wait at once: the Go runtime sleeps only when it has nothing to do.
  const poll = (_subscriptions: number, events: number, count: number, ready: number): number => {
    new Uint8Array(memory.buffer, events, 32 * count).fill(0);
    view().setUint32(ready, count, true);
    return success;
  };
  const random = (at: number, size: number): number => {
    const most = 65536; // the limit of getRandomValues
    for (let done = 0; done < size; done += most) {
      crypto.getRandomValues(new Uint8Array(memory.buffer, at + done, Math.min(most, size - done)));
    }
    return success;
  };
  const clock = (_id: number, _precision: bigint, at: number): number => {
    view().setBigUint64(at, BigInt(Math.round(performance.now() * 1e6)), true);
    return success;
  };
  const noFile = () => badDescriptor;

  return {
    imports: {
      args_get: () => success,
      args_sizes_get: empty,
      environ_get: () => success,
      environ_sizes_get: empty,
      clock_time_get: clock,
      fd_close: noFile,
      fd_fdstat_get: noFile,
      fd_fdstat_set_flags: noFile,
      fd_prestat_dir_name: noFile,
      fd_prestat_get: noFile,
      fd_read: noFile,
      fd_write: write,
      poll_oneoff: poll,
      proc_exit: (code: number) => {
        throw new ModuleExit(`the module exited with ${code}: ${stderr.trim()}`);
      },
      random_get: random,
      sched_yield: () => success,
    },
    attach: (m) => {
      memory = m;
    },
  };
}
