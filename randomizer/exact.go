package randomizer

import (
	"math"
	"math/bits"
)

// Below returns a uniform integer in [0, n), n ≥ 1, by rejection: each draw keeps the low
// ⌈log₂ n⌉ bits and is redrawn while it is n or more. It consumes one draw per trial, fewer
// than two on average, and none for n = 1.
func (s *Source) Below(n uint64) uint64 {
	if n <= 1 {
		if n == 0 {
			panic("randomizer: Below(0)")
		}
		return 0
	}
	mask := ^uint64(0) >> bits.LeadingZeros64(n-1)
	for {
		if v := s.Uint64() & mask; v < n {
			return v
		}
	}
}

// Bernoulli returns true with probability exactly p, 0 ≤ p ≤ 1: it draws a uniform integer below p.Den and compares it
// with p.Num. It consumes the draws of one [Source.Below].
func (s *Source) Bernoulli(p Rational) bool {
	if p.Num < 0 || uint64(p.Num) > p.Den {
		panic("randomizer: a probability outside [0, 1]: " + p.String())
	}
	return s.Below(p.Den) < uint64(p.Num)
}

// RandomizedResponse returns x < k with probability 1-γ and otherwise a uniform element of {0, …, k-1}: k-ary
// randomized response with blanket probability γ ([BBGN19] section 3). It consumes one [Source.Bernoulli] and then
// one [Source.Below] whatever the outcome, so that its running time does not show whether the blanket was used
// (rejections are independent of x).
//
// [BBGN19]: https://arxiv.org/abs/1903.02837
func (s *Source) RandomizedResponse(x, k uint64, gamma Rational) uint64 {
	if x >= k { // would reveal the client's value
		panic("randomizer: RandomizedResponse of a value outside its domain")
	}
	blanket := s.Bernoulli(gamma)
	uniform := s.Below(k)
	if blanket {
		return uniform
	}
	return x
}

// FixedOne is 1 in fixed-point form. [Source.Round] takes numbers in [0, 1] in this form.
const FixedOne = 1 << 53

// Fixed returns the fixed-point form of u in [0, 1]: the integer nearest to u·2⁵³. It is a
// deterministic function of the input, so its rounding (at most 2⁻⁵⁴) costs no privacy.
func Fixed(u float64) uint64 { return uint64(math.RoundToEven(u * FixedOne)) }

// Round returns the stochastic rounding of k·u/2⁵³, for u ≤ 2⁵³ and k < 2³². If the product is i + f, with f in [0, 1),
// Round returns i+1 with probability exactly f and otherwise i. So the mean is the product. It consumes one draw.
func (s *Source) Round(u, k uint64) uint64 {
	whole, frac := product(u, k)
	if s.Below(FixedOne) < frac {
		whole++
	}
	return whole
}

// Rounding returns the distribution of [Source.Round](u, k): the result is whole+1 with probability up, otherwise
// whole.
func Rounding(u, k uint64) (whole uint64, up Rational) {
	whole, frac := product(u, k)
	return whole, NewRational(int64(frac), FixedOne)
}

// product returns k·u/2⁵³ as a whole number and a fraction in units of 2⁻⁵³.
func product(u, k uint64) (whole, frac uint64) {
	if u > FixedOne { // an invalid float that a caller converted, such as NaN or a negative number, ends here
		panic("randomizer: rounding of a number above 1")
	}
	hi, lo := bits.Mul64(u, k)
	return hi<<11 | lo>>53, lo & (FixedOne - 1)
}
