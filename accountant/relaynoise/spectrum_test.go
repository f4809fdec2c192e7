package relaynoise

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wire/task"
)

// randomLaw returns a law of some numbers: smooth, ragged, or of one peak.
func randomLaw(r *rand.Rand, size int) []float64 {
	rise, fall, peak := r.ExpFloat64()/10, r.ExpFloat64()/10, r.IntN(size)
	weights := make([]float64, size)
	for z := range weights {
		d := float64(z - peak)
		weights[z] = math.Exp(min(rise*d, -fall*d)) * (1 - .5*float64(r.IntN(2)))
	}
	return newLaw(0, weights).Mass
}

// exactTransform returns Σ_z law[z]·e^{2πi·at·z/size}, by compensated sums.
func exactTransform(law []float64, at, size int) (re, im float64) {
	var lostRe, lostIm float64
	add := func(sum, lost *float64, x float64) {
		y := x - *lost
		t := *sum + y
		*lost, *sum = (t-*sum)-y, t
	}
	for z, p := range law {
		sin, cos := math.Sincos(2 * math.Pi * float64((at*z%size+size)%size) / float64(size))
		add(&re, &lostRe, p*cos)
		add(&im, &lostIm, p*sin)
	}
	return re, im
}

// TestTransformKeepsItsErrorBound compares transforms of random laws with compensated sums.
func TestTransformKeepsItsErrorBound(t *testing.T) {
	r := rand.New(rand.NewPCG(45, 1))
	for range 2000 {
		size := 1 << (6 + r.IntN(11))
		s := &spectrum{size: size, cos: cosines(size)}
		law, at := randomLaw(r, 1+r.IntN(600)), r.IntN(1<<20)-1<<19
		got := s.transform(law, at)
		re, im := exactTransform(law, at, size)
		require.LessOrEqual(t, math.Hypot(real(got)-re, imag(got)-im), transformError(len(law)),
			"%d numbers at %d of %d", len(law), at, size)
		wave := make([]float64, len(law))
		part := complex(r.NormFloat64(), r.NormFloat64())
		s.addWave(wave, part, at)
		for z := range wave {
			turn := s.turn(at * z)
			require.InDelta(t, real(part*turn), wave[z], 1e-14*(1+math.Abs(real(part))+math.Abs(imag(part))))
		}
	}
}

// TestEnvelopesAreUpperBounds compares both envelopes of random laws with |φ|² at random angles. The fine one must be
// lower where bins are wide.
func TestEnvelopesAreUpperBounds(t *testing.T) {
	r := rand.New(rand.NewPCG(45, 5))
	for range 60 {
		size, bins := 1<<14, 1<<(4+r.IntN(6))
		s := &spectrum{size: size, cos: cosines(size)}
		law := randomLaw(r, 2+r.IntN(100))
		plain, fine := s.envelope(law, bins), s.fineEnvelope(law, bins)
		lower := 0
		for range 300 {
			at := r.IntN(size / 2)
			re, im := exactTransform(law, at, size)
			bin := at * bins / (size / 2)
			require.GreaterOrEqual(t, plain[bin], re*re+im*im)
			require.GreaterOrEqual(t, fine[bin], re*re+im*im, "%d numbers, %d bins, at %d", len(law), bins, at)
			if fine[bin] < plain[bin] {
				lower++
			}
		}
		if newLaw(0, law).Variance()*math.Pow(math.Pi/float64(2*bins), 2) < .01 {
			require.Greater(t, lower, 200)
		}
	}
}

// TestDroppedFrequenciesAreSmall compares a law of levels with and without the frequencies that (6a) drops.
func TestDroppedFrequenciesAreSmall(t *testing.T) {
	n := levels(12, .15, .4, 1e-6)
	s, err := newSpectrum(newTilt(n))
	require.NoError(t, err)
	all := &spectrum{tilt: s.tilt, size: s.size, cos: s.cos}
	all.keep()
	require.Less(t, 2*len(s.kept), len(all.kept))
	all.transformFactors()
	all.products()
	for j := range s.weights {
		for _, z := range []int{0, len(s.law(j)) / 2, len(s.law(j)) - 1} {
			require.InDelta(t, all.expect(j, z), s.expect(j, z), s.slack)
		}
	}
}

