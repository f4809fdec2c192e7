package strings_test

import (
	"math"
	"math/bits"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/strings"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// TestSpread checks that the distribution has the requested mean and variance, for any mean, and Poisson's
// probabilities if they are equal.
func TestSpread(t *testing.T) {
	for _, c := range [][2]float64{{0, 0}, {.3, .3}, {5.7, 5.7}, {5.7, 9}, {1154, 1154}, {1154, 1400}, {5e4, 5e4}} {
		first, p := strings.Spread(c[0], c[1])
		sum, mean, square := 0.0, 0.0, 0.0
		for i, p := range p {
			k := float64(first + i)
			sum, mean, square = sum+p, mean+k*p, square+(k-c[0])*(k-c[0])*p
			if c[0] == c[1] && c[0] > 0 && k == math.Trunc(c[0]) {
				log, _ := math.Lgamma(k + 1)
				require.InEpsilon(t, math.Exp(k*math.Log(c[0])-c[0]-log), p, 1e-6)
			}
		}
		require.InDelta(t, 1, sum, 1e-12)
		require.InDelta(t, c[0], mean, 1e-8*(1+c[0]))
		require.InDelta(t, c[1], square, 1e-8*(1+c[1]))
	}
}

// TestThresholdOnAGrid checks thresholds on coarser grids. They must never be lower than on a grid of step 1, and at
// most about a step per cell higher.
func TestThresholdOnAGrid(t *testing.T) {
	const cells = 5
	for _, mean := range []float64{6, 300} {
		exact := strings.Threshold(mean, cells, int(3*mean), 1)
		for _, step := range []int{2, 3, 7} {
			coarse := strings.Threshold(mean, cells, int(3*mean), step)
			require.GreaterOrEqual(t, coarse, exact)
			require.LessOrEqual(t, coarse, exact+float64((cells+1)*step))
		}
	}
}

// TestShareOfFullCells checks the fraction of full cells for a text that nobody holds. It must count only cells that no
// known text claims, because only these can be the text's. The text's own cell counts as full.
func TestShareOfFullCells(t *testing.T) {
	m := open(t, draft(t, 4, 1000, -1, planner.Params{"b": 6}))
	agg := m.Aggregate().(*strings.Aggregate)
	levels, _ := m.Tables()
	first := uint64(levels * 6)
	for y, n := range []int{10, 10, 10, 200, 200, 200} {
		for range n {
			require.NoError(t, agg.Add(0, m.Message(first+uint64(y))))
		}
	}
	of := map[uint64]string{} // A text for each cell of the first check table.
	for c := 'a'; len(of) < 6; c++ {
		of[m.Cell(levels, string(c))-first] = string(c)
	}
	require.InDelta(t, (3+1.)/(6+1), agg.FullShare(levels), 1e-9)
	require.InDelta(t, (2+1.)/(5+1), agg.FullShare(levels, of[5]), 1e-9)
	require.InDelta(t, (3+1.)/(4+1), agg.FullShare(levels, of[0], of[1]), 1e-9)
}

// TestFindAmongManyDummies checks that the search finds two texts if each cell holds a thousand dummies.
func TestFindAmongManyDummies(t *testing.T) {
	const users = 30_000
	d, err := planner.Draft(planner.Query{Name: "texts", Query: task.Strings, Length: 5, Batch: users, Honest: 1,
		Epsilon: .05, Delta: 1e-6, Params: planner.Params{"b": 28},
		Relays: &planner.RelayNoise{NoiseOptions: protocols.NoiseOptions{MaxDummies: 1e6}}})
	require.NoError(t, err)
	m, src := open(t, d), randomizer.NewSource()
	held := map[string]int{"left": .3 * users, "right": .15 * users}
	agg := batch(t, d, m, src, held, func(int) string {
		return setting{Length: 5, Alphabet: alphabet40}.text(src, nil)
	})
	levels, checks := m.Tables()
	require.Greater(t, 2*d.Noise.Pool/uint64(28*(levels+checks)), uint64(1000))
	o := outcome{}
	found := agg.Find(.9999)
	o.count(found, held, nil)
	t.Logf("%+v", found)
	require.Equal(t, 2, o.HeadsCovered)
	require.Zero(t, o.False)
}

// TestFindAmongMillions checks that the search finds two texts of millions of clients, whose cells have 200,000
// messages each.
func TestFindAmongMillions(t *testing.T) {
	m, src := open(t, draft(t, 8, 1e7, 0, planner.Params{"b": 2000})), randomizer.NewSource()
	levels, checks := m.Tables()
	held := map[string]int{"left": 5_200_000, "right": 2_600_000}
	cells := map[int]uint64{}
	for text, n := range held {
		for table := range levels + checks {
			cells[int(m.Cell(table, text))] += uint64(n / (levels + checks))
		}
	}
	agg, y, most := m.Aggregate().(*strings.Aggregate), 0, 2000*(levels+checks)
	agg.Counters(func(n *uint64) {
		if y < most {
			*n = uint64(bits.OnesCount64(src.Uint64()&0xfff)) + cells[y]
		}
		y++
	})
	o := outcome{}
	found := agg.Find(.95)
	o.count(found, held, nil)
	t.Logf("%+v", found)
	require.Equal(t, 2, o.HeadsCovered)
	require.Zero(t, o.False)
}
