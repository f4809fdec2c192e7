package planner_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

func open(t *testing.T, q planner.Query) (*task.Task, protocols.Mechanism) {
	t.Helper()
	q.Name = "test"
	if q.Hi == 0 {
		q.Hi = 1
	}
	if q.Honest == 0 {
		q.Honest = 1
	}
	if q.Epsilon == 0 {
		q.Epsilon, q.Delta = 1, 1e-6
	}
	d, err := planner.Draft(q)
	require.NoError(t, err)
	m, err := registry.Open(d)
	require.NoError(t, err)
	return d, m
}

func column(n int, value func(i int) float64) [][]float64 {
	out := make([][]float64, n)
	for i := range out {
		out[i] = []float64{value(i)}
	}
	return out
}

// drawn returns a function that draws batches of clients: the fast one if fast is set and the protocol has it.
func drawn(t *testing.T, fast bool, m protocols.Mechanism, values [][]float64) protocols.Draw {
	if can := protocols.CapabilitiesOf(m); can.Fast != nil && fast {
		draw, err := can.Fast(values)
		require.NoError(t, err)
		return draw
	}
	return func(src *randomizer.Source) (protocols.Aggregate, func() uint64) {
		agg, messages := m.Aggregate(), uint64(0)
		for _, v := range values {
			lanes, err := m.Randomize(src, v)
			require.NoError(t, err)
			for lane := range lanes {
				for _, message := range lanes[lane] {
					require.NoError(t, agg.Add(lane, message))
					messages++
				}
			}
		}
		return agg, protocols.FixedCount(messages)
	}
}

// samples draws batches, and returns sorted samples of several statistics: the total and the variance of every entry,
// and the number of messages.
func samples(t *testing.T, fast bool, m protocols.Mechanism, values [][]float64, runs int) (out [][]float64) {
	src, draw := randomizer.NewSource(), drawn(t, fast, m, values)
	for range runs {
		agg, messages := draw(src)
		agg.AddUsers(uint64(len(values)))
		seen := append(agg.Total(), float64(messages()))
		for _, law := range agg.Errors() {
			seen = append(seen, law.Variance())
		}
		if out == nil {
			out = make([][]float64, len(seen))
		}
		for i, x := range seen {
			out[i] = append(out[i], x)
		}
	}
	for i := range out {
		slices.Sort(out[i])
	}
	return out
}

// distance returns the Kolmogorov-Smirnov statistic of two sorted samples of equal size.
func distance(a, b []float64) (d float64) {
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		v := min(a[i], b[j])
		for i < len(a) && a[i] == v {
			i++
		}
		for j < len(b) && b[j] == v {
			j++
		}
		d = max(d, math.Abs(float64(i-j))/float64(len(a)))
	}
	return d
}

