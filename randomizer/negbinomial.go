package randomizer

import "math/bits"

// NegativeBinomial returns k ≥ 0 with probability exactly C(k+r-1, k)·(1-p)^r·p^k, p = e^{-rate}, for r ≥ 0 with a
// denominator of at most 2⁵⁶ and rate ≥ [MinRate]. This is the number of successes of probability p before the r-th
// failure, extended to any rational r. Its part for ⌊r⌋ is a sum of [Source.Geometric]. For the remaining fraction f,
// NB(f, p) is a compound Poisson variable: the sum of the jumps of a Poisson process with f·p^k/k expected jumps of
// size k ≥ 1, because
//
//	Σ_k (z^k-1)·f·p^k/k = f·ln((1-p)/(1-pz)).
//
// It consumes the draws of one [Source.Poisson] of mean f·[Jumps.Candidates], under 1.5·f·ln(1/rate) + 2f, and about
// 10 for each of the candidates it finds.
func (s *Source) NegativeBinomial(r, rate Rational) uint64 {
	if r.Num < 0 || r.Den > maxWeight {
		panic("randomizer: NegativeBinomial of r out of range: " + r.String())
	}
	jumps := NewJumps(rate, 0)
	sum := uint64(0)
	for whole := uint64(r.Num) / r.Den; whole > 0; whole-- {
		sum += s.Geometric(rate)
	}
	fraction := uint64(r.Num) % r.Den
	if fraction == 0 {
		return sum
	}
	for found := s.Poisson(NewRational(int64(fraction*jumps.Candidates()), r.Den)); found > 0; found-- {
		sum += s.Jump(jumps)
	}
	return sum
}

// Polya is [Source.NegativeBinomial] under its name in [BBGN19b] for rational r.
//
// [BBGN19b]: https://arxiv.org/abs/1906.09116
func (s *Source) Polya(r, rate Rational) uint64 { return s.NegativeBinomial(r, rate) }

// maxWeight bounds denominators that are multiplied by a number of candidates.
const maxWeight = 1 << 56

// Jumps is the measure that gives the size k the mass e^{-rate·k}/k, 1 ≤ k ≤ Max: the jumps of compound Poisson
// noise, which is NB(1, e^{-rate}) if k has no bound. Its total mass is irrational, so jumps are thinned from
// candidates: Candidates() disjoint blocks of sizes, each of mass at most 1. [Source.Jump] turns each candidate into
// a jump or drops it. A Poisson process with r·Candidates() expected candidates has exactly r times this measure.
type Jumps struct {
	rate  Rational
	max   uint64
	first uint64 // I: the blocks are [2^i, 2^{i+1}) for i < I, and if open, one more from 2^I on.
	open  bool
}

// NewJumps returns the measure for a rate ≥ [MinRate] and sizes up to max, 0 for no bound. With a bound the rate may
// be 0: mass 1/k.
func NewJumps(rate Rational, max uint64) Jumps {
	if max == 0 || rate.Num != 0 {
		checkRate(rate)
	}
	j := Jumps{rate: rate, max: max, open: true}
	for rate.Num == 0 || uint64(rate.Num)<<j.first < rate.Den { // Until rate·2^I ≥ 1.
		if max != 0 && max>>j.first == 0 {
			j.open = false // Every size is below 2^I.
			break
		}
		j.first++
	}
	return j
}

// Candidates returns the number of blocks: at most 1 + ⌈log₂(1/rate)⌉ and, with a bound, at most
// 1 + ⌈log₂ max⌉.
func (j Jumps) Candidates() uint64 {
	if j.open {
		return j.first + 1
	}
	return j.first
}

// Jump returns the size of the jump that a candidate of the measure becomes, or 0 if it is dropped. In block i < I, k
// is uniform and kept with probability 2^i/k · e^{-rate·k}: a mass of 2^-i for every k before, e^{-rate·k}/k after.
// From w = 2^I on, where rate·w ≥ 1, k is uniform in w(1+j)…w(2+j)-1 with probability 2^-(1+j). It is kept with
// probability w/k · e^{-rate·k}·2^{1+j}, the last two factors as (2/e)^{1+j} · e^{-(rate·k-(1+j))}. It consumes under
// 10 draws on average.
func (s *Source) Jump(of Jumps) uint64 {
	block := s.Below(of.Candidates())
	w := uint64(1) << block
	k, far := w+s.Below(w), uint64(0)
	if block == of.first {
		far = 1 + s.halvings()
		k += w * (far - 1)
	}
	if of.max > 0 && k > of.max || s.Below(k) >= w || !s.decays(of.rate, k, far) {
		return 0
	}
	return k
}

// decays returns true with probability e^{-rate·k}·2^far, for rate·k ≥ far.
func (s *Source) decays(rate Rational, k, far uint64) bool {
	for range far {
		if !s.evenRun(1, 1, 3) { // 1 - 1/3 + 1/12 - … = 2·(1/2! - 1/3! + …) = 2/e
			return false
		}
	}
	hi, lo := bits.Mul64(far, rate.Den)
	phi, plo := bits.Mul64(uint64(rate.Num), k)
	lo, borrow := bits.Sub64(plo, lo, 0)
	hi, _ = bits.Sub64(phi, hi, borrow)
	return s.bernoulliExp128(hi, lo, rate.Den)
}

// Superposition is the noise of many independent atoms. Drawing it takes time proportional to the number of jumps,
// not of atoms. Each atom is compound Poisson with Weight/Den times the measure Jumps, and so NB(Weight/Den,
// e^{-rate}) if jumps have no bound. Build it once per task with [NewSuperposition].
type Superposition struct {
	atoms []Atom
	upTo  []uint64 // Sum of Weight·Candidates of the atoms up to and including this one.
	mean  Rational // Expected number of candidates.
}

// Atom is one source of noise in a [Superposition].
type Atom struct {
	Weight uint64 // Over the superposition's common denominator.
	Jumps  Jumps
}

// NewSuperposition returns the superposition of atoms with weights over den. The sum of Weight ·
// Candidates must be below 2⁶³, den at least 1 and below 2⁶³, and their quotient at most 2³².
func NewSuperposition(atoms []Atom, den uint64) *Superposition {
	s := &Superposition{atoms: atoms, upTo: make([]uint64, len(atoms))}
	total := uint64(0)
	for i, a := range atoms {
		hi, lo := bits.Mul64(a.Weight, a.Jumps.Candidates())
		if total += lo; hi > 0 || lo >= 1<<63 || total >= 1<<63 {
			panic("randomizer: the weights of a superposition overflow")
		}
		s.upTo[i] = total
	}
	s.mean = NewRational(int64(total), den)
	return s
}

// Events draws the noise. It calls jump with the index of an atom and the size of one of its jumps, once for each
// jump of all atoms, in random order. An atom's noise is the sum of its jumps. It consumes the draws of one
// [Source.Poisson] and one [Source.Below] and [Source.Jump] for each candidate found.
func (s *Source) Events(of *Superposition, jump func(atom int, size uint64)) {
	if of.mean.Num == 0 {
		return
	}
	for found := s.Poisson(of.mean); found > 0; found-- {
		atom := search(of.upTo, s.Below(of.upTo[len(of.upTo)-1]))
		if size := s.Jump(of.atoms[atom].Jumps); size > 0 {
			jump(atom, size)
		}
	}
}

// search returns the first index whose value is above v.
func search(upTo []uint64, v uint64) int {
	lo, hi := 0, len(upTo)-1
	for lo < hi {
		if mid := (lo + hi) / 2; upTo[mid] > v {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}
