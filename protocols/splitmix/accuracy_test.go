package splitmix_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/protocols/splitmix"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

func column(n int, value func(i int) float64) [][]float64 {
	out := make([][]float64, n)
	for i := range out {
		out[i] = []float64{value(i)}
	}
	return out
}

// TestEstimatesHaveThePredictedErrors checks that the mean of 6,000 estimates is within 5 standard errors of the truth
// (fails by chance with 6·10⁻⁷), and their variance within 4.9 standard deviations of the prediction (10⁻⁶). A sample
// variance of R draws has the relative deviation √((2+κ)/R), κ ≤ 3 + 1/2 the excess kurtosis of at least a whole
// discrete Laplace variable.
func TestEstimatesHaveThePredictedErrors(t *testing.T) {
	const repeats = 6000
	for name, c := range map[string]struct {
		query  planner.Query
		values [][]float64
	}{
		"mean, h = 1": {planner.Query{Query: task.Mean, Honest: 1, Hi: 1},
			column(60, func(i int) float64 { return float64(i) / 59 })},
		"sum, h = 0.8": {planner.Query{Query: task.Sum, Honest: 0.8, Lo: -2, Hi: 3},
			column(50, func(i int) float64 { return -2 + float64(i%7)*0.7 })},
		"count, h = 0.8": {planner.Query{Query: task.Count, Honest: 0.8},
			column(40, func(i int) float64 { return float64(i % 2) })},
		"worst, h = 1": {planner.Query{Query: task.Sum, Honest: 1, Hi: 1, Params: planner.Params{"p": 2}},
			column(60, func(int) float64 { return 0.25 })},
		"zeros, h = 0.8": {planner.Query{Query: task.Sum, Honest: 0.8, Hi: 1},
			column(30, func(int) float64 { return 0 })},
	} {
		t.Run(name, func(t *testing.T) {
			q := c.query
			q.Batch, q.Epsilon, q.Delta = uint64(len(c.values)), 1, 1e-6
			d := draft(t, q)
			m, err := registry.Open(d)
			require.NoError(t, err)
			out, err := planner.Trial{Repeats: repeats}.Run(d, m, c.values)
			require.NoError(t, err)
			require.InDelta(t, out.Truth[0], out.Estimate[0], 5*math.Sqrt(out.PredictedVariance[0]/repeats))
			require.InEpsilon(t, out.PredictedVariance[0], out.Variance[0], 4.9*math.Sqrt(5.5/repeats))
			require.EqualValues(t, d.Slots.PerLane, out.MessagesPerUser)
		})
	}
}

func open(t *testing.T, q planner.Query) (*task.Task, protocols.Mechanism) {
	t.Helper()
	d := draft(t, q)
	m, err := registry.Open(d)
	require.NoError(t, err)
	return d, m
}

func addAll(t *testing.T, a protocols.Aggregate, lanes protocols.Messages) {
	t.Helper()
	for _, message := range lanes[0] {
		require.NoError(t, a.Add(0, message))
	}
}

// TestNegativeSumsAndSeveralBatches checks that sums below zero are decoded correctly, and that an aggregate decodes
// several batches one by one.
func TestNegativeSumsAndSeveralBatches(t *testing.T) {
	_, m := open(t, planner.Query{Query: task.Sum, Batch: 20, Honest: 1, Epsilon: 0.1, Delta: 1e-6})
	src := randomizer.NewSource()
	all, negative := m.Aggregate(), 0
	for range 50 {
		batch := m.Aggregate()
		for range 20 {
			lanes, err := m.Randomize(src, []float64{0})
			require.NoError(t, err)
			addAll(t, batch, lanes)
			addAll(t, all, lanes)
		}
		all.AddUsers(20)
		batch.AddUsers(20)
		require.Less(t, math.Abs(batch.Total()[0]), 28/0.1+20, "the noise of one batch")
		if batch.Total()[0] < 0 {
			negative++
		}
	}
	require.Greater(t, negative, 5)
	require.Less(t, negative, 45)
	require.EqualValues(t, 1000, all.Reports())
	require.Less(t, math.Abs(all.Total()[0]), 6*math.Sqrt(50*20*m.Worst().Variance))
}

func TestMerge(t *testing.T) {
	_, m := open(t, planner.Query{Query: task.Mean, Batch: 10, Honest: 1, Epsilon: 1, Delta: 1e-6})
	src := randomizer.NewSource()
	one, parts := m.Aggregate(), []protocols.Aggregate{m.Aggregate(), m.Aggregate()}
	for i := range 10 {
		lanes, err := m.Randomize(src, []float64{float64(i) / 10})
		require.NoError(t, err)
		addAll(t, one, lanes)
		addAll(t, parts[i%2], lanes)
	}
	require.NoError(t, parts[0].Merge(parts[1])) // two halves of one batch
	parts[0].AddUsers(10)
	one.AddUsers(10)
	require.Equal(t, one.Total(), parts[0].Total())
	require.NoError(t, one.Merge(parts[0])) // two batches
	require.EqualValues(t, 20, one.Reports())
	require.InDelta(t, 2*parts[0].Total()[0], one.Total()[0], 1e-9)

	_, other := open(t, planner.Query{Query: task.Count, Batch: 10, Honest: 1, Epsilon: 1, Delta: 1e-6})
	require.ErrorIs(t, one.Merge(other.Aggregate()), protocols.ErrMerge)
}

