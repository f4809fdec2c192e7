package randomizer_test

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/randomizer"
)

// marker is the draw that a script returns after its last scripted draw.
const marker = 0xfeedfacecafebeef

// script returns a source that yields the given draws and then only the marker.
func script(draws ...uint64) *randomizer.Source {
	return randomizer.NewSourceFrom(func(p []byte) {
		for ; len(p) > 0; p = p[8:] {
			v := uint64(marker)
			if len(draws) > 0 {
				v, draws = draws[0], draws[1:]
			}
			binary.BigEndian.PutUint64(p, v)
		}
	})
}

// requireUsed fails unless the next draw is the marker: then the sampler has used exactly the scripted draws.
func requireUsed(t *testing.T, src *randomizer.Source) {
	t.Helper()
	require.Equal(t, uint64(marker), src.Uint64(), "the sampler used fewer or more draws than scripted")
}

const high = uint64(0xabcdef) << 40 // bits that the masks of small n remove

// TestBelowEnumerated: with the mask 2^b-1, each value below n comes from exactly one of the 2^b masked draws, and
// Below repeats every other draw. So the distribution is exactly uniform.
func TestBelowEnumerated(t *testing.T) {
	for n := uint64(2); n <= 33; n++ {
		mask := uint64(1)
		for mask < n-1 {
			mask = mask<<1 | 1
		}
		hits := make([]int, n)
		for v := uint64(0); v <= mask; v++ {
			if v < n {
				src := script(v | ^mask) // Below ignores the bits outside the mask
				got := src.Below(n)
				requireUsed(t, src)
				hits[got]++
				continue
			}
			src := script(v|^mask, mask, v, n-1) // Below repeats the draw until n-1, the first value below n
			if mask < n {
				src = script(v|^mask, n-1)
			}
			require.Equal(t, n-1, src.Below(n))
			requireUsed(t, src)
		}
		for v, h := range hits {
			require.Equal(t, 1, h, "n = %d, value %d", n, v)
		}
	}
	src := script()
	require.Zero(t, src.Below(1))
	requireUsed(t, src) // Below draws nothing for n = 1
	require.Panics(t, func() { script().Below(0) })

	src = script(math.MaxUint64, 1<<63, 5)
	require.Equal(t, uint64(1<<63), src.Below(1<<63+1), "the mask of 2^63+1 is all ones")
	require.Equal(t, uint64(5), src.Below(math.MaxUint64))
	requireUsed(t, src)
}

// TestBernoulliEnumerated: of the Den draws that Below accepts, exactly Num must give true.
func TestBernoulliEnumerated(t *testing.T) {
	for den := uint64(1); den <= 12; den++ {
		for num := int64(0); num <= int64(den); num++ {
			p := rational(num, den)
			heads := uint64(0)
			for v := range p.Den {
				heads += bit(script(v | high).Bernoulli(p))
			}
			require.Equal(t, uint64(p.Num), heads, "p = %s", p)
		}
	}
}

// TestRandomizedResponseEnumerated tries all pairs of accepted draws, which are equally likely. The outcomes must have
// exactly the probabilities (1-γ)·1{x=y} + γ/k.
func TestRandomizedResponseEnumerated(t *testing.T) {
	for _, gamma := range []randomizer.Rational{rational(0, 1), rational(1, 8), rational(2, 3), rational(5, 7),
		rational(1, 1)} {
		for k := uint64(2); k <= 6; k++ {
			for x := range k {
				counts := make([]uint64, k)
				for blanket := range gamma.Den {
					for y := range k {
						draws := []uint64{blanket | high, y | high}
						if gamma.Den == 1 { // Bernoulli takes no draw
							draws = draws[1:]
						}
						src := script(draws...)
						counts[src.RandomizedResponse(x, k, gamma)]++
						requireUsed(t, src)
					}
				}
				for y, got := range counts {
					want := uint64(gamma.Num) // γ/k of all Den·k pairs
					if uint64(y) == x {
						want += k * (gamma.Den - uint64(gamma.Num))
					}
					require.Equal(t, want, got, "γ = %s, k = %d, x = %d, y = %d", gamma, k, x, y)
				}
			}
		}
	}
}

// TestRoundThreshold compares Round with big-integer arithmetic. The draw at which the result changes must be exactly
// the fractional part, so that the result is rounded up for that part of the 2^53 draws.
func TestRoundThreshold(t *testing.T) {
	const one = randomizer.FixedOne
	rng := rand.New(rand.NewPCG(1, 2))
	us := []uint64{0, 1, 2, one / 3, one / 2, one - 1, one}
	ks := []uint64{1, 2, 3, 255, 256, 65536, 1<<31 + 1, 1<<32 - 1}
	for range 200 {
		us, ks = append(us, rng.Uint64N(one+1)), append(ks, 1+rng.Uint64N(1<<32-1))
	}
	for _, u := range us {
		for _, k := range ks {
			product := new(big.Int).Mul(new(big.Int).SetUint64(u), new(big.Int).SetUint64(k))
			quotient, rest := new(big.Int).QuoRem(product, big.NewInt(one), new(big.Int))
			whole, frac := quotient.Uint64(), rest.Uint64()
			require.Equal(t, whole, script(frac|0x5bc<<53).Round(u, k), "u = %d, k = %d: draw at the fraction", u, k)
			require.Equal(t, whole, script(one-1).Round(u, k))
			if frac > 0 {
				require.Equal(t, whole+1, script(frac-1).Round(u, k), "u = %d, k = %d: draw below the fraction", u, k)
				require.Equal(t, whole+1, script(0).Round(u, k))
				require.Less(t, whole, k)
			}
			src := script(7)
			src.Round(u, k)
			requireUsed(t, src)
		}
	}
}

func TestFixed(t *testing.T) {
	for x, want := range map[float64]uint64{
		0: 0, 1: randomizer.FixedOne, 0.5: randomizer.FixedOne / 2, math.SmallestNonzeroFloat64: 0,
		1.0 / randomizer.FixedOne: 1, 0.5 / randomizer.FixedOne: 0, 1.5 / randomizer.FixedOne: 2, // ties to even
		math.Nextafter(1, 0): randomizer.FixedOne - 1,
	} {
		require.Equal(t, want, randomizer.Fixed(x), "%g", x)
	}
	require.Equal(t, uint64(0), randomizer.Fixed(math.Copysign(0, -1)))
}

// TestOutOfDomainPanics: a caller's mistake must end the program, because to continue could end a client's privacy.
func TestOutOfDomainPanics(t *testing.T) {
	src := script(0, 0, 0, 0)
	for name, call := range map[string]func(){
		"a value above the domain":   func() { src.RandomizedResponse(4, 4, rational(1, 2)) },
		"an empty domain":            func() { src.RandomizedResponse(0, 0, rational(1, 2)) },
		"a negative probability":     func() { src.Bernoulli(rational(-1, 2)) },
		"a probability above 1":      func() { src.Bernoulli(rational(3, 2)) },
		"the zero value of Rational": func() { src.Bernoulli(randomizer.Rational{}) },
		"a number above 1":           func() { src.Round(randomizer.FixedOne+1, 10) },
	} {
		require.Panics(t, call, name)
	}
}
