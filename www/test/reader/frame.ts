/**
 * The frame U of the protocol vectormean (docs/SPEC.md, section 11). It adds doubles in the order that the text gives,
 * so that its coefficients equal those of other implementations to the last bit.
 * @module
 */

const word = (1n << 64n) - 1n;

/** Generates the outputs of the generator SplitMix64. */
function* splitMix64(seed: bigint): Generator<bigint, never> {
  for (;;) {
    seed = (seed + 0x9e3779b97f4a7c15n) & word;
    let v = ((seed ^ (seed >> 30n)) * 0xbf58476d1ce4e5b9n) & word;
    v = ((v ^ (v >> 27n)) * 0x94d049bb133111ebn) & word;
    yield v ^ (v >> 31n);
  }
}

function hadamard(values: readonly number[]): number[] {
  const v = [...values];
  for (let half = 1; half < v.length; half *= 2) {
    for (let i = 0; i < v.length; i++) {
      if (i & half) continue;
      const [x, y] = [v[i]!, v[i + half]!];
      [v[i], v[i + half]] = [x + y, x - y];
    }
  }
  return v;
}

const largest = (v: readonly number[]) => Math.max(...v.map(Math.abs));

export class Frame {
  readonly size: number;
  readonly #columns: number[] = [];
  readonly #signs: number[] = [];

  constructor(d: number, seed: bigint) {
    this.size = 2;
    while (this.size < 2 * d) this.size *= 2;
    const unit = 1 / Math.sqrt(this.size);
    for (const v of splitMix64(seed)) {
      if (this.#columns.length === d) break;
      const column = Number((v >> 32n) & BigInt(this.size - 1));
      if (this.#columns.includes(column)) continue;
      this.#columns.push(column);
      this.#signs.push(v & 1n ? -unit : unit);
    }
  }

  /** Returns Ux: the frame coefficients of the vector x. */
  analyze(x: readonly number[]): number[] {
    const out = new Array<number>(this.size).fill(0);
    x.forEach((value, l) => (out[this.#columns[l]!] = value * this.#signs[l]!));
    return hadamard(out);
  }

  /** Returns Uᵀa: the vector with the frame coefficients a. */
  synthesize(a: readonly number[]): number[] {
    const out = hadamard(a);
    return this.#columns.map((column, l) => out[column]! * this.#signs[l]!);
  }

  /** Returns coefficients a with Uᵀa = x, if possible of at most c in absolute value. */
  represent(x: readonly number[], c: number): number[] {
    let z = this.analyze(x);
    let best = z;
    for (let step = 0; step < 100 && largest(best) > c; step++) {
      const most = 0.98 * c;
      const box = z.map((v) => Math.min(Math.max(v, -most), most));
      const reflected = box.map((b, j) => 2 * b - z[j]!);
      const sum = this.synthesize(reflected);
      const correction = this.analyze(x.map((v, l) => v - sum[l]!));
      const a = reflected.map((r, j) => r + correction[j]!);
      z = z.map((v, j) => v + (a[j]! - box[j]!));
      if (largest(a) < largest(best)) best = a;
    }
    return best;
  }
}
