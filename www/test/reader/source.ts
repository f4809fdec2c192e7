/**
 * The samplers of docs/SPEC.md, section 10, implemented from its text alone. This folder shares no code with the SDK or
 * the Go packages. The code is slow and plain: every integer is a BigInt.
 * @module
 */

const two64 = 1n << 64n;

/** A fraction in lowest terms. */
export interface Rational {
  num: bigint;
  den: bigint;
}

/** The parameters of the distribution Jumps. A max of 0 means none. */
export interface Jumps {
  rate: Rational;
  max: bigint;
}

/** A kind of event: its weight and the distribution of its size. */
export interface Atom {
  weight: bigint;
  jumps: Jumps;
}

/** A drawn event: the index of its atom, and its size. */
export interface Event {
  atom: number;
  size: bigint;
}

export function reduced(num: bigint, den: bigint): Rational {
  let [a, b] = [num < 0n ? -num : num, den];
  while (b > 0n) [a, b] = [b, a % b];
  return { num: num / a, den: den / a };
}

/** Parses `a` or `a/b` in lowest terms (section 3). */
export function rational(text: string): Rational {
  const parts = /^(-?[1-9][0-9]*|0)(?:\/([1-9][0-9]*))?$/.exec(text);
  if (!parts) throw new Error(`no rational: ${text}`);
  const r = { num: BigInt(parts[1]!), den: BigInt(parts[2] ?? 1) };
  const low = reduced(r.num, r.den);
  if (low.den !== r.den || parts[2] === '1') throw new Error(`not in lowest terms: ${text}`);
  return r;
}

export const toNumber = (r: Rational): number => Number(r.num) / Number(r.den);

function bitLength(n: bigint): bigint {
  return BigInt(n === 0n ? 0 : n.toString(2).length);
}

function ones(n: bigint): bigint {
  return BigInt(n.toString(2).replaceAll('0', '').length);
}

/** Returns I and C, which section 10 defines for Jumps. */
export function candidates({ rate, max }: Jumps): { last: bigint; count: bigint } {
  let i = 0n;
  const reached = () => (rate.num << i) >= rate.den;
  while (!reached() && !(max > 0n && 1n << i > max)) i++;
  return { last: i, count: reached() ? i + 1n : i };
}

