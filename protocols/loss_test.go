package protocols_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// lossy are queries of protocols whose clients send several messages.
var lossy = map[string]planner.Query{
	"rappor":                {Query: task.Sum, Protocol: "rappor", Lo: -3, Hi: 6, Params: planner.Params{"k": 5}},
	"correlated, sum":       {Query: task.Sum, Protocol: "correlated", Lo: -3, Hi: 6, Params: planner.Params{"max": 6}},
	"correlated, count":     {Query: task.Count, Protocol: "correlated", Padding: task.PaddingFull},
	"correlated, histogram": {Query: task.Histogram, Protocol: "correlated", Bins: 3, Labels: true},
	"vectormean":            {Query: task.VectorMean, Protocol: "vectormean", Dim: 2, Epsilon: 4, Clip: true},
	"vectormean, none": {Query: task.VectorMean, Protocol: "vectormean", Dim: 2, Epsilon: 4, Clip: true,
		Padding: task.PaddingNone},
	"vectormean, lanes": {Query: task.VectorMean, Protocol: "vectormean", Dim: 2, Epsilon: 4, Clip: true, Lanes: 4,
		Padding: task.PaddingFull},
	"vectormean, lanes, none": {Query: task.VectorMean, Protocol: "vectormean", Dim: 2, Epsilon: 4, Clip: true,
		Lanes: 4, Padding: task.PaddingNone},
}

// TestOneMissingMessage leaves out one message of a few clients at a time. The complete total must lie in the
// protocol's range for one missing message. For some message it must reach the end of that range.
func TestOneMissingMessage(t *testing.T) {
	for name, q := range lossy {
		q.Name, q.Batch, q.Honest, q.Delta = "lossy", 100, 0.9, 1e-6
		if q.Epsilon == 0 {
			q.Epsilon = 1
		}
		if q.Hi == 0 {
			q.Hi = 1
		}
		d, err := planner.Draft(q)
		require.NoError(t, err, name)
		m, err := registry.Open(d)
		require.NoError(t, err, name)
		var all []protocols.Messages
		src := randomizer.NewSource()
		for range 40 {
			lanes, err := m.Randomize(src, m.Worst().Value)
			require.NoError(t, err, name)
			all = append(all, lanes)
		}
		checkEach(t, name, m, all)
	}
}

// checkEach leaves out each message in turn and compares the totals.
func checkEach(t *testing.T, name string, m protocols.Mechanism, all []protocols.Messages) {
	t.Helper()
	whole := totalWithout(t, m, all, nil).Total()
	farthest, seen := 0.0, map[string]bool{}
	for _, lanes := range all {
		for lane, messages := range lanes {
			for i := range messages {
				if seen[string(rune(lane))+string(messages[i])] {
					continue // equal to an earlier one
				}
				seen[string(rune(lane))+string(messages[i])] = true
				agg := totalWithout(t, m, all, &messages[i])
				for j, total := range agg.Total() {
					missing := agg.LossEffect(protocols.Loss{Clients: uint64(len(all)), Messages: 1}, j)
					require.Zero(t, missing.Counted)
					slack := 1e-9 * (missing.Hi - missing.Lo)
					require.GreaterOrEqual(t, whole[j]-total, missing.Lo-slack, "%s, entry %d", name, j)
					require.LessOrEqual(t, whole[j]-total, missing.Hi+slack, "%s, entry %d", name, j)
					farthest = max(farthest, math.Abs(whole[j]-total)/missing.Hi)
				}
			}
		}
	}
	require.InDelta(t, 1, farthest, 1e-9, "%s: no message adds the most", name)
}

// totalWithout returns the aggregate of all messages except one.
func totalWithout(t *testing.T, m protocols.Mechanism, all []protocols.Messages, one *[]byte) protocols.Aggregate {
	t.Helper()
	agg := m.Aggregate()
	for _, lanes := range all {
		for lane, messages := range lanes {
			for i := range messages {
				if &messages[i] != one {
					require.NoError(t, agg.Add(lane, messages[i]))
				}
			}
		}
	}
	agg.AddUsers(uint64(len(all)))
	return agg
}