// TestIncompleteBatchesAreLeftOut checks that a batch with a share missing is left out, and that malformed shares are
// refused.
func TestIncompleteBatchesAreLeftOut(t *testing.T) {
	_, m := open(t, planner.Query{Query: task.Sum, Batch: 10, Honest: 1, Epsilon: 1, Delta: 1e-6})
	src := randomizer.NewSource()
	a, check := m.Aggregate(), protocols.CapabilitiesOf(m).CheckComplete
	for i := range 10 {
		lanes, err := m.Randomize(src, []float64{1})
		require.NoError(t, err)
		if i == 0 {
			lanes[0] = lanes[0][1:]
		}
		addAll(t, a, lanes)
	}
	requireField(t, check(a, 10), "batch")
	a.AddUsers(10)
	require.Zero(t, a.Reports())
	require.NoError(t, check(a, 0))

	require.Error(t, a.Add(1, make([]byte, 2)))
	require.Error(t, a.Add(0, make([]byte, 9)))
	require.Error(t, a.Add(0, []byte{255, 255}), "q or more")
}

// TestSharesAreUniform checks that every share of one value is uniform, by counts in 8 cells. It allows 6 standard
// deviations.
func TestSharesAreUniform(t *testing.T) {
	d, m := open(t, planner.Query{Query: task.Count, Batch: 1000, Honest: 1, Epsilon: 1, Delta: 1e-6})
	q, _ := d.Param("q")
	src := randomizer.NewSource()
	const draws = 40_000
	counts := make([][8]float64, d.Slots.PerLane)
	for range draws {
		lanes, err := m.Randomize(src, []float64{1})
		require.NoError(t, err)
		for i, message := range lanes[0] {
			v, err := protocols.Indices(uint64(q.Num)).Decode(message)
			require.NoError(t, err)
			counts[i][v*8/uint64(q.Num)]++
		}
	}
	for i, cells := range counts {
		for _, c := range cells {
			require.InDelta(t, draws/8, c, 6*math.Sqrt(draws/8)+draws*8/float64(q.Num), "share %d", i)
		}
	}
}

func TestWorstValueHasTheWorstVariance(t *testing.T) {
	for _, query := range []task.Query{task.Count, task.Mean} {
		_, m := open(t, planner.Query{Query: query, Lo: -1, Hi: 4, Batch: 100, Honest: 0.9, Epsilon: 1, Delta: 1e-6})
		_, at, err := m.Exact(m.Worst().Value)
		require.NoError(t, err)
		require.InEpsilon(t, m.Worst().Variance, at[0], 1e-6)
	}
}

// TestWrapIsRare checks the choice of q. By the exact tail 2α^T/(1+α) of the discrete Laplace distribution, the noise
// of a batch must exceed (q-np)/2 with a probability below MaxWrap, and not far below.
func TestWrapIsRare(t *testing.T) {
	for _, n := range []uint64{10, 1000, 100_000} {
		d, _ := open(t, planner.Query{Query: task.Mean, Batch: n, Honest: 1, Epsilon: 0.5, Delta: 1e-6})
		p, _ := d.Param("p")
		q, _ := d.Param("q")
		s, _ := d.Param("s")
		reach := float64(uint64(q.Num)-n*uint64(p.Num)) / 2
		tail := 2 * math.Exp(-s.Float64()*reach) / (1 + math.Exp(-s.Float64()))
		require.Less(t, tail, splitmix.MaxWrap)
		require.Greater(t, tail, splitmix.MaxWrap/1000)
	}
}

// TestNearlyCentralForTenMillionClients: the error of a mean of 10⁷ clients must be at most 1.1 times a trusted
// curator's.
func TestNearlyCentralForTenMillionClients(t *testing.T) {
	const n = 10_000_000
	for _, delta := range []float64{1e-6, 1e-8} {
		d, err := planner.Draft(planner.Query{Name: "n", Protocol: splitmix.Name, Query: task.Mean, Hi: 1, Batch: n,
			Honest: 1, Epsilon: 1, Delta: delta})
		require.NoError(t, err)
		m, err := registry.Open(d)
		require.NoError(t, err)
		require.NoError(t, m.CheckClaim())
		require.LessOrEqual(t, math.Sqrt(m.Worst().Variance*n)/math.Sqrt2, 1.1, "δ = %g", delta)
	}
}

func BenchmarkRandomize(b *testing.B) {
	d, err := planner.Draft(planner.Query{Name: "b", Protocol: splitmix.Name, Query: task.Mean, Hi: 1, Batch: 10_000,
		Honest: 1, Epsilon: 1, Delta: 1e-8})
	require.NoError(b, err)
	m, err := registry.Open(d)
	require.NoError(b, err)
	src := randomizer.NewSource()
	for b.Loop() {
		m.Randomize(src, []float64{0.3})
	}
}

func BenchmarkCheckClaim(b *testing.B) {
	d, err := planner.Draft(planner.Query{Name: "b", Protocol: splitmix.Name, Query: task.Mean, Hi: 1,
		Batch: 10_000_000, Honest: 1, Epsilon: 1, Delta: 1e-4})
	require.NoError(b, err)
	m, err := registry.Open(d)
	require.NoError(b, err)
	for b.Loop() {
		m.CheckClaim()
	}
}