/** The samplers, on a given sequence of random bytes. */
export class Source {
  readonly #bytes: Uint8Array;
  used = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  draw(): bigint {
    if (this.used + 8 > this.#bytes.length) throw new Error('the vector has no more bytes');
    let v = 0n;
    for (let i = 0; i < 8; i++) v = (v << 8n) | BigInt(this.#bytes[this.used++]!);
    return v;
  }

  below(n: bigint): bigint {
    if (n < 1n || n >= two64) throw new Error(`Below(${n})`);
    if (n === 1n) return 0n;
    const mask = (1n << bitLength(n - 1n)) - 1n;
    for (;;) {
      const v = this.draw() & mask;
      if (v < n) return v;
    }
  }

  bernoulli(p: Rational): boolean {
    return this.below(p.den) < p.num;
  }

  randomizedResponse(x: bigint, k: bigint, gamma: Rational): bigint {
    const c = this.bernoulli(gamma);
    const y = this.below(k);
    return c ? y : x;
  }

  round(u: bigint, k: bigint): bigint {
    const product = k * u;
    const [i, f] = [product >> 53n, product & ((1n << 53n) - 1n)];
    return this.below(1n << 53n) < f ? i + 1n : i;
  }

  shuffle<T>(things: T[]): T[] {
    for (let i = things.length - 1; i >= 1; i--) {
      const j = Number(this.below(BigInt(i + 1)));
      [things[i], things[j]] = [things[j]!, things[i]!];
    }
    return things;
  }

  evenRun(a: bigint, b: bigint, from: bigint): boolean {
    let j = from;
    while (!(this.below(b) >= a || this.below(j) !== 0n)) j++;
    return (j - from) % 2n === 0n;
  }

  bernoulliExp(a: bigint, b: bigint): boolean {
    for (let whole = a / b; whole > 0n; whole--) {
      if (!this.evenRun(1n, 1n, 1n)) return false;
    }
    const r = a % b;
    return r === 0n || this.evenRun(r, b, 1n);
  }

  geometric({ num: a, den: b }: Rational): bigint {
    let u: bigint;
    do u = this.below(b);
    while (!(u === 0n || this.evenRun(u, b, 1n)));
    let v = 0n;
    while (this.evenRun(1n, 1n, 1n)) v++;
    return (u + b * v) / a;
  }

  discreteLaplace(rate: Rational): bigint {
    for (;;) {
      const s = this.below(2n);
      const k = this.geometric(rate);
      if (s === 0n) return k;
      if (k > 0n) return -k;
    }
  }

  heads(n: bigint): bigint {
    let sum = 0n;
    for (let i = n / 64n; i > 0n; i--) sum += ones(this.draw());
    if (n % 64n > 0n) sum += ones(this.draw() >> (64n - (n % 64n)));
    return sum;
  }

  binomial(n: bigint, { num: a, den: b }: Rational): bigint {
    if (a === b) return n;
    let [m, sum] = [n, 0n];
    for (let value = b / 2n; value >= 1n && m > 0n; value /= 2n) {
      const c = this.heads(m);
      if (a & value) {
        sum += m - c;
        m = c;
      } else {
        m -= c;
      }
    }
    return sum;
  }

  poisson({ num: a, den: b }: Rational): bigint {
    let sum = this.#smallPoisson((2n * a) % b, 2n * b);
    for (let h = (2n * a) / b; h > 0n; h--) sum += this.#smallPoisson(1n, 2n);
    return sum;
  }

  #smallPoisson(a: bigint, b: bigint): bigint {
    if (a === 0n) return 0n;
    let s = 0;
    while (this.below(b) < a) s++;
    let k = 0n;
    for (; s > 0; s--) {
      k++;
      if (this.below(k) !== 0n) k = 0n;
    }
    return k;
  }

  negativeBinomial({ num: a, den: b }: Rational, rate: Rational): bigint {
    let sum = 0n;
    for (let whole = a / b; whole > 0n; whole--) sum += this.geometric(rate);
    const r = a % b;
    if (r === 0n) return sum;
    const jumps = { rate, max: 0n };
    for (let n = this.poisson(reduced(r * candidates(jumps).count, b)); n > 0n; n--) sum += this.jump(jumps);
    return sum;
  }

  jump(jumps: Jumps): bigint {
    const { rate, max } = jumps;
    const { last, count } = candidates(jumps);
    const i = this.below(count);
    const w = 1n << i;
    let k = w + this.below(w);
    let far = 0n;
    if (i === last) {
      far = 1n + this.#zeros();
      k += w * (far - 1n);
    }
    if ((max > 0n && k > max) || this.below(k) >= w) return 0n;
    for (let times = far; times > 0n; times--) {
      if (!this.evenRun(1n, 1n, 3n)) return 0n;
    }
    return this.bernoulliExp(rate.num * k - far * rate.den, rate.den) ? k : 0n;
  }

  #zeros(): bigint {
    const v = this.draw();
    return v === 0n ? 64n + this.#zeros() : bitLength(v & -v) - 1n;
  }

  /** The sampler Events. `found` gets each event and may draw itself. */
  eachEvent(atoms: readonly Atom[], den: bigint, found: (event: Event) => void): void {
    const masses = atoms.map(({ weight, jumps }) => weight * candidates(jumps).count);
    const total = masses.reduce((a, b) => a + b, 0n);
    if (total === 0n) return;
    for (let n = this.poisson(reduced(total, den)); n > 0n; n--) {
      let v = this.below(total);
      const atom = masses.findIndex((mass) => (v -= mass) < 0n);
      const size = this.jump(atoms[atom]!.jumps);
      if (size > 0n) found({ atom, size });
    }
  }

  events(atoms: readonly Atom[], den: bigint): Event[] {
    const out: Event[] = [];
    this.eachEvent(atoms, den, (event) => out.push(event));
    return out;
  }
}
