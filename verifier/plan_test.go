package verifier_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/protocols/strings"
	"github.com/doona-dp/doona/wire/task"
)

// TestPlansReachAnEstimate: every way that a plan calls possible must give an estimate with an owner, clients, two
// relays and a verifier. The ways must include every protocol, with each of its queries and paddings.
func TestPlansReachAnEstimate(t *testing.T) {
	queried, walked := map[task.Query]bool{}, map[string]bool{}
	for name, c := range map[string]struct {
		query  planner.Query
		value  []float64
		sparse bool
	}{
		"count":      {planner.Query{Query: task.Count}, []float64{1}, false},
		"mean":       {planner.Query{Query: task.Mean, Hi: 2}, []float64{1.5}, false},
		"sum":        {planner.Query{Query: task.Sum, Lo: -1, Hi: 3}, []float64{2}, false},
		"histogram":  {planner.Query{Query: task.Histogram, Bins: 3, Labels: true}, []float64{2}, false},
		"vector":     {planner.Query{Query: task.Vector, Hi: 1, Dim: 2}, []float64{1, .5}, false},
		"sparse":     {planner.Query{Query: task.Vector, Hi: 1, Dim: 2}, []float64{0, 1}, true},
		"vectormean": {planner.Query{Query: task.VectorMean, Dim: 2}, []float64{.6, .2}, false},
		"strings":    {planner.Query{Query: task.Strings, Length: 2}, strings.Value("/a"), false},
	} {
		queried[c.query.Query] = true
		q := c.query
		q.Name, q.Batch, q.Honest, q.Epsilon, q.Delta = name, 20, 1, 4, 1e-6
		ways, err := planner.Plan(planner.Goal{Query: q, Sparse: c.sparse, Noise: planner.NoiseAny, Hops: 2,
			MaxSlots: 270}, nil)
		require.NoError(t, err)
		for _, w := range ways {
			if w.Why != nil {
				t.Logf("%s by %s, padding %s: %v", name, w.Protocol, w.Padding, w.Why)
				continue
			}
			walked[wayName(q.Query, w.Protocol, w.Padding)] = true
			t.Run(name+"/"+w.Protocol+" "+string(w.Padding)+" "+string(w.Noise), func(t *testing.T) {
				cascade := relaytest.New(t, relaytest.Options{Task: func(draft *task.Task) {
					calibrated := *w.Task
					calibrated.Epochs = draft.Epochs
					*draft = calibrated
				}})
				cascade.StartAll(t)
				sendAll(t, cascade, c.value)
				report := pullAll(t, cascade)
				require.Empty(t, report.Findings)
				if q.Query == task.Strings {
					require.NotNil(t, report.Texts)
				} else {
					require.NotEmpty(t, report.Estimate)
				}
				require.EqualValues(t, q.Batch, report.Users)
			})
		}
	}
	want := map[string]bool{}
	for _, p := range registry.All() {
		for _, query := range p.Row().Queries {
			for _, padding := range p.Row().Paddings() {
				if padding == "" {
					padding = task.PaddingFull
				}
				if queried[query] {
					want[wayName(query, p.ProtocolName(), padding)] = true
				}
			}
		}
	}
	require.Equal(t, want, walked)
	for _, q := range task.Queries {
		require.True(t, queried[q.Query], q.Query)
	}
}

func wayName(query task.Query, protocol string, padding task.Padding) string {
	return string(query) + " by " + protocol + ", " + string(padding)
}
