/**
 * Times a short operation many times.
 * @module
 */

/** Time of every run in milliseconds, and size of a report in bytes. */
export interface Samples {
  readonly ms: number[];
  readonly bytes: number;
}

const warmUp = 40;
const runs = 60;

/** Makes one report and returns its size in bytes. */
export type Once = () => Promise<number>;

/** Warms up both sides, then measures them. The sides alternate, so that the machine's load affects both equally. */
export async function sample(ours: Once, peer: Once | null): Promise<{ ours: Samples; peer: Samples | null }> {
  const sides = [ours, ...(peer ? [peer] : [])].map((once) => ({ once, ms: [] as number[], bytes: 0 }));
  for (let i = 0; i < warmUp + runs; i++) {
    for (const side of sides) {
      const before = performance.now();
      side.bytes = await side.once();
      if (i >= warmUp) side.ms.push(performance.now() - before);
    }
  }
  const [mine, theirs] = sides.map(({ ms, bytes }) => ({ ms, bytes }));
  return { ours: mine!, peer: theirs ?? null };
}
