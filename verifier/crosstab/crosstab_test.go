package crosstab_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/verifier/crosstab"
	"github.com/doona-dp/doona/wire/task"
)

// clients has the clients of each cell: three groups, large, small and tiny, with four values each.
var clients = []int{300, 500, 150, 50, 60, 90, 100, 150, 3, 2, 1, 0}

// tasks have noise whose cells depend on each other in every possible way.
var tasks = map[string]planner.Query{
	"randomized response":  {Protocol: "histogram", Epsilon: 6, Delta: 1e-4, Honest: .9},
	"dummies, fixed total": {Epsilon: 1, Delta: 1e-4, Honest: 1, Relays: &planner.RelayNoise{}},
	"dummies, cell by cell": {Epsilon: 1, Delta: 1e-4, Honest: 1,
		Relays: &planner.RelayNoise{NoiseOptions: protocols.NoiseOptions{MaxDummies: 1e4}}},
	"dummies and local randomization": {Epsilon: 1, Delta: 1e-4, Honest: 1,
		Relays: &planner.RelayNoise{NoiseOptions: protocols.NoiseOptions{LocalEpsilon: 4}}},
	"little noise, fixed total": {Epsilon: 6, Delta: 1e-4, Honest: 1, Relays: &planner.RelayNoise{}},
	"little noise, cell by cell": {Epsilon: 4, Delta: 1e-4, Honest: 1,
		Relays: &planner.RelayNoise{NoiseOptions: protocols.NoiseOptions{MaxDummies: 1e4}}},
	"central noise": {Protocol: "correlated", Epsilon: 1, Delta: 1e-4, Honest: .9},
}

func tableTask(t *testing.T, q planner.Query, clients []int) (*task.Task, protocols.Mechanism, [][]float64) {
	t.Helper()
	q.Name, q.Query, q.Labels, q.Bins = "pairs", task.Histogram, true, uint64(len(clients))
	var values [][]float64
	for cell, n := range clients {
		for range n {
			values = append(values, []float64{float64(cell)})
		}
	}
	q.Batch = uint64(len(values))
	draft, err := planner.Draft(q)
	require.NoError(t, err)
	m, err := registry.Open(draft)
	require.NoError(t, err)
	return draft, m, values
}

// cells returns the cells of a group of four values, for the values in [first, last).
func cells(group, first, last int) (out []int) {
	for v := first; v < last; v++ {
		out = append(out, 4*group+v)
	}
	return out
}

// figures computes figures of a table with four values a group, at a confidence of 95 %.
type figures struct{ *crosstab.Table }

func newFigures(t *testing.T, draft *task.Task, m protocols.Mechanism, agg protocols.Aggregate) figures {
	t.Helper()
	table, err := crosstab.New(draft, m, agg)
	require.NoError(t, err)
	return figures{table}
}

func (f figures) share(group, first, last int) (share crosstab.Figure, ok bool) {
	g, ok := f.Group(cells(group, 0, 4), confidence)
	if !ok {
		return share, false
	}
	return g.Share(cells(group, first, last)), true
}

func (f figures) difference(one, two, first, last int) (difference crosstab.Figure, ok bool) {
	part := func(group int) crosstab.Part {
		return crosstab.Part{Group: cells(group, 0, 4), Cells: cells(group, first, last)}
	}
	return f.Difference(part(one), part(two), confidence)
}

func (f figures) quantile(group int, p float64) (quantile crosstab.Figure, ok bool) {
	g, ok := f.Group(cells(group, 0, 4), confidence)
	if !ok {
		return quantile, false
	}
	return g.Quantile([][]int{cells(group, 0, 1), cells(group, 1, 2), cells(group, 2, 3), cells(group, 3, 4)}, p), true
}

const confidence = .95

// atLeast fails the test if the number of intervals that contain the truth is 4.9 standard deviations below what p
// predicts. It fails by chance with probability 10⁻⁶.
func atLeast(t *testing.T, p float64, held, of int, what string) {
	t.Helper()
	least := p*float64(of) - 4.9*math.Sqrt(p*(1-p)*float64(of))
	require.GreaterOrEqual(t, float64(held), least, "%s: %d of %d", what, held, of)
}

// TestFiguresHoldTheTruth: the intervals of shares, differences of shares, counts and quantiles must contain the
// truth as often as they claim, whatever the covariances of the cells.
func TestFiguresHoldTheTruth(t *testing.T) {
	const repeats = 2500
	for name, q := range tasks {
		t.Run(name, func(t *testing.T) {
			draft, m, values := tableTask(t, q, clients)
			held := map[string]int{}
			check := func(what string, f crosstab.Figure, ok bool, truth float64) {
				require.True(t, ok, what)
				if f.Interval[0] <= truth && truth <= f.Interval[1] {
					held[what]++
				}
			}
			fast := protocols.CapabilitiesOf(m).Fast != nil
			trial := planner.Trial{Repeats: repeats, Fast: fast}
			require.NoError(t, trial.Batches(draft, m, values, func(agg protocols.Aggregate) {
				j := newFigures(t, draft, m, agg)
				for g, truth := range []float64{.8, .375} {
					f, ok := j.share(g, 0, 2)
					check([]string{"share, large", "share, small"}[g], f, ok, truth)
				}
				f, ok := j.difference(0, 1, 0, 2)
				check("difference", f, ok, .8-.375)
				f, ok = j.quantile(0, .75)
				check("quantile", f, ok, 1+450./500)
				check("sum", j.Count(cells(1, 2, 4), confidence), true, 250)
				check("size", j.Count(cells(2, 0, 4), confidence), true, 6)
			}))
			for what, n := range held {
				t.Logf("%s: %.4f", what, float64(n)/repeats)
				p := confidence
				if what == "difference" {
					p = .945 // not exact, because the size of the other group is estimated, too
				}
				atLeast(t, p, n, repeats, what)
			}
			require.Len(t, held, 6)
		})
	}
}

