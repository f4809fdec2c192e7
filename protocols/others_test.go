package protocols_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/wire/task"
)

// drafted returns the task of a query with only honest clients at δ = 10⁻⁶, its number k of levels, and its worst-case
// error.
func drafted(t *testing.T, q planner.Query) (d *task.Task, k int64, rmse float64) {
	q.Name, q.Hi, q.Honest, q.Delta = "test", 1, 1, 1e-6
	d, err := planner.Draft(q)
	require.NoError(t, err)
	m, err := registry.Open(d)
	require.NoError(t, err)
	require.NoError(t, m.CheckClaim())
	levels, _ := d.Param("k")
	return d, levels.Num, math.Sqrt(float64(q.Batch) * m.Worst().Variance)
}

// A count and a histogram of two bins use rule others. Their error must be that of the rule's exact noise.
func TestTwoValuesTakeRuleOthers(t *testing.T) {
	for _, tt := range []struct {
		users     uint64
		eps, most float64
	}{{1e4, 1, 5.86}, {1e4, .3, 14.5}, {1e4, .1, 37.9}, {1e6, .1, 37.9}} {
		count, _, rmse := drafted(t, planner.Query{Query: task.Count, Batch: tt.users, Epsilon: tt.eps})
		require.Equal(t, "others", count.Rule)
		require.LessOrEqual(t, rmse, tt.most)
		t.Logf("count, n = %d, ε = %g: RMSE %.3f, at most %g", tt.users, tt.eps, rmse, tt.most)

		bins, _, _ := drafted(t, planner.Query{Query: task.Histogram, Bins: 2, Labels: true, Batch: tt.users,
			Epsilon: tt.eps})
		require.Equal(t, "others", bins.Rule)
		gamma, _ := count.Param("gamma")
		same, _ := bins.Param("gamma")
		require.Equal(t, gamma, same)
	}
	three, _, _ := drafted(t, planner.Query{Query: task.Histogram, Bins: 3, Labels: true, Batch: 1000, Epsilon: 1})
	require.Equal(t, "exact", three.Rule)
}

// Checks the choice of k for sums. k = 1 has a rule with a better γ and must win only if noise outweighs rounding.
func TestSumsChooseTheRuleWithTheLevels(t *testing.T) {
	for _, tt := range []struct {
		users uint64
		eps   float64
		rule  string
		k     int64
	}{{1000, .1, "others", 1}, {1e4, .1, "exact", 2}, {300, .3, "exact", 2}, {1e4, 1, "exact", 7}} {
		sum, k, rmse := drafted(t, planner.Query{Query: task.Sum, Batch: tt.users, Epsilon: tt.eps})
		require.Equal(t, tt.rule, sum.Rule, "%+v", tt)
		require.Equal(t, tt.k, k, "%+v", tt)
		for _, rule := range []string{"exact", "others"} { // neither rule by itself may do better
			_, _, other := drafted(t, planner.Query{Query: task.Sum, Rule: rule, Batch: tt.users, Epsilon: tt.eps})
			require.LessOrEqual(t, rmse, other, "%+v", tt)
		}
	}
}

// Rule others, which is proven only for a count, is refused for other queries.
func TestRuleOthersIsRefusedElsewhere(t *testing.T) {
	for _, q := range []planner.Query{
		{Query: task.Histogram, Bins: 3, Labels: true},
		{Query: task.Vector, Dim: 3, Params: planner.Params{"k": 1}},
		{Query: task.VectorMean, Protocol: "vectorgrid", Dim: 2},
	} {
		q.Name, q.Rule, q.Hi, q.Batch, q.Honest, q.Epsilon, q.Delta = "test", "others", 1, 1000, 1, 1, 1e-6
		_, err := planner.Draft(q)
		require.ErrorContains(t, err, "rule", "%+v", q)
		q.Rule = "exact"
		d, err := planner.Draft(q)
		require.NoError(t, err)
		d.Rule = "others"
		m, err := registry.Open(d)
		if err == nil {
			err = m.CheckClaim()
		}
		require.ErrorContains(t, err, "rule", "%+v", q)
	}
}
