package protocols_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

func open(t *testing.T, q planner.Query) (*task.Task, protocols.Mechanism) {
	t.Helper()
	q.Name, q.Honest, q.Epsilon, q.Delta = "test", 0.9, 1, 1e-6
	if q.Batch == 0 {
		q.Batch = 5000
	}
	draft, err := planner.Draft(q)
	require.NoError(t, err)
	m, err := registry.Open(draft)
	require.NoError(t, err)
	return draft, m
}

func requireField(t *testing.T, err error, field string) {
	t.Helper()
	var f *invalid.FieldError
	require.ErrorAs(t, err, &f)
	require.Equal(t, field, f.Field)
	require.NotEmpty(t, f.Want)
}

func TestValuesOutsideTheDomainAreRefused(t *testing.T) {
	src := randomizer.NewSource()
	_, mean := open(t, planner.Query{Query: task.Mean, Lo: 0, Hi: 10})
	_, clipped := open(t, planner.Query{Query: task.Mean, Lo: 0, Hi: 10, Clip: true})
	_, count := open(t, planner.Query{Query: task.Count})
	_, labels := open(t, planner.Query{Query: task.Histogram, Bins: 3, Labels: true})
	for name, bad := range map[string]struct {
		m     protocols.Mechanism
		value []float64
	}{
		"NaN":                {clipped, []float64{math.NaN()}},
		"infinite":           {clipped, []float64{math.Inf(1)}},
		"below":              {mean, []float64{-0.001}},
		"above":              {mean, []float64{10.001}},
		"no number":          {mean, nil},
		"two numbers":        {mean, []float64{1, 2}},
		"count of a half":    {count, []float64{0.5}},
		"fractional label":   {labels, []float64{1.5}},
		"label out of range": {labels, []float64{3}},
		"negative label":     {labels, []float64{-1}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := bad.m.Randomize(src, bad.value)
			requireField(t, err, "value")
			_, _, err = bad.m.Exact(bad.value)
			requireField(t, err, "value")
		})
	}
	for _, v := range []float64{-5, 15} {
		_, err := clipped.Randomize(src, []float64{v})
		require.NoError(t, err)
	}
}

func TestBinsAreClosedOnTheLeft(t *testing.T) {
	draft, _ := open(t, planner.Query{Query: task.Histogram, Bins: 4, Lo: 0, Hi: 8, Clip: true})
	for value, want := range map[float64]uint64{-1: 0, 0: 0, 1.999: 0, 2: 1, 7.999: 3, 8: 3, 9: 3} {
		bin, err := protocols.Category(draft.Input, []float64{value})
		require.NoError(t, err)
		require.Equal(t, want, bin, "value %g", value)
	}
}

func TestMalformedMessagesChangeNothing(t *testing.T) {
	_, m := open(t, planner.Query{Query: task.Histogram, Bins: 3, Labels: true})
	agg := m.Aggregate()
	for _, bad := range []struct {
		lane    int
		message []byte
	}{{0, nil}, {0, []byte{3}}, {0, []byte{0, 1}}, {1, []byte{0}}} {
		require.Error(t, agg.Add(bad.lane, bad.message))
	}
	require.Zero(t, agg.Reports())
	require.NoError(t, agg.Add(0, []byte{2}))
	require.EqualValues(t, 1, agg.Reports())
	_, other := open(t, planner.Query{Query: task.Histogram, Bins: 4, Labels: true})
	require.ErrorIs(t, agg.Merge(other.Aggregate()), protocols.ErrMerge)
}

func TestMergeEqualsAddingAll(t *testing.T) {
	for _, q := range []planner.Query{{Query: task.Mean, Lo: -1, Hi: 3},
		{Query: task.Histogram, Bins: 3, Labels: true}} {
		_, m := open(t, q)
		all, a, b := m.Aggregate(), m.Aggregate(), m.Aggregate()
		for y := range byte(3) {
			require.NoError(t, all.Add(0, []byte{y}))
			require.NoError(t, []protocols.Aggregate{a, b}[y%2].Add(0, []byte{y}))
		}
		require.NoError(t, a.Merge(b))
		require.Equal(t, all.Total(), a.Total())
		require.Equal(t, all.Reports(), a.Reports())
	}
}

