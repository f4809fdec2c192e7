package verifier

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTagsAreASet compares the replay set with a Go map: for random half tags and for successive ones, each added
// twice.
func TestTagsAreASet(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for name, draw := range map[string]func(i int) uint64{
		"random":     func(int) uint64 { return random.Uint64() },
		"few":        func(int) uint64 { return random.Uint64N(20_000) },
		"successive": func(i int) uint64 { return uint64(i) },
		"far apart":  func(i int) uint64 { return uint64(i) << 48 },
	} {
		set, want := newTags(), map[uint64]bool{}
		for i := range 60_000 {
			half := draw(i)
			require.Equal(t, want[half], set.has(half), name)
			require.Equal(t, !want[half], set.add(half), name)
			want[half] = true
			require.False(t, set.add(half), name)
			require.True(t, set.has(half), name)
			require.Equal(t, want[^half], set.has(^half), name)
		}
		require.Equal(t, len(want), set.n, name)
		for half := range want {
			require.True(t, set.has(half), name)
		}
	}
}

// TestTagsTellEveryHalfApart: the half tag that scrambles to 0, which means a gap, must work like any other.
func TestTagsTellEveryHalfApart(t *testing.T) {
	set := newTags()
	zero := set.flip // scrambles to 0, because 0 times any number is 0
	require.Zero(t, set.scramble(zero))
	require.False(t, set.has(zero))
	require.True(t, set.add(zero))
	require.False(t, set.add(zero))
	require.True(t, set.has(zero))
	require.Equal(t, 1, set.n)
}

// TestTagsTakeTenBytes: a half tag must take at most 10 bytes. The tables must be sorted, so that every search
// succeeds.
func TestTagsTakeTenBytes(t *testing.T) {
	set, random := newTags(), rand.New(rand.NewPCG(3, 4))
	for i := range 1 << 20 {
		set.add(random.Uint64())
		if n := i + 1; n >= 1<<17 && n%(1<<15) == 0 {
			bytes := 0
			for p := range set.parts {
				bytes += 8 * cap(set.parts[p].slots)
			}
			require.LessOrEqual(t, bytes, 10*n, "%d tags", n)
		}
	}
	for p := range set.parts {
		taken := slices.DeleteFunc(slices.Clone(set.parts[p].slots), func(x uint64) bool { return x == 0 })
		require.True(t, slices.IsSorted(taken))
		require.Len(t, taken, set.parts[p].n)
	}
}

func BenchmarkTags(b *testing.B) {
	random := rand.New(rand.NewPCG(5, 6))
	set := newTags()
	for b.Loop() {
		set.add(random.Uint64())
	}
	b.ReportMetric(float64(set.n), "tags")
}