// TestFastPathHasTheSlowPathsDistribution compares 2,000 batches of both paths in 70 statistics. If the distributions
// are equal, a statistic differs by more than threshold with probability at most 2e^(-2000·threshold²) = 10⁻⁷. The same
// comparison must detect another amount of noise.
func TestFastPathHasTheSlowPathsDistribution(t *testing.T) {
	const runs, users = 2000, 100
	threshold := math.Sqrt(math.Log(2e7) / runs)
	full := task.PaddingFull
	for name, c := range map[string]struct {
		query planner.Query
		other planner.Query // the same query with another amount of noise
	}{
		"histogram": {planner.Query{Query: task.Histogram, Bins: 4},
			planner.Query{Query: task.Histogram, Bins: 4, Epsilon: 0.2, Delta: 1e-6}},
		"realsum": {planner.Query{Query: task.Mean}, planner.Query{Query: task.Mean, Epsilon: 0.2, Delta: 1e-6}},
		"rappor": {planner.Query{Query: task.Sum, Protocol: "rappor", Epsilon: 2, Delta: 1e-6},
			planner.Query{Query: task.Sum, Protocol: "rappor", Epsilon: 0.5, Delta: 1e-6}},
		"splitmix": {planner.Query{Query: task.Mean, Protocol: "splitmix", Honest: 0.8},
			planner.Query{Query: task.Mean, Protocol: "splitmix", Honest: 0.1}},
		"correlated": {planner.Query{Query: task.Sum, Protocol: "correlated", Epsilon: 4, Delta: 1e-4,
			Params: planner.Params{"max": 3}},
			planner.Query{Query: task.Sum, Protocol: "correlated", Epsilon: 0.5, Delta: 1e-4,
				Params: planner.Params{"max": 3}}},
		"correlated, full": {planner.Query{Query: task.Count, Protocol: "correlated", Epsilon: 4, Delta: 1e-4,
			Padding: full},
			planner.Query{Query: task.Count, Protocol: "correlated"}},
		"correlated, bins": {planner.Query{Query: task.Histogram, Bins: 3, Protocol: "correlated", Epsilon: 4,
			Delta: 1e-4},
			planner.Query{Query: task.Histogram, Bins: 3, Protocol: "correlated"}},
		"vectorsum": {planner.Query{Query: task.Vector, Dim: 3, Protocol: "vectorsum"},
			planner.Query{Query: task.Vector, Dim: 3, Protocol: "vectorsum", Epsilon: 0.2, Delta: 1e-6}},
		"vectorsum, two blocks": {
			planner.Query{Query: task.Vector, Dim: 5, Protocol: "vectorsum", Params: planner.Params{"t": 2, "k": 3}},
			planner.Query{Query: task.Vector, Dim: 5, Protocol: "vectorsum", Epsilon: 0.05, Delta: 1e-6}},
		"vectorgrid": {planner.Query{Query: task.VectorMean, Dim: 2, Protocol: "vectorgrid", Epsilon: 4, Delta: 1e-6},
			planner.Query{Query: task.VectorMean, Dim: 2, Protocol: "vectorgrid", Epsilon: 1, Delta: 1e-6}},
		"vectormean": {planner.Query{Query: task.VectorMean, Dim: 2, Protocol: "vectormean", Epsilon: 4, Delta: 1e-6},
			planner.Query{Query: task.VectorMean, Dim: 2, Protocol: "vectormean", Epsilon: 0.5, Delta: 1e-6}},
	} {
		t.Run(name, func(t *testing.T) {
			c.query.Batch, c.other.Batch = users, users
			c.query.Clip, c.other.Clip = c.query.Query.Info().Ball(), c.query.Query.Info().Ball()
			d, m := open(t, c.query)
			values := various(d, m)
			slow, fast := samples(t, false, m, values, runs), samples(t, true, m, values, runs)
			for i := range slow {
				require.Less(t, distance(slow[i], fast[i]), threshold, "statistic %d", i)
			}
			_, m = open(t, c.other)
			other := distance(slow[0], samples(t, true, m, values, runs)[0])
			t.Logf("distance %.3f, threshold %.3f", other, threshold)
			require.Greater(t, other, threshold)
		})
	}
}

// TestFastLocalAnswersHaveTheSlowOnesDistribution makes the same comparison for augmented, with clients who randomize.
// Both paths draw dummies in the same way. There are 11 statistics.
func TestFastLocalAnswersHaveTheSlowOnesDistribution(t *testing.T) {
	const runs, users = 2000, 100
	threshold := math.Sqrt(math.Log(2e7) / runs)
	locally := func(q planner.Query, eighths int64) (*task.Task, protocols.Mechanism) {
		q.Protocol, q.Batch = "augmented", users
		d, _ := open(t, q)
		d.Params = []task.Param{{Key: "gamma", Value: randomizer.NewRational(eighths, 8)}}
		require.NoError(t, registry.Calibrate(d))
		m, err := registry.Open(d)
		require.NoError(t, err)
		return d, m
	}
	for _, q := range []planner.Query{{Query: task.Sum, Hi: 4}, {Query: task.Histogram, Bins: 4}} {
		d, m := locally(q, 1)
		values := various(d, m)
		slow, fast := samples(t, false, m, values, runs), samples(t, true, m, values, runs)
		for i := range slow {
			require.Less(t, distance(slow[i], fast[i]), threshold, "%s, statistic %d", q.Query, i)
		}
		_, m = locally(q, 7)
		require.Greater(t, distance(slow[0], samples(t, true, m, values, runs)[0]), threshold, q.Query)
	}
}