func TestTasksWithOtherParametersAreRefused(t *testing.T) {
	mutate := map[string]struct {
		change func(*task.Task)
		field  string
	}{
		"no gamma":         {func(d *task.Task) { d.Params = d.Params[1:] }, "params.k"},
		"gamma of one":     {func(d *task.Task) { d.Params[0].Value = randomizer.NewRational(1, 1) }, "params.gamma"},
		"gamma not dyadic": {func(d *task.Task) { d.Params[0].Value = randomizer.NewRational(1, 3) }, "params.gamma"},
		"k of zero":        {func(d *task.Task) { d.Params[1].Value = randomizer.NewRational(0, 1) }, "params.k"},
		"two slots":        {func(d *task.Task) { d.Slots.PerLane = 2 }, "slots"},
		"padding none":     {func(d *task.Task) { d.Slots.Padding = task.PaddingNone }, "slots"},
		"histogram query":  {func(d *task.Task) { d.Query = task.Histogram }, "query"},
		"unknown protocol": {func(d *task.Task) { d.Protocol = "none" }, "protocol"},
	}
	for name, c := range mutate {
		t.Run(name, func(t *testing.T) {
			draft, _ := open(t, planner.Query{Query: task.Mean, Lo: 0, Hi: 10})
			c.change(draft)
			_, err := registry.Open(draft)
			requireField(t, err, c.field)
		})
	}
}

func TestClaimStrongerThanTheParametersIsRefused(t *testing.T) {
	for _, change := range []func(*task.Task){
		func(d *task.Task) { d.Claim.Delta = task.NewDelta("9.99e-7") },
		func(d *task.Task) { d.Claim.Epsilon = task.NewEpsilon("0.999") },
		func(d *task.Task) { d.Batch.Min -= 10 },
	} {
		draft, _ := open(t, planner.Query{Query: task.Mean, Lo: 0, Hi: 10})
		change(draft)
		m, err := registry.Open(draft)
		require.NoError(t, err)
		requireField(t, m.CheckClaim(), "claim.delta")
	}
}

func TestImpossibleTargetSaysHowManyUsersWouldDo(t *testing.T) {
	_, err := planner.Draft(planner.Query{Name: "test", Query: task.Histogram, Bins: 4, Hi: 1, Rule: "theorem1",
		Batch: 100, Honest: 1, Epsilon: 0.5, Delta: 1e-6})
	require.ErrorContains(t, err, "users")
}

func TestPadFillsWithCoversAndRefusesOverflow(t *testing.T) {
	draft, _ := open(t, planner.Query{Query: task.Mean, Lo: 0, Hi: 10})
	draft.Slots.PerLane, draft.Slots.Lanes = 4, 2
	src := randomizer.NewSource()
	slots, err := protocols.Pad(draft, src, protocols.Messages{{{1}, {2}}, {}})
	require.NoError(t, err)
	require.Len(t, slots[0], 4)
	require.Len(t, slots[1], 4)
	cover := task.Message{Cover: true}
	require.ElementsMatch(t, []task.Message{{Body: []byte{1}}, {Body: []byte{2}}, cover, cover}, slots[0])
	_, err = protocols.Pad(draft, src, protocols.Messages{{{1}, {2}, {3}, {4}, {5}}, {}})
	requireField(t, err, "messages")
	draft.Slots.Padding = task.PaddingNone
	slots, err = protocols.Pad(draft, src, protocols.Messages{{{1}, {2}}, {}})
	require.NoError(t, err)
	require.Len(t, slots[0], 2)
	require.Equal(t, []task.Message{cover}, slots[1])
}

// TestPadOrdersSlotsAtRandom checks the order of a client's slots, messages and covers, under either padding. In each
// lane the order must be uniformly random, and the orders of two lanes must be independent.
func TestPadOrdersSlotsAtRandom(t *testing.T) {
	for padding, messages := range map[task.Padding]int{task.PaddingFull: stattest.Things - 1,
		task.PaddingNone: stattest.Things} {
		draft := &task.Task{Slots: task.Slots{Padding: padding, Lanes: 2, PerLane: stattest.Things}}
		src := randomizer.NewSource()
		stattest.UniformLanes(t, stattest.Trials, 2, func() (orders [][]int) {
			slots, err := protocols.Pad(draft, src, protocols.Messages{numbered(messages), numbered(messages)})
			require.NoError(t, err)
			for _, lane := range slots {
				var order []int
				for _, slot := range lane {
					if slot.Cover {
						slot.Body = []byte{stattest.Things - 1} // the one cover
					}
					order = append(order, int(slot.Body[0]))
				}
				orders = append(orders, order)
			}
			return orders
		})
	}
}

// numbered returns the messages {0}, {1}, …, {n-1}.
func numbered(n int) (out [][]byte) {
	for i := range byte(n) {
		out = append(out, []byte{i})
	}
	return out
}
