/**
 * Timing something small many times.
 * @module
 */

/** Milliseconds of every run, and the size of what it made. */
export interface Samples {
  readonly ms: number[];
  readonly bytes: number;
}

const warmUp = 40;
const runs = 60;

/** Runs `once` until it is warm and then measures it. */
export async function sample(once: () => Promise<number>): Promise<Samples> {
  let bytes = 0;
  for (let i = 0; i < warmUp; i++) bytes = await once();
  const ms: number[] = [];
  for (let i = 0; i < runs; i++) {
    const before = performance.now();
    await once();
    ms.push(performance.now() - before);
  }
  return { ms, bytes };
}
