package crosstab_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/verifier/crosstab"
)

// arms are two groups of two cells, of which the second is the share.
var arms = [2]crosstab.Part{{Group: []int{0, 1}, Cells: []int{1}}, {Group: []int{2, 3}, Cells: []int{3}}}

// experiments draws experiments with two arms of clients, of whom some shares convert, with the noise of two relays at
// (1, 10⁻⁶), and compares the arms.
func experiments(t *testing.T, repeats int, clients uint64, shares [2]float64, visit func(c *crosstab.Comparison,
	truth [4]uint64)) {
	t.Helper()
	q := planner.Query{Epsilon: 1, Delta: 1e-6, Honest: 1,
		Relays: &planner.RelayNoise{NoiseOptions: protocols.NoiseOptions{MaxDummies: 1e4}}}
	draft, m, _ := tableTask(t, q, []int{1, 1, 1, 1})
	src := randomizer.NewSource()
	trial := planner.Trial{Repeats: repeats, Fast: true}
	require.NoError(t, trial.Batches(draft, m, nil, func(agg protocols.Aggregate) {
		var truth [4]uint64
		for i, p := range shares {
			converted := src.Binomial(clients, randomizer.NewRational(int64(math.Round(p*(1<<20))), 1<<20))
			truth[2*i], truth[2*i+1] = clients-converted, converted
		}
		at := 0
		agg.Counters(func(n *uint64) { // The first counters are the cells' messages.
			if at < len(truth) {
				*n += truth[at]
			}
			at++
		})
		table, err := crosstab.New(draft, m, agg)
		require.NoError(t, err)
		c, ok := table.Compare(arms[0], arms[1], confidence)
		require.True(t, ok)
		visit(c, truth)
	}))
}

// TestABTest: with 10,000 clients in each arm, of whom 5 % convert, the test finds a difference where there is none in
// 4.5 to 5.5 of 100 experiments. The interval is at most 1.03 times as long as without privacy, and contains the truth.
func TestABTest(t *testing.T) {
	repeats := 4000
	if stattest.Long {
		repeats = 16_000
	}
	wrong, holds, length, bare := 0, 0, 0., 0.
	experiments(t, repeats, 10_000, [2]float64{.05, .05}, func(c *crosstab.Comparison, truth [4]uint64) {
		if c.P < .05 {
			wrong++
		}
		if c.Interval[0] <= 0 && 0 <= c.Interval[1] {
			holds++
		}
		length += c.Interval[1] - c.Interval[0]
		p, q := float64(truth[1])/1e4, float64(truth[3])/1e4
		bare += 2 * 1.959964 * math.Sqrt((p*(1-p)+q*(1-q))/1e4)
	})
	t.Logf("type I error %.4f, interval %.4f, %.4f times as long as without privacy", float64(wrong)/float64(repeats),
		float64(holds)/float64(repeats), length/bare)
	spread := 4.9 * math.Sqrt(.05*.95/float64(repeats)) // exceeded by chance with probability 10⁻⁶
	require.InDelta(t, .05, float64(wrong)/float64(repeats), spread+.003)
	require.InDelta(t, .95, float64(holds)/float64(repeats), spread+.003)
	require.LessOrEqual(t, length/bare, 1.03)
}

// TestNeededClients: with as many clients as a comparison says, 80 of 100 experiments find the difference.
func TestNeededClients(t *testing.T) {
	shares := [2]float64{.06, .05}
	var needed float64
	experiments(t, 400, 1_000_000, shares, func(c *crosstab.Comparison, _ [4]uint64) { needed += *c.NeededPer / 400 })
	require.InDelta(t, 8160, needed, 250) // Without privacy 8,158: the usual formula for these shares.
	const repeats = 3000
	found := 0
	experiments(t, repeats, uint64(needed), shares, func(c *crosstab.Comparison, _ [4]uint64) {
		if c.P < .05 {
			found++
		}
	})
	require.InDelta(t, .8, float64(found)/repeats, 4.9*math.Sqrt(.16/repeats)+.005)
}
