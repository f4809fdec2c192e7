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

// Polya is [Source.NegativeBinomial] under the name that [BBGN19b] uses for rational r.
//
// [BBGN19b]: https://arxiv.org/abs/1906.09116
func (s *Source) Polya(r, rate Rational) uint64 { return s.NegativeBinomial(r, rate) }

// maxWeight is the largest denominator of r: Candidates() times a numerator below it still fits 63 bits.
const maxWeight = 1 << 56

// Jumps is the measure that gives the size k the mass e^{-rate·k}/k, 1 ≤ k ≤ Max: the jumps of compound Poisson
// noise, which is NB(1, e^{-rate}) if k has no bound. Its total mass is irrational, so jumps are thinned from
// candidates: Candidates() disjoint blocks of sizes, each of mass at most 1. [Source.Jump] turns each candidate into
// a jump or drops it. A Poisson process with r·Candidates() expected candidates has exactly r times this measure.
type Jumps struct {
	rate  Rational
	max   uint64
	first uint64 // I: block i is [2^i, 2^{i+1}) for i < I; if open, a last block starts at 2^I.
	open  bool
}

// NewJumps returns the measure for a rate ≥ [MinRate] and for jump sizes up to max. max 0 means no bound. With a bound
// the rate may be 0: then size k has mass 1/k.
func NewJumps(rate Rational, max uint64) Jumps {
	if max == 0 || rate.Num != 0 {
		checkRate(rate)
	}
	j := Jumps{rate: rate, max: max, open: true}
	for rate.Num == 0 || uint64(rate.Num)<<j.first < rate.Den { // Ends when rate·2^I ≥ 1.
		if max != 0 && max>>j.first == 0 {
			j.open = false // Every allowed size is below 2^I.
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

// Jump turns a candidate into a jump and returns its size, or drops the candidate and returns 0. In block i < I, k is
// uniform and kept with probability 2^i/k · e^{-rate·k}. So every k has mass 2^-i as a candidate, and e^{-rate·k}/k as
// a jump. In the open block, from w = 2^I on, where rate·w ≥ 1, k is uniform in w(1+j)…w(2+j)-1 with probability
// 2^-(1+j). It is kept with probability w/k · e^{-rate·k}·2^{1+j}; the code draws the last two factors as (2/e)^{1+j} ·
// e^{-(rate·k-(1+j))}. Jump consumes under 10 draws on average.
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
		if !s.evenRun(1, 1, 3) { // true with probability 1 - 1/3 + 1/12 - … = 2·(1/2! - 1/3! + …) = 2/e
			return false
		}
	}
	hi, lo := bits.Mul64(far, rate.Den)
	phi, plo := bits.Mul64(uint64(rate.Num), k)
	lo, borrow := bits.Sub64(plo, lo, 0)
	hi, _ = bits.Sub64(phi, hi, borrow)
	return s.bernoulliExp128(hi, lo, rate.Den)
}

// Superposition is the combined noise of many independent atoms. Drawing it takes time proportional to the number of
// jumps, not of atoms. The noise of each atom is compound Poisson, with Weight/Den times the measure Jumps. If jumps
// have no bound, that is NB(Weight/Den, e^{-rate}). Build a Superposition once per task with [NewSuperposition].
type Superposition struct {
	atoms []Atom
	upTo  []uint64 // upTo[i] is the sum of Weight·Candidates of atoms 0 to i.
	mean  Rational // Expected number of candidates.
}

// Atom is one source of noise in a [Superposition].
type Atom struct {
	Weight uint64 // Numerator; the superposition has one denominator for all atoms.
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

// Events draws the noise. For each jump of any atom, it calls jump with the atom's index and the jump's size, in random
// order. An atom's noise is the sum of its jumps. Events consumes the draws of one [Source.Poisson], and of one
// [Source.Below] and one [Source.Jump] for each candidate that it finds.
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

// search returns the first index i with upTo[i] > v. upTo ascends.
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
