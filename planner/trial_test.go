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

// samples returns the first entry of the estimates of runs batches, sorted.
func samples(t *testing.T, o planner.Trial, d *task.Task, m protocols.Mechanism, values [][]float64,
	runs int) []float64 {
	out := make([]float64, runs)
	o.Repeats = 1
	for i := range out {
		got, err := o.Run(d, m, values)
		require.NoError(t, err)
		out[i] = got.Estimate[0]
	}
	slices.Sort(out)
	return out
}

// distance is the Kolmogorov-Smirnov statistic of two sorted samples of equal size.
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

// TestFastPathHasTheSlowPathsDistribution: two samples of 2,000 estimates differ by more than
// threshold with probability 2e^(-2000·threshold²) = 10⁻⁷ at most. The same comparison tells another
// noise.
func TestFastPathHasTheSlowPathsDistribution(t *testing.T) {
	const runs = 2000
	threshold := math.Sqrt(math.Log(2e7) / runs)
	mixed := func(i int) float64 { return float64(i%7) / 6 }
	for name, c := range map[string]struct {
		query planner.Query
		other planner.Query // with noise of another size
	}{
		"histogram": {planner.Query{Query: task.Histogram, Bins: 4},
			planner.Query{Query: task.Histogram, Bins: 4, Epsilon: 0.2, Delta: 1e-6}},
		"realsum": {planner.Query{Query: task.Mean}, planner.Query{Query: task.Mean, Epsilon: 0.2, Delta: 1e-6}},
		"rappor": {planner.Query{Query: task.Sum, Protocol: "rappor", Epsilon: 2, Delta: 1e-6},
			planner.Query{Query: task.Sum, Protocol: "rappor", Epsilon: 0.5, Delta: 1e-6}},
		"splitmix": {planner.Query{Query: task.Mean, Protocol: "splitmix", Honest: 0.8},
			planner.Query{Query: task.Mean, Protocol: "splitmix", Honest: 0.1}},
	} {
		t.Run(name, func(t *testing.T) {
			c.query.Batch, c.other.Batch = 100, 100
			d, m := open(t, c.query)
			values := column(100, mixed)
			slow := samples(t, planner.Trial{}, d, m, values, runs)
			fast := samples(t, planner.Trial{Fast: true}, d, m, values, runs)
			require.Less(t, distance(slow, fast), threshold)
			d, m = open(t, c.other)
			other := distance(slow, samples(t, planner.Trial{Fast: true}, d, m, values, runs))
			t.Logf("distance %.3f, threshold %.3f", other, threshold)
			require.Greater(t, other, threshold)
		})
	}
}

// TestMaliciousClients: what F of n clients can do, by the figures in the package comments.
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

// slow is a mechanism without the optional interfaces.
type slow struct{ protocols.Mechanism }

// greedy is one whose malicious clients send more than they may.
type greedy struct{ protocols.Mechanism }

func (greedy) Attack(*randomizer.Source, string, int, []float64) (protocols.Messages, error) {
	return protocols.Messages{{{0}, {0}}}, nil
}
