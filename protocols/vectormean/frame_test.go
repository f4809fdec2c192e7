package vectormean

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/wire/task"
)

func norm(v []float64) (n float64) {
	for _, x := range v {
		n = math.Hypot(n, x)
	}
	return n
}

func gaussian(rng *rand.Rand, d int) []float64 {
	x := make([]float64, d)
	for l := range x {
		x[l] = rng.NormFloat64()
	}
	n := norm(x)
	for l := range x {
		x[l] /= n
	}
	return x
}

func TestFrameIsTight(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, d := range []int{1, 2, 3, 5, 16, 100, 1000} {
		f := newFrame(d, 7)
		require.GreaterOrEqual(t, f.size, 2*d)
		require.Less(t, f.size, 4*d+1)
		x := gaussian(rng, d)
		a := f.analyze(x)
		require.InDelta(t, 1, norm(a), 1e-12)
		for l, back := range f.synthesize(a) {
			require.InDelta(t, x[l], back, 1e-12)
		}
		axis := make([]float64, d)
		axis[d-1] = 1
		for _, u := range f.analyze(axis) {
			require.InEpsilon(t, 1/math.Sqrt(float64(f.size)), math.Abs(u), 1e-12, "every entry of U is ±1/√N")
		}
	}
}

// A seed always gives the same frame. The seed is part of the task, so every client and verifier must derive the same
// one. A Python script computed these values from the definition of SplitMix64.
func TestFrameOfASeedIsFixed(t *testing.T) {
	f := newFrame(5, 42)
	require.Equal(t, []int{6, 3, 7, 15, 10}, f.columns)
	signs := ""
	for _, s := range f.signs {
		signs += map[bool]string{true: "-", false: "+"}[s < 0]
	}
	require.Equal(t, "--+++", signs)
}

// TestKashinConstant tries vectors that are hard to spread out: random ones, and sums of a few and of many rows of U.
// All must have a representation within κ = 11/5, exact to rounding, in few steps.
func TestKashinConstant(t *testing.T) {
	sizes := []int{12, 16, 32, 64, 100, 256}
	if stattest.Long {
		sizes = append(sizes, 1000, 2048, 8192)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for _, d := range sizes {
		most := 0
		for seed := range uint64(16) {
			f := newFrame(d, seed+1)
			bound := 2.2 / math.Sqrt(float64(f.size))
			if !f.holds(2.2) { // a few frames of small d are not random enough: Calibrate skips them
				require.Less(t, d, 200, "seed %d", seed)
				continue
			}
			for trial := range 100 {
				x := gaussian(rng, d)
				if trial%2 == 1 {
					s := make([]float64, f.size)
					for range 1 + trial*trial*f.size/20000 {
						s[rng.IntN(f.size)] = float64(1 - 2*rng.IntN(2))
					}
					x = f.synthesize(s)
					n := norm(x)
					for l := range x {
						x[l] /= n
					}
				}
				a, steps := f.represent(x, bound)
				most = max(most, steps)
				require.LessOrEqual(t, largest(a), bound*(1+1e-12), "d = %d, seed %d, trial %d", d, seed, trial)
				for l, back := range f.synthesize(a) {
					require.InDelta(t, x[l], back, 1e-12)
				}
			}
		}
		t.Logf("d = %d: at most %d steps", d, most)
		require.Less(t, most, maxSteps)
	}
}

// Shows why the frame's columns must be random. With the first d columns, as when zeros are appended, every
// representation of the all-ones vector has an entry of √(d/N).
func TestFirstColumnsAreNotEnough(t *testing.T) {
	const d = 64
	f := newFrame(d, 1)
	for l := range f.columns {
		f.columns[l] = l
	}
	x := make([]float64, d)
	for l := range x {
		x[l] = math.Copysign(1/math.Sqrt(d), f.signs[l])
	}
	a, _ := f.represent(x, 2.2/math.Sqrt(2*d))
	require.Greater(t, largest(a)*math.Sqrt(2*d), 4.0)
}

// The randomizer never gets more than the largest number of units, whatever the search for a representation returned.
func TestCoefficientsBeyondTheBoundAreClipped(t *testing.T) {
	m := &Mechanism{task: &task.Task{Input: task.Input{Bins: 64}}, frame: newFrame(64, 1), bound: 0.5 / math.Sqrt(128),
		units: 3}
	x := gaussian(rand.New(rand.NewPCG(5, 6)), 64)
	a, steps := m.frame.represent(x, m.bound)
	require.Equal(t, maxSteps, steps)
	require.Greater(t, largest(a), m.bound)
	parts, err := m.parts(x)
	require.NoError(t, err)
	for _, p := range parts {
		require.True(t, p.whole < 3 || p.whole == 3 && p.fraction == 0)
	}
}