// TestKeptFrequencies: keep tests blocks of frequencies, and must keep those that tests of each one keep.
func TestKeptFrequencies(t *testing.T) {
	r := rand.New(rand.NewPCG(45, 6))
	for range 20 {
		n := levels(1+r.IntN(40), .1+.5*r.Float64(), 1+r.Float64(), math.Pow(10, -2-4*r.Float64()))
		n.Tilt.Zero = r.Uint64N(uint64(len(n.Tilt.Weights)))
		s := &spectrum{tilt: newTilt(n), size: 1 << 14}
		s.cos = cosines(s.size)
		s.keep()
		var bounds [][]float64
		for _, law := range s.laws {
			bounds = append(bounds, s.envelope(law, maxBins))
		}
		var want []int
		for m := range s.size/2 + 1 {
			if !s.small(m, m, bounds) {
				want = append(want, m)
			}
		}
		require.Equal(t, want, s.kept)
	}
}

// TestPowersAreUpperBounds: powers must bound the moment generating function from above, and closely.
func TestPowersAreUpperBounds(t *testing.T) {
	r := rand.New(rand.NewPCG(45, 2))
	for range 2000 {
		law := randomLaw(r, 1+r.IntN(600))
		log := (2*r.Float64() - 1) * mostPower / float64(len(law))
		sum, lost := 0.0, 0.0
		for z, p := range law {
			y := p*math.Exp(log*float64(z)) - lost
			next := sum + y
			lost, sum = (next-sum)-y, next
		}
		got := powers(law, math.Exp(log))
		require.GreaterOrEqual(t, got, sum*(1-1e-15*math.Abs(log)*float64(len(law))))
		require.LessOrEqual(t, got, sum*(1+1e-12))
	}
}

// slowEnds computes (7) term by term, with no frequency left out and no blocks.
func slowEnds(s *spectrum) (most float64) {
	hat, phi := make([]float64, s.size), make([][]complex128, s.size)
	for m := range s.size {
		hat[m] = s.factors[0]
		for x := 1; x < len(s.factors); x++ {
			hat[m] += 2 * s.factors[x] * s.cos[m*x&(s.size-1)]
		}
		for j, w := range s.weights {
			re, im := exactTransform(s.law(j), m*w, s.size)
			phi[m] = append(phi[m], complex(re, im))
		}
	}
	expect := func(cell, z int) (sum float64) {
		for m := range s.size {
			part := s.turn(-m * s.centre)
			for j, w := range s.weights {
				if j == cell {
					part *= s.turn(m * w * z)
				} else {
					part *= phi[m][j]
				}
			}
			sum += hat[m] * real(part)
		}
		return sum / float64(s.size)
	}
	all := expect(-1, 0)
	for a := range s.weights {
		full := s.law(a)[len(s.law(a))-1] * expect(a, len(s.law(a))-1)
		for b := range s.weights {
			if a != b {
				beyond := s.beyond(s.weights[a]-s.weights[b]) * s.least / all
				most = max(most, (full+s.law(b)[0]*expect(b, 0))/all+beyond)
			}
		}
	}
	return most
}

// TestEndsAreUpperBounds compares the bound (7) of random tilted laws with its terms, computed one by one. It must not
// be below, and at most a little above.
func TestEndsAreUpperBounds(t *testing.T) {
	r := rand.New(rand.NewPCG(45, 3))
	for i := range 12 {
		k := 1 + r.IntN(4)
		n := levels(k, .1+.5*r.Float64(), 1+r.Float64(), math.Pow(10, -2-2*r.Float64()))
		_, s, err := newCurve(n, 1)
		require.NoError(t, err)
		if s == nil || s.size > 1<<11 {
			continue
		}
		want, got := slowEnds(s), s.ends()
		require.GreaterOrEqual(t, got, want*(1-1e-12), "law %d", i)
		require.LessOrEqual(t, got, want*(1+1e-6), "law %d", i)
	}
}

// TestLawsOfTiltedNoise compares the cells' laws with sums over all frequencies, one by one.
func TestLawsOfTiltedNoise(t *testing.T) {
	n := levels(3, .4, 1.5, 1e-3)
	_, s, err := newCurve(n, 1)
	require.NoError(t, err)
	laws, err := NewLaws(&task.Noise{Kind: n.Kind, Cells: n.Cells, Tables: n.Tables, Which: n.Which, Tilt: n.Tilt})
	require.NoError(t, err)
	for j, law := range laws.Cells {
		for z, p := range law.Mass {
			want := s.law(j)[z] * s.expect(j, z) / s.expect(-1, 0)
			require.InDelta(t, want, p, 1e-12+1e-9*want, "cell %d, %d dummies", j, z)
		}
	}
}
