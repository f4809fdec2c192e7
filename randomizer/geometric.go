package randomizer

import "math/bits"

// MinRate is the smallest exponent s for which the samplers of e^{-sk} work: 2^-40. A smaller or negative rate is the
// caller's bug, and the samplers panic.
var MinRate = Rational{1, 1 << 40}

// BernoulliExp returns true with probability exactly e^{-g}, g ≥ 0: Algorithm 1 of [CKS20]. For g ≤ 1 it counts how
// often Bernoulli(g/j), j = 1, 2, …, is true before it is first false, and returns whether that count is even. It
// splits a larger g into ⌊g⌋ times 1 and the remainder, and stops at the first false. Bernoulli(g/j) is a
// [Source.Below] of g.Den and, where that is below g.Num, one of j. It consumes under 6 draws on average for any g.
//
// [CKS20]: https://arxiv.org/abs/2004.00010
func (s *Source) BernoulliExp(g Rational) bool {
	if g.Num < 0 {
		panic("randomizer: BernoulliExp of a negative exponent")
	}
	return s.bernoulliExp128(0, uint64(g.Num), g.Den)
}

// bernoulliExp128 is [Source.BernoulliExp] of the exponent (2⁶⁴·hi + lo)/den.
func (s *Source) bernoulliExp128(hi, lo, den uint64) bool {
	_, rest := bits.Div64(hi%den, lo, den)
	whole := ^uint64(0) // Stays if the quotient exceeds 64 bits: 2⁶⁴-1 trials in a row never succeed.
	if hi < den {
		whole, _ = bits.Div64(hi, lo, den)
	}
	for ; whole > 0; whole-- {
		if !s.evenRun(1, 1, 1) {
			return false
		}
	}
	return rest == 0 || s.evenRun(rest, den, 1)
}

// evenRun draws Bernoulli(num/(den·j)) for j = from, from+1, … until one is false. It returns whether the number of
// true draws before is even. With g = num/den ≤ 1 this has probability 1 - g/from + g²/(from·(from+1)) - …, which is
// e^{-g} for from = 1.
func (s *Source) evenRun(num, den, from uint64) bool {
	for j := from; ; j++ {
		if s.Below(den) >= num || s.Below(j) != 0 {
			return (j-from)%2 == 0
		}
	}
}

// Geometric returns k ≥ 0 with probability exactly (1-p)·p^k, p = e^{-rate}, rate ≥ [MinRate]:
// the magnitude in Algorithm 2 of [CKS20]. With rate = a/b, X = u + b·v has Pr[X] ∝ e^{-X/b} for u
// uniform below b, accepted with probability e^{-u/b}, and v geometric with p = 1/e; the result is
// ⌊X/a⌋. It consumes about 12 draws on average.
//
// [CKS20]: https://arxiv.org/abs/2004.00010
func (s *Source) Geometric(rate Rational) uint64 {
	checkRate(rate)
	num, den := uint64(rate.Num), rate.Den
	u := s.Below(den)
	for u > 0 && !s.evenRun(u, den, 1) {
		u = s.Below(den)
	}
	v := uint64(0)
	for s.evenRun(1, 1, 1) {
		v++
	}
	hi, lo := bits.Mul64(den, v)
	lo, carry := bits.Add64(lo, u, 0)
	k, _ := bits.Div64(hi+carry, lo, num) // Cannot overflow: v would have to exceed 2²³.
	return k
}

// DiscreteLaplace returns k with probability exactly (1-p)/(1+p)·p^|k|, p = e^{-rate}, rate ≥
// [MinRate]: Algorithm 2 of [CKS20], a random sign on [Source.Geometric], redrawn for -0. It
// consumes one draw and those of Geometric per trial, and fewer than two trials on average.
//
// [CKS20]: https://arxiv.org/abs/2004.00010
func (s *Source) DiscreteLaplace(rate Rational) int64 {
	for {
		negative := s.Below(2) == 1
		k := int64(s.Geometric(rate))
		switch {
		case !negative:
			return k
		case k != 0:
			return -k
		}
	}
}

func checkRate(rate Rational) {
	if rate.Num <= 0 || rate.Den/MinRate.Den > uint64(rate.Num) ||
		rate.Den/MinRate.Den == uint64(rate.Num) && rate.Den%MinRate.Den > 0 {
		panic("randomizer: rate below 2^-40: " + rate.String())
	}
}