// TestMissingClients checks four missing clients of ten, with values from 2 to 5. The estimate must take them to be
// like the others, but at least 2 and at most 5.
func TestMissingClients(t *testing.T) {
	m := protocols.Loss{Clients: 10}.ClientLossEffect(6, 2, 5)
	require.Equal(t, protocols.LossEffect{Parts: 4, Lo: 2, Hi: 5, Counted: 6}, m)
	for _, c := range [][2]float64{{24, 40}, {3, 11}, {60, 80}} {
		require.InDelta(t, c[1], m.Estimate(c[0]), 1e-12)
	}
	law := m.Complete(protocols.Normal{Estimate: 24, Plugged: 9})
	require.InDelta(t, 9*100.0/36, law.Variance(), 1e-12)
	lo, hi := law.Interval(0.95)
	require.InDeltaSlice(t, []float64{24 - 3*1.96 + 8, 24 + 3*1.96 + 20}, []float64{lo, hi}, 1e-3)
	require.Zero(t, protocols.Loss{Clients: 6}.ClientLossEffect(6, 2, 5).Parts)
}

// TestDrowns checks that an interval counts as uninformative only if missing messages make it as wide as the range.
func TestDrowns(t *testing.T) {
	m := protocols.LossEffect{Parts: 10, Lo: -2, Hi: 4}
	for _, c := range []struct {
		width, span   float64
		uninformative bool
	}{{100, 100, true}, {99, 100, false}, {200, 120, true}, {200, 121, false}, {60, 10, true}} {
		require.Equal(t, c.uninformative, m.Uninformative(c.width, c.span), "%v", c)
	}
}

// TestWhatAMissingClientCanHold checks protocols of one message, with the messages of 40 of 100 clients. In each entry
// the missing clients may have any value of the query. For vectorsum, these are the clients whose message of the
// entry's block is missing.
func TestWhatAMissingClientCanHold(t *testing.T) {
	for name, c := range map[string]struct {
		query  planner.Query
		lo, hi float64
	}{
		"histogram": {planner.Query{Query: task.Histogram, Bins: 3, Lo: 5, Hi: 9}, 0, 1},
		"count":     {planner.Query{Query: task.Count, Hi: 1}, 0, 1},
		"sum":       {planner.Query{Query: task.Sum, Lo: 5, Hi: 9}, 5, 9},
		"mean":      {planner.Query{Query: task.Mean, Lo: -5, Hi: 9}, -5, 9},
		"vectorgrid": {planner.Query{Query: task.VectorMean, Dim: 2, Protocol: "vectorgrid", Clip: true, Hi: 1},
			-1, 1},
		"vectorgrid, cube": {planner.Query{Query: task.Vector, Dim: 2, Protocol: "vectorgrid", Lo: 5, Hi: 9}, 5, 9},
		"vectorsum":        {planner.Query{Query: task.Vector, Dim: 4, Protocol: "vectorsum", Lo: 5, Hi: 9}, 5, 9},
		"splitmix":         {planner.Query{Query: task.Sum, Protocol: "splitmix", Lo: 5, Hi: 9}, 5, 9},
	} {
		q := c.query
		q.Name, q.Batch, q.Honest, q.Epsilon, q.Delta = "missing", 100, 0.9, 4, 1e-6
		d, err := planner.Draft(q)
		require.NoError(t, err, name)
		m, err := registry.Open(d)
		require.NoError(t, err, name)
		var all []protocols.Messages
		for range 40 {
			lanes, err := m.Randomize(randomizer.NewSource(), m.Worst().Value)
			require.NoError(t, err, name)
			all = append(all, lanes)
		}
		agg := totalWithout(t, m, all, nil)
		for j := range agg.Total() {
			require.Equal(t, protocols.LossEffect{Parts: 60, Lo: c.lo, Hi: c.hi, Counted: 40},
				agg.LossEffect(protocols.Loss{Clients: 100, Messages: 60}, j), "%s, entry %d", name, j)
		}
	}
}

// TestEachLaneMissesItsOwn drops one client's message of the second block, in vectorsum with two coordinates per
// client. Only the entries of the second block may have a missing part.
func TestEachLaneMissesItsOwn(t *testing.T) {
	d, err := planner.Draft(planner.Query{Name: "lanes", Query: task.Vector, Dim: 4, Protocol: "vectorsum", Hi: 1,
		Params: planner.Params{"t": 2}, Batch: 100, Honest: 0.9, Epsilon: 4, Delta: 1e-6})
	require.NoError(t, err)
	m, err := registry.Open(d)
	require.NoError(t, err)
	var all []protocols.Messages
	for range 10 {
		lanes, err := m.Randomize(randomizer.NewSource(), m.Worst().Value)
		require.NoError(t, err)
		require.Len(t, lanes, 2)
		all = append(all, lanes)
	}
	agg := totalWithout(t, m, all, &all[3][1][0])
	parts := []uint64{}
	for j := range agg.Total() {
		parts = append(parts, agg.LossEffect(protocols.Loss{Clients: 10, Messages: 1}, j).Parts)
	}
	require.Equal(t, []uint64{0, 0, 1, 1}, parts)
}
