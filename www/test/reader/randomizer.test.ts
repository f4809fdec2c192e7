/**
 * Tests every sampler and the permutation with the vectors of randomizer.json.
 * @module
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { hex, read } from './files.ts';
import { candidates, rational, Source } from './source.ts';

const jumps = (v: any) => ({ rate: rational(v.rate), max: BigInt(v.max) });

const events = (source: Source, v: any) => {
  const atoms = v.atoms.map((a: any) => ({ weight: BigInt(a.weight), jumps: jumps(a) }));
  return source.events(atoms, BigInt(v.den)).map(({ atom, size }) => `${atom}:${size}`);
};

const samplers: Record<string, (source: Source, v: any) => unknown> = {
  below: (s, { n }) => s.below(BigInt(n)),
  bernoulli: (s, { p }) => Number(s.bernoulli(rational(p))),
  randomizedResponse: (s, { x, k, gamma }) => s.randomizedResponse(BigInt(x), BigInt(k), rational(gamma)),
  round: (s, { u, k }) => s.round(BigInt(u), BigInt(k)),
  bernoulliExp: (s, { g }) => Number(s.bernoulliExp(rational(g).num, rational(g).den)),
  geometric: (s, { rate }) => s.geometric(rational(rate)),
  discreteLaplace: (s, { rate }) => s.discreteLaplace(rational(rate)),
  poisson: (s, { lambda }) => s.poisson(rational(lambda)),
  negativeBinomial: (s, { r, rate }) => s.negativeBinomial(rational(r), rational(rate)),
  binomial: (s, { n, p }) => s.binomial(BigInt(n), rational(p)),
  jump: (s, v) => {
    assert.equal(String(candidates(jumps(v)).count), v.candidates);
    return s.jump(jumps(v));
  },
  events: (s, v) => events(s, v).join(' '),
  shuffle: (s, { n }) => s.shuffle(Array.from({ length: Number(n) }, (_, i) => i)).join(' '),
};

const vectors: any[] = read('randomizer');

for (const [name, sampler] of Object.entries(samplers)) {
  test(`randomizer.json: ${name}`, () => {
    const own = vectors.filter((v) => v.sampler === name);
    assert.ok(own.length >= 5, `${own.length} vectors`);
    for (const v of own) {
      const source = new Source(hex(v.bytes));
      assert.equal(String(sampler(source, v)), v.result, JSON.stringify(v));
      assert.equal(source.used, v.used, JSON.stringify(v));
    }
  });
}

test('randomizer.json: every sampler is tested', () => {
  assert.deepEqual(new Set(vectors.map((v) => v.sampler)), new Set(Object.keys(samplers)));
});