// TestMaliciousClients compares the effect of f malicious among n clients with the protocols' package comments.
func TestMaliciousClients(t *testing.T) {
	const n, f, repeats = 400, 8, 200
	zeros := column(n, func(int) float64 { return 0 })
	bias := func(d *task.Task, m protocols.Mechanism, attack string, fast bool) (float64, *planner.Outcome) {
		out, err := planner.Trial{Repeats: repeats, Malicious: f, Attack: attack, Fast: fast}.Run(d, m, zeros)
		require.NoError(t, err)
		return out.Estimate[0] - out.Truth[0], out
	}
	d, m := open(t, planner.Query{Query: task.Sum, Batch: n})
	gamma, _ := d.Param("gamma")
	for _, fast := range []bool{false, true} {
		got, out := bias(d, m, protocols.AttackMax, fast)
		require.InDelta(t, f/(1-gamma.Float64())-f*gamma.Float64()/2/(1-gamma.Float64()), got,
			6*math.Sqrt(out.PredictedVariance[0]/repeats), "each moves the sum by at most 1/(1-γ)")
		got, out = bias(d, m, protocols.AttackDropNoise, fast)
		require.InDelta(t, -f*gamma.Float64()/2/(1-gamma.Float64()), got, 6*math.Sqrt(out.PredictedVariance[0]/repeats))
	}

	d, m = open(t, planner.Query{Query: task.Histogram, Bins: 4, Batch: n})
	gamma, _ = d.Param("gamma")
	got, out := bias(d, m, protocols.AttackMax, true)
	require.InDelta(t, f*(1-gamma.Float64()/4)/(1-gamma.Float64())-f, got,
		6*math.Sqrt(out.PredictedVariance[0]/repeats), "the first count, which they are in")

	d, m = open(t, planner.Query{Query: task.Sum, Protocol: "splitmix", Batch: n})
	q, _ := d.Param("q")
	p, _ := d.Param("p")
	got, _ = bias(d, m, protocols.AttackMax, true)
	require.Greater(t, math.Abs(got), float64(q.Num)/float64(p.Num)/10, "one share is enough for an estimate anywhere")
	got, out = bias(d, m, protocols.AttackDropNoise, false)
	require.InDelta(t, 0, got, 6*math.Sqrt(out.PredictedVariance[0]/repeats))
}

func TestOptionsThatCannotBe(t *testing.T) {
	d, m := open(t, planner.Query{Query: task.Sum, Batch: 10})
	values := column(10, func(int) float64 { return 0 })
	for field, o := range map[string]planner.Trial{
		"malicious": {Malicious: 11, Attack: protocols.AttackMax},
		"attack":    {Malicious: 1, Attack: protocols.AttackOneCoordinate},
	} {
		o.Repeats = 1
		_, err := o.Run(d, m, values)
		var f *invalid.FieldError
		require.True(t, errors.As(err, &f), "%v", err)
		require.Equal(t, field, f.Field)
	}
	_, err := planner.Trial{Repeats: 1, Fast: true}.Run(d, slow{m}, values)
	require.ErrorContains(t, err, "fast")
	_, err = planner.Trial{Repeats: 1, Malicious: 1, Attack: protocols.AttackMax}.Run(d, slow{m}, values)
	require.ErrorContains(t, err, "attack")
	_, err = planner.Trial{Repeats: 1, Malicious: 1, Attack: protocols.AttackMax}.Run(d, greedy{m}, values)
	require.ErrorContains(t, err, "at most 1 in a lane", "relays hold malicious clients to the slots")
}

// slow is a mechanism without optional capabilities.
type slow struct{ protocols.Mechanism }

func (slow) Capabilities() (none protocols.Capabilities) { return none }

// greedy is a mechanism whose malicious clients send more messages than their slots allow.
type greedy struct{ protocols.Mechanism }

func (greedy) Capabilities() protocols.Capabilities {
	return protocols.Capabilities{
		Attack: func(*randomizer.Source, string, int, []float64) (protocols.Messages, error) {
			return protocols.Messages{{{0}, {0}}}, nil
		},
	}
}

// TestLargestSums: all clients have the least or the greatest value of the widest range, ±1e9. The sum of 10⁷ clients
// is beyond 2⁵³, up to which a float64 holds all whole numbers. Truth and estimate must agree within 6 standard
// errors, which fails by chance once in 10⁸ runs.
func TestLargestSums(t *testing.T) {
	const users = 10_000_000
	same := []float64{0} // every client's value
	values := make([][]float64, users)
	for i := range values {
		values[i] = same
	}
	for name, q := range map[string]planner.Query{
		"realsum":       {Protocol: "realsum"},
		"relays' noise": {Relays: &planner.RelayNoise{Batches: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			q.Query, q.Lo, q.Hi, q.Batch = task.Sum, -1e9, 1e9, users
			d, m := open(t, q)
			for _, end := range []float64{-1e9, 1e9} {
				same[0] = end
				out, err := planner.Trial{Repeats: 1, Fast: true}.Run(d, m, values)
				require.NoError(t, err)
				require.InEpsilon(t, end*users, out.Truth[0], 1e-12)
				require.InDelta(t, out.Truth[0], out.Estimate[0], 6*math.Sqrt(out.PredictedVariance[0]))
				require.Less(t, math.Sqrt(out.PredictedVariance[0]), 1e-3*users*1e9)
			}
		})
	}
}
