package vectorsum_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/protocols/vectorsum"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// The tests allow a mean 5.7 standard errors, and a variance 5.7 of its own standard deviations (√(2/repeats) relative,
// because the estimates are nearly normal). Each check fails by chance once in 8·10⁷ runs, and all 80 checks together
// once in 10⁶.
const (
	repeats    = 2000 * stattest.Times
	deviations = 5.7
)

func TestEstimatesAreUnbiasedWithThePredictedVariance(t *testing.T) {
	const n, d = 400, 5
	for name, q := range map[string]planner.Query{
		"one coordinate":               {Honest: 1, Params: planner.Params{"k": 3}},
		"one coordinate, 80 % honest":  {Honest: 0.8, Params: planner.Params{"k": 3}},
		"chosen k":                     {Honest: 1},
		"two coordinates":              {Honest: 1, Params: planner.Params{"k": 2, "t": 2}},
		"two coordinates, 80 % honest": {Honest: 0.8, Params: planner.Params{"k": 2, "t": 2}},
		"blocks of 2, 2 and 1":         {Honest: 1, Params: planner.Params{"k": 2, "t": 3}},
		"all coordinates":              {Honest: 1, Params: planner.Params{"k": 1, "t": d}},
		"published": {Honest: 1, Delta: 0.5, Epsilon: 0.95, Rule: vectorsum.RuleSCM21,
			Params: planner.Params{"k": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q.Name, q.Query, q.Dim, q.Lo, q.Hi, q.Batch = "test", task.Vector, d, -1, 3, n
			if q.Delta == 0 {
				q.Epsilon, q.Delta = 1, 1e-6
			}
			draft, err := planner.Draft(q)
			require.NoError(t, err)
			m, err := registry.Open(draft)
			require.NoError(t, err)
			require.NoError(t, m.CheckClaim())
			values := make([][]float64, n)
			for i := range values {
				values[i] = []float64{-1, 3, 1, -1 + float64(i%97)/24, float64(i % 2)}
			}
			out, err := planner.Trial{Repeats: repeats}.Run(draft, m, values)
			require.NoError(t, err)
			for l, truth := range out.Truth {
				se := math.Sqrt(out.PredictedVariance[l] / repeats)
				require.InDelta(t, truth, out.Estimate[l], deviations*se, "bias of coordinate %d", l)
				require.InEpsilon(t, out.PredictedVariance[l], out.Variance[l], deviations*math.Sqrt(2.0/repeats),
					"variance of coordinate %d", l)
			}
		})
	}
}

// The variance of a client's contribution is the sum of the two parts that Split returns: noise, which the paper
// counts, and sampling.
func TestVarianceIsNoisePlusSampling(t *testing.T) {
	d := draft(8, 10_000, "1", "1e-6", "revealed", whole("k", 2))
	calibrated(t, d)
	m, err := new(vectorsum.Protocol).Open(d)
	require.NoError(t, err)
	value := []float64{0, 0.25, 0.5, 0.75, 1, 0.1, 0.2, 0.3}
	_, variance, err := m.Exact(value)
	require.NoError(t, err)
	noise, sampling, err := m.(*vectorsum.Mechanism).Split(value)
	require.NoError(t, err)
	for l, x := range value {
		require.InEpsilon(t, variance[l], noise[l]+sampling[l], 1e-12)
		require.InDelta(t, 7*(x-0.5)*(x-0.5), sampling[l], 1e-12)
	}
}

func TestWorstValueHasTheWorstVariance(t *testing.T) {
	for _, params := range [][]task.Param{
		{whole("k", 1)}, {whole("k", 3)}, {whole("k", 40)}, {whole("k", 1), whole("t", 3)},
		{whole("k", 9), whole("t", 8)}, nil,
	} {
		for _, users := range []uint64{300, 100_000} {
			d := draft(8, users, "1", "1e-6", "revealed", params...)
			calibrated(t, d)
			m, err := new(vectorsum.Protocol).Open(d)
			require.NoError(t, err)
			_, at, err := m.Exact(m.Worst().Value)
			require.NoError(t, err)
			require.InEpsilon(t, m.Worst().Variance, at[0], 1e-9)
			value := make([]float64, 8)
			for i := range 4001 {
				value[3] = float64(i) / 4000
				_, v, err := m.Exact(value)
				require.NoError(t, err)
				require.LessOrEqual(t, v[3], m.Worst().Variance*(1+1e-12))
			}
		}
	}
}

// TestRandomizerFollowsItsLaw compares 60,000 messages with the probabilities that the privacy tests enumerate.
// Pearson's statistic with 5 degrees of freedom exceeds 38 by chance once in 3·10⁶ runs.
func TestRandomizerFollowsItsLaw(t *testing.T) {
	const draws = 60_000
	d := draft(3, 100, "1", "1e-6", "revealed", whole("k", 1))
	gamma := calibrated(t, d)
	m, err := new(vectorsum.Protocol).Open(d)
	require.NoError(t, err)
	law := reports(3, 1, 1, gamma)[0b101] // x = (1, 0, 1)
	src, counts := randomizer.NewSource(), [6]float64{}
	for range draws {
		lanes, err := m.Randomize(src, []float64{1, 0, 1})
		require.NoError(t, err)
		require.Len(t, lanes, 1)
		require.Len(t, lanes[0], 1)
		require.Len(t, lanes[0][0], 1)
		counts[lanes[0][0][0]]++
	}
	statistic := 0.0
	for key, p := range law {
		for kind, n := range []byte(key) {
			if n == 1 {
				statistic += (counts[kind] - draws*p) * (counts[kind] - draws*p) / (draws * p)
			}
		}
	}
	require.Less(t, statistic, 38.0, "counts %v", counts)
}