// smallClients has groups of 0, 1, 2, 5, 10, 20 and 100 clients with four values each.
var smallClients = []int{0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 1, 0, 3, 1, 1, 0, 5, 0, 3, 2, 12, 8, 0, 0, 50, 0, 30, 20}

// smallRuns has the number of simulated batches of smallClients in the short form of the test.
var smallRuns = map[string]int{"dummies, cell by cell": 2000, "little noise, cell by cell": 2000,
	"dummies, fixed total": 500, "little noise, fixed total": 500, "randomized response": 300, "central noise": 500,
	"dummies and local randomization": 20}

// TestSharesOfSmallGroups: given that a group's shares are shown, each share and each difference from the largest group
// contains the truth as often as it claims. That holds for groups of each size if cells are independent, else from five
// clients on. The shares of an empty group are shown in at most one run of a thousand.
func TestSharesOfSmallGroups(t *testing.T) {
	sizes := []int{0, 1, 2, 5, 10, 20, 100}
	for name, repeats := range smallRuns {
		t.Run(name, func(t *testing.T) {
			if stattest.Long {
				repeats *= 50
			}
			draft, m, values := tableTask(t, tasks[name], smallClients)
			shown, held := make([]int, len(sizes)), map[string][]int{}
			check := func(what string, g int, f crosstab.Figure, ok bool, truth float64) {
				require.True(t, ok, what)
				if held[what] == nil {
					held[what] = make([]int, len(sizes))
				}
				if f.Interval[0] <= truth+1e-9 && truth-1e-9 <= f.Interval[1] {
					held[what][g]++
				}
			}
			trial := planner.Trial{Repeats: repeats, Fast: protocols.CapabilitiesOf(m).Fast != nil}
			require.NoError(t, trial.Batches(draft, m, values, func(agg protocols.Aggregate) {
				j := newFigures(t, draft, m, agg)
				for g, n := range sizes {
					f, ok := j.share(g, 0, 1)
					if !ok {
						continue
					}
					if shown[g]++; n == 0 {
						continue
					}
					first, last := smallClients[4*g], smallClients[4*g+2]+smallClients[4*g+3]
					check("first value", g, f, ok, float64(first)/float64(n))
					f, ok = j.share(g, 2, 4)
					check("last values", g, f, ok, float64(last)/float64(n))
					f, ok = j.difference(g, 6, 0, 1)
					check("difference", g, f, ok, float64(first)/float64(n)-.5)
				}
			}))
			least := 5
			if strings.HasSuffix(name, "cell by cell") {
				least = 1
			}
			for what, held := range held {
				for g, n := range held {
					if g > 0 {
						t.Logf("%s, %d clients: %d of %d", what, sizes[g], n, shown[g])
					}
					if sizes[g] >= least {
						atLeast(t, .945, n, shown[g], fmt.Sprintf("%s, %d clients", what, sizes[g]))
					}
				}
			}
			atLeast(t, .999, repeats-shown[0], repeats, "empty groups not shown")
		})
	}
}

// TestNothingIsSaidOfFew: there is no share, no quantile and no difference unless the data show that the group has
// clients.
func TestNothingIsSaidOfFew(t *testing.T) {
	draft, m, values := tableTask(t, tasks["dummies, cell by cell"], clients)
	require.NoError(t, planner.Trial{Repeats: 50, Fast: true}.Batches(draft, m, values, func(agg protocols.Aggregate) {
		j := newFigures(t, draft, m, agg)
		_, shown := j.share(2, 0, 2)
		_, ok := j.quantile(2, .75)
		require.Equal(t, shown, ok)
		_, ok = j.difference(0, 2, 0, 2)
		require.Equal(t, shown, ok)
		if shown {
			require.Positive(t, j.Count(cells(2, 0, 4), confidence).Interval[0])
		}
	}))
}

// TestFiguresWithoutNoise: with many clients and nearly no noise, the estimates equal the truth.
func TestFiguresWithoutNoise(t *testing.T) {
	draft, m, values := tableTask(t, planner.Query{Protocol: "histogram", Epsilon: 40, Delta: 1e-4, Honest: .9}, clients)
	require.NoError(t, planner.Trial{Repeats: 1}.Batches(draft, m, values, func(agg protocols.Aggregate) {
		j := newFigures(t, draft, m, agg)
		share, _ := j.share(1, 1, 3)
		require.InDelta(t, 190./400, share.Estimate, 1e-3)
		difference, _ := j.difference(0, 1, 3, 4)
		require.InDelta(t, .05-.375, difference.Estimate, 1e-3)
		quantile, _ := j.quantile(0, .9)
		require.InDelta(t, 2+100./150, quantile.Estimate, 1e-2)
		require.Equal(t, [2]float64{2, 3}, quantile.Interval)
		require.InDelta(t, 6, j.Count(cells(2, 0, 4), confidence).Estimate, .1)
	}))
}

// TestTableNeedsLabels: New must refuse a histogram without labels.
func TestTableNeedsLabels(t *testing.T) {
	draft, m, _ := tableTask(t, tasks["randomized response"], clients)
	ranged := *draft
	ranged.Input.Labels = false
	_, err := crosstab.New(&ranged, m, m.Aggregate())
	require.ErrorContains(t, err, "invalid query histogram: want a histogram over labels, for a table")
}
