package verifier_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/task"
)

// TestBandsOverEpochsHoldAllAtOnce: in at least 94.5 % of runs, the bands of all epochs and entries must contain the
// truth at once, although clients' values depend on the previous result. The test fails by chance with probability
// 10⁻⁸. The epochs' own intervals must all do so far less often, or the test would show nothing. With nearly normal
// errors, the bands must not cover much more often than they claim. The long form has 3,000 runs.
func TestBandsOverEpochsHoldAllAtOnce(t *testing.T) {
	const epochs = 10
	limit := func(runs, share, side float64) int { return int(share*runs + side*5.6*math.Sqrt(runs*share*(1-share))) }
	for name, q := range map[string]planner.Query{
		"mean":   {Query: task.Mean, Hi: 9},
		"labels": {Query: task.Histogram, Bins: 4, Labels: true, Hi: 4},
		"median": {Query: task.Histogram, Bins: 4, Hi: 4},
	} {
		t.Run(name, func(t *testing.T) {
			users := 60 // few, so that exact intervals take little time
			if name == "mean" {
				users = 4000
			}
			q.Name, q.Batch, q.Honest, q.Epsilon, q.Delta = name, uint64(users), 1, 4, 1e-4
			draft, err := planner.Draft(q)
			require.NoError(t, err)
			m, err := registry.Open(draft)
			require.NoError(t, err)
			both := []*simulated{newSimulated(t, m, users, 1), newSimulated(t, m, users, 2)}
			src := randomizer.NewSource()
			bands, intervals, runs := 0, 0, 20.0
			switch {
			case stattest.Long:
				runs = 3000
			case name == "mean":
				runs = 300
			}
			for range int(runs) {
				all, each, now := true, true, 0
				for range epochs {
					agg, _ := both[now].draw(src)
					agg.AddUsers(uint64(users))
					a, d := verifier.EpochAnswerOf(draft, m, agg, epochs)
					require.Len(t, a.BandOverEpochs, len(a.Estimate))
					held, alone := both[now].held(a, d)
					all, each = all && held, each && alone
					now = int(math.Abs(a.Estimate[0])*1000) % 2 // the previous result decides the next values
				}
				if all {
					bands++
				}
				if each {
					intervals++
				}
			}
			t.Logf("of %v runs bands held in %d, intervals in %d", runs, bands, intervals)
			require.GreaterOrEqual(t, bands, limit(runs, .945, -1))
			if name != "median" { // the median's intervals end at edges of bins, and may never miss
				require.Less(t, intervals, bands)
			}
			if name == "mean" {
				alone := math.Pow(.97, epochs) // the intervals end at steps, so they cover slightly more than 95 %
				require.Less(t, intervals, limit(runs, alone, 1))
				require.LessOrEqual(t, bands, limit(runs, .97, 1))
			}
		})
	}
}

// simulated is a number of clients with their values and the true answer.
type simulated struct {
	draw   func(*randomizer.Source) (protocols.Aggregate, error)
	truth  []float64
	median float64
}

func newSimulated(t *testing.T, m protocols.Mechanism, users, step int) *simulated {
	t.Helper()
	var values []float64
	var rows [][]float64
	c := &simulated{}
	for i := range users {
		values = append(values, float64(i*step%4))
		rows = append(rows, values[i:i+1])
		total, _, err := m.Exact(rows[i])
		require.NoError(t, err)
		if c.truth == nil {
			c.truth = make([]float64, len(total))
		}
		for j, x := range total {
			c.truth[j] += x
		}
	}
	values = slices.Sorted(slices.Values(values))
	c.median = values[(users-1)/2]
	draw, err := protocols.CapabilitiesOf(m).Fast(rows)
	require.NoError(t, err)
	c.draw = func(src *randomizer.Source) (protocols.Aggregate, error) { agg, _ := draw(src); return agg, nil }
	return c
}

// held reports whether all bands over epochs contain the truth, and whether all intervals do.
func (c *simulated) held(a verifier.Answer, d *verifier.Distribution) (bands, intervals bool) {
	bands, intervals = true, true
	in := func(x float64, of [2]float64) bool { return of[0] <= x && x <= of[1] }
	if d != nil {
		median := d.Median()
		return in(c.median, *median.BandOverEpochs), in(c.median, median.Interval)
	}
	scale := 1.0
	if len(a.Estimate) == 1 {
		scale = 1.0 / float64(a.Reports)
	}
	for j, x := range c.truth {
		bands, intervals = bands && in(x*scale, a.BandOverEpochs[j]), intervals && in(x*scale, a.Interval[j])
	}
	return bands, intervals
}
