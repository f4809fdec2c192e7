package randomizer

import "math/bits"

// maxPoisson is the largest mean of [Source.Poisson], because the cost grows with the mean.
const maxPoisson = 1 << 32

// Poisson returns k ≥ 0 with probability exactly e^{-λ}·λ^k/k!, 0 ≤ λ ≤ 2³². It is the sum of ⌊2λ⌋ variables of mean
// 1/2 and one of the remaining mean. It consumes slightly more than one draw for a small λ and about 8λ for a large
// one.
func (s *Source) Poisson(lambda Rational) uint64 {
	if lambda.Num < 0 || uint64(lambda.Num)/lambda.Den >= maxPoisson {
		panic("randomizer: Poisson mean out of range: " + lambda.String())
	}
	doubled := 2 * uint64(lambda.Num)
	k := s.smallPoisson(doubled%lambda.Den, 2*lambda.Den)
	for halves := doubled / lambda.Den; halves > 0; halves-- {
		k += s.smallPoisson(1, 2)
	}
	return k
}

// smallPoisson is [Source.Poisson] of λ = num/den ≤ 1/2. Consider a random walk whose step takes k to k+1 with
// probability λ/(k+1), and to 0 otherwise. Its stationary law is Poisson(λ):
//
//	Pr[k+1] = e^{-λ}·λ^k/k! · λ/(k+1) = e^{-λ}·λ^{k+1}/(k+1)!
//
// Split each step into Bernoulli(λ) and then Bernoulli(1/(k+1)). A step whose Bernoulli(λ) is false resets k to 0, so
// only the steps after the last such reset matter. So smallPoisson counts how often Bernoulli(λ) is true before it is
// first false. It then makes that number of steps from 0, each with probability 1/(k+1).
func (s *Source) smallPoisson(num, den uint64) (k uint64) {
	steps := 0
	for num > 0 && s.Below(den) < num {
		steps++
	}
	for ; steps > 0; steps-- {
		if k++; s.Below(k) != 0 {
			k = 0
		}
	}
	return k
}

// halvings returns j ≥ 0 with probability 2^-(j+1): the number of zero bits before the first one bit. It consumes one
// draw, and one more after every 64 zero bits.
func (s *Source) halvings() (j uint64) {
	for {
		if v := s.Uint64(); v != 0 {
			return j + uint64(bits.TrailingZeros64(v))
		}
		j += 64
	}
}