// The coordinates of a block must be equally likely, and independent of the other block's. For 6 pairs, 5 degrees of
// freedom, 38 is exceeded by chance once in 3·10⁶ runs.
func TestCoordinatesAreDrawnUniformly(t *testing.T) {
	const draws = 20_000
	d := draft(5, 100, "1", "1e-6", "revealed", whole("k", 1), whole("t", 2))
	calibrated(t, d)
	require.EqualValues(t, 2, d.Slots.Lanes)
	require.EqualValues(t, 1, d.Slots.PerLane)
	m, err := new(vectorsum.Protocol).Open(d)
	require.NoError(t, err)
	src, counts := randomizer.NewSource(), map[[2]byte]float64{}
	for range draws {
		lanes, err := m.Randomize(src, make([]float64, 5))
		require.NoError(t, err)
		counts[[2]byte{lanes[0][0][0] / 2, lanes[1][0][0] / 2}]++
	}
	require.Len(t, counts, 6)
	statistic := 0.0
	for pair, n := range counts {
		require.Less(t, pair[0], byte(3))
		require.GreaterOrEqual(t, pair[1], byte(3))
		statistic += (n - draws/6.0) * (n - draws/6.0) / (draws / 6.0)
	}
	require.Less(t, statistic, 38.0)
}

// The aggregate refuses a message about a coordinate of another lane's block. Otherwise a client could report one
// coordinate in several lanes.
func TestCoordinateOfAnotherLaneIsRefused(t *testing.T) {
	d := draft(5, 100, "1", "1e-6", "revealed", whole("k", 1), whole("t", 2))
	calibrated(t, d)
	m, err := new(vectorsum.Protocol).Open(d)
	require.NoError(t, err)
	a := m.Aggregate()
	for l := range byte(5) {
		for lane := range 2 {
			err := a.Add(lane, []byte{2 * l})
			if own := int(l) * 2 / 5; lane == own {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, "in lane", "coordinate %d", l)
			}
		}
	}
	require.Error(t, a.Add(2, []byte{0}))
	require.Error(t, a.Add(-1, []byte{0}))
}

func TestBadParametersNameTheField(t *testing.T) {
	for name, c := range map[string]struct {
		query planner.Query
		field string
	}{
		"t above d":           {planner.Query{Dim: 4, Params: planner.Params{"t": 5}}, "params.t"},
		"t of zero":           {planner.Query{Dim: 4, Params: planner.Params{"t": 0}}, "params.t"},
		"k of zero":           {planner.Query{Dim: 4, Params: planner.Params{"k": 0}}, "params.k"},
		"unknown parameter":   {planner.Query{Dim: 4, Params: planner.Params{"r": 2}}, "params.r"},
		"no dimension":        {planner.Query{}, "dim"},
		"dimension too large": {planner.Query{Dim: 1<<20 + 1}, "dim"},
		"t ≥ 2 by theorem 1":  {planner.Query{Dim: 4, Rule: "theorem1", Params: planner.Params{"t": 2}}, "rule"},
		"scm21 at ε ≥ 6":      {planner.Query{Dim: 4, Rule: "scm21", Epsilon: 6}, "claim.epsilon"},
		"scm21, too few":      {planner.Query{Dim: 4, Rule: "scm21"}, "users"},
		"theorem 1, too few":  {planner.Query{Dim: 4, Rule: "theorem1", Params: planner.Params{"k": 5}}, "users"},
	} {
		t.Run(name, func(t *testing.T) {
			q := c.query
			q.Name, q.Query, q.Hi, q.Batch, q.Honest, q.Delta = "test", task.Vector, 1, 500, 1, 1e-6
			if q.Epsilon == 0 {
				q.Epsilon = 1
			}
			_, err := planner.Draft(q)
			var field *invalid.FieldError
			require.ErrorAs(t, err, &field)
			require.Equal(t, c.field, field.Field)
			require.NotEmpty(t, field.Want)
		})
	}
}

func TestValuesOutsideTheDomainAreRefused(t *testing.T) {
	d := draft(2, 100, "1", "1e-6", "revealed")
	calibrated(t, d)
	m, err := new(vectorsum.Protocol).Open(d)
	require.NoError(t, err)
	for _, bad := range [][]float64{nil, {1}, {0, 1, 0}, {0, math.NaN()}, {math.Inf(1), 0}, {0, 1.01}, {-0.01, 0}} {
		_, err := m.Randomize(randomizer.NewSource(), bad)
		var field *invalid.FieldError
		require.ErrorAs(t, err, &field)
		require.Equal(t, "value", field.Field)
		_, _, err = m.Exact(bad)
		require.Error(t, err)
	}
}

func TestMalformedMessagesChangeNothing(t *testing.T) {
	d := draft(200, 100, "1", "1e-6", "revealed", whole("k", 1))
	calibrated(t, d)
	m, err := new(vectorsum.Protocol).Open(d)
	require.NoError(t, err)
	a, b, both := m.Aggregate(), m.Aggregate(), m.Aggregate()
	for _, bad := range [][]byte{nil, {1}, {1, 144}, {0, 0, 1}} { // 400 = 200·2 is the first number too large
		require.Error(t, a.Add(0, bad))
	}
	require.Error(t, a.Add(1, []byte{0, 0}))
	require.Zero(t, a.Reports())
	for i, message := range [][]byte{{1, 143}, {0, 0}, {0, 1}} {
		require.NoError(t, both.Add(0, message))
		if i == 0 {
			require.NoError(t, a.Add(0, message))
		} else {
			require.NoError(t, b.Add(0, message))
		}
	}
	require.NoError(t, a.Merge(b))
	require.Equal(t, both.Total(), a.Total())
	require.EqualValues(t, 3, a.Reports())
}
