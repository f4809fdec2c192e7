package randomizer

import "math/bits"

// Binomial returns how many of n decisions of probability p are true, distributed exactly. p is in [0, 1], and its
// denominator is a power of two. Each decision compares random bits with the binary digits of p, from the highest on,
// until they differ. Binomial only counts the decisions that are still undecided after each digit. It consumes about
// n/32 draws.
func (s *Source) Binomial(n uint64, p Rational) (below uint64) {
	if p.Den&(p.Den-1) != 0 || p.Num < 0 || uint64(p.Num) > p.Den {
		panic("randomizer: Binomial probability out of range: " + p.String())
	}
	if uint64(p.Num) == p.Den {
		return n
	}
	for digit := p.Den >> 1; digit > 0 && n > 0; digit >>= 1 {
		ones := s.fairs(n)
		if uint64(p.Num)&digit != 0 {
			below += n - ones
			n = ones
		} else {
			n -= ones
		}
	}
	return below
}

// fairs returns how many of n fair coins show heads. One draw decides 64 coins.
func (s *Source) fairs(n uint64) (heads uint64) {
	for ; n >= 64; n -= 64 {
		heads += uint64(bits.OnesCount64(s.Uint64()))
	}
	if n > 0 {
		heads += uint64(bits.OnesCount64(s.Uint64() >> (64 - n)))
	}
	return heads
}
