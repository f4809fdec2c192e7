package task_test

import (
	"errors"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/task"
)

func number(v uint64) *uint64 { return &v }

// cells returns noise with two tables, a tilt and a total, over four cells.
func cells() *task.Noise {
	return &task.Noise{Kind: task.NoiseCells, Cells: 4, Batches: 100,
		Tables: [][]uint64{{1, 2, 0, 1<<53 - 1}, {0, 7}},
		Which:  []task.Run{{Count: 1, Table: 1}, {Count: 2, Table: 0}, {Count: 1, Table: 1}},
		Tilt:   &task.Tilt{Centre: 12, Zero: 1, Weights: []uint64{0, 1, 2, 3}, Factors: []uint64{9, 0, 300}},
		Total:  number(8)}
}

func stream() *task.StreamPosition {
	return &task.StreamPosition{Name: "site", Position: 300, Before: task.ID{31: 1}, Allow: []string{"batch.size", "name"}}
}

// parts are changes that turn the sample into a valid task with an optional part.
var parts = map[string]func(*task.Task){
	"a claim over all epochs": func(t *task.Task) { t.Claim.SetTotal("5.11", "3e-5") },
	"a cap":                   func(t *task.Task) { t.Epochs.Cap = task.Cap{Reports: 4, Window: 28} },
	"a cap and a pace": func(t *task.Task) {
		t.Epochs.Cap, t.Epochs.Pace = task.Cap{Reports: 56, Window: 365}, task.Cap{Reports: 4, Window: 28}
	},
	"events": func(t *task.Task) { withEvents(t) },
	"events beside a cap and a pace": func(t *task.Task) {
		withEvents(t)
		t.Epochs.Cap, t.Epochs.Pace = task.Cap{Reports: 56, Window: 365}, task.Cap{Reports: 4, Window: 28}
		t.Noise.Total, t.Noise.Rest = nil, nil
	},
	"events beside a cap": func(t *task.Task) {
		withEvents(t)
		t.Epochs.Cap, t.Noise.Total, t.Noise.Rest = task.Cap{Reports: 4, Window: 28}, nil, nil
	},
	"first of a stream": func(t *task.Task) { t.Stream = &task.StreamPosition{Name: "site"} },
	"in a stream":       func(t *task.Task) { t.Stream = stream() },
	"all may change": func(t *task.Task) {
		t.Stream = &task.StreamPosition{Name: "site", Position: 1<<32 - 1, Before: task.ID{1}}
		t.Stream.Allow = t.Stream.Changeable()
	},
	"noise by table": func(t *task.Task) {
		t.Noise = &task.Noise{Kind: task.NoiseCells, Cells: 256, Tables: [][]uint64{{3, 1}}}
		t.Claim.Assumption = task.NoneHonest
	},
	"noise with all its parts": func(t *task.Task) { t.Noise = cells() },
	"many numbers": func(t *task.Task) {
		t.Slots.MessageBytes = 3
		t.Noise = &task.Noise{Kind: task.NoiseCells, Cells: 1 << 20,
			Tables: [][]uint64{slices.Repeat([]uint64{1}, 1<<16-2)}}
	},
	"noise from a pool": func(t *task.Task) {
		t.Slots.MessageBytes = 8
		t.Noise = &task.Noise{Kind: task.NoisePool, Cells: 1<<53 - 1, Batches: 1<<32 - 1, Pool: 1<<32 - 1}
	},
}

// withEvents makes the sample a task with events and a rest cell.
func withEvents(t *task.Task) {
	t.Params, t.Claim.Assumption = nil, task.NoneHonest
	t.Query, t.Input = task.Histogram, task.Input{Lo: r(0, 1), Hi: r(1, 1), Bins: 5}
	t.Noise = &task.Noise{Kind: task.NoiseCells, Cells: 5, Tables: [][]uint64{{1, 4, 1}}, Total: number(7),
		Rest: number(3)}
	t.Epochs.Events = task.Events{Most: 2, Window: 30, Default: 3}
}

// TestEventsAreChecked: a task with events must have noise by relays for each cell, and messages that are the value.
func TestEventsAreChecked(t *testing.T) {
	for field, changes := range map[string][]func(*task.Task){
		"events": {
			func(t *task.Task) { t.Noise, t.Claim.Assumption = nil, task.MinHonest },
			func(t *task.Task) { t.Noise = &task.Noise{Kind: task.NoisePool, Cells: 4, Pool: 9} },
			func(t *task.Task) { t.Claim.Assumption = task.MinHonest },
			func(t *task.Task) { t.Params = []task.Param{{Key: "gamma", Value: r(1, 8)}} },
			func(t *task.Task) { t.Query, t.Input = task.Sum, task.Input{Lo: r(0, 1), Hi: r(1, 1)} },
		},
		"events.window": {
			func(t *task.Task) { t.Epochs.Events.Window = 1 },
			func(t *task.Task) { t.Epochs.Events.Window = task.MaxEpochs + 1 },
		},
		"events.most": {
			func(t *task.Task) { t.Epochs.Events.Most = 0 },
			func(t *task.Task) { t.Epochs.Events.Most = 30 },
		},
		"events.default": {func(t *task.Task) { t.Epochs.Events.Default, t.Noise.Rest = 5, nil }},
		"noise.rest": {
			func(t *task.Task) { t.Noise.Rest = number(2) },
			func(t *task.Task) { t.Noise.Rest = number(5) },
			func(t *task.Task) { t.Noise.Total = nil },
			func(t *task.Task) { t.Noise.Cells = 2 },
			func(t *task.Task) { t.Epochs.Events = task.Events{} },
			func(t *task.Task) {
				t.Noise.Tilt = &task.Tilt{Weights: []uint64{0, 1, 2, 3, 4}, Factors: []uint64{1}}
			},
		},
		"noise.total": {func(t *task.Task) { t.Noise.Tables, t.Noise.Total = [][]uint64{{0, 1}}, number(3) }},
	} {
		for i, change := range changes {
			requireField(t, field, i, func(t *task.Task) { withEvents(t); change(t) })
		}
	}
	for _, text := range []string{"1", "1/1", "0/7", "7/7", "a/7", "1/7/3", "-1/7", "/"} {
		require.Error(t, new(task.Events).Parse(text), text)
	}
	e := task.Events{Default: 4}
	require.NoError(t, e.Parse("2/30"))
	require.Equal(t, task.Events{Most: 2, Window: 30, Default: 4}, e)
	require.Equal(t, "2/30", e.String())
}

// TestMostCopies compares the copies of the privacy law that cover a number of epochs with every two patterns of
// events: the most epochs in which they differ, or, with a rest cell, the most events of one of them.
func TestMostCopies(t *testing.T) {
	for _, e := range []task.Events{{Most: 1, Window: 2}, {Most: 1, Window: 4}, {Most: 2, Window: 3},
		{Most: 2, Window: 5},
		{Most: 3, Window: 7}} {
		for n := uint64(1); n <= 9; n++ {
			var kept []uint
			for pattern := range uint(1) << n {
				if keeps(pattern, e) {
					kept = append(kept, pattern)
				}
			}
			events, differ := 0, 0
			for _, a := range kept {
				events = max(events, bits.OnesCount(a))
				for _, b := range kept {
					differ = max(differ, bits.OnesCount(a|b)) // Two events may be of different cells.
				}
			}
			plain := &task.Task{Epochs: task.Epochs{Events: e}}
			require.Equal(t, uint64(differ), plain.MostCopies(n), "%v in %d epochs", e, n)
			rest := &task.Task{Epochs: plain.Epochs, Noise: &task.Noise{Rest: number(0)}}
			require.Equal(t, uint64(events), rest.MostCopies(n), "%v in %d epochs", e, n)
			for published := range uint(1) << n {
				requireMostAt(t, []*task.Task{plain, rest}, kept, published, n)
			}
		}
	}
	capped := &task.Task{Epochs: task.Epochs{Events: task.Events{Most: 2, Window: 5},
		Cap: task.Cap{Reports: 1, Window: 4}}}
	require.Equal(t, uint64(3), capped.MostCopies(12))
	require.Equal(t, uint64(12), new(task.Task).MostCopies(12))
}

// requireMostAt compares the copies for some published epochs, without and with a rest cell, with every pattern.
func requireMostAt(t *testing.T, tasks []*task.Task, kept []uint, published uint, n uint64) {
	t.Helper()
	if n > 7 {
		return
	}
	var starts []uint64
	events, differ := 0, 0
	for at := range n {
		if published>>at&1 == 1 {
			starts = append(starts, 7+60*at)
		}
	}
	for _, a := range kept {
		events = max(events, bits.OnesCount(a&published))
		for _, b := range kept {
			differ = max(differ, bits.OnesCount((a|b)&published))
		}
	}
	for i, want := range []int{differ, events} {
		tasks[i].Epochs.Length = 60
		require.Equal(t, uint64(want), tasks[i].MostCopiesAt(starts), "%v of %b", tasks[i].Epochs.Events, published)
	}
}

// keeps reports whether no window has more events than are allowed.
func keeps(pattern uint, e task.Events) bool {
	for ; pattern > 0; pattern >>= 1 {
		if bits.OnesCount(pattern&(1<<e.Window-1)) > int(e.Most) {
			return false
		}
	}
	return true
}

// partFields are changes of one field each, all of them in optional parts of a task.
func partFields() map[string]func(*task.Task) {
	out := map[string]func(*task.Task){
		"total epsilon": func(t *task.Task) { t.Claim.SetTotal("2", "1e-5") },
		"total delta":   func(t *task.Task) { t.Claim.SetTotal("2", "1e-4") },
		"assumption":    func(t *task.Task) { t.Claim.Assumption = task.NoneHonest },
		"pool":          func(t *task.Task) { t.Noise = &task.Noise{Kind: task.NoisePool, Cells: 4, Pool: 9} },
		"pool's number": func(t *task.Task) { t.Noise = &task.Noise{Kind: task.NoisePool, Cells: 4, Pool: 8} },
	}
	for name, change := range map[string]func(*task.StreamPosition){
		"stream": func(*task.StreamPosition) {}, "stream name": func(s *task.StreamPosition) { s.Name = "x" },
		"stream position": func(s *task.StreamPosition) { s.Position = 301 },
		"stream before":   func(s *task.StreamPosition) { s.Before[0] = 1 },
		"stream allow":    func(s *task.StreamPosition) { s.Allow = s.Allow[:1] },
	} {
		out[name] = func(t *task.Task) { t.Stream = stream(); change(t.Stream) }
	}
	for name, change := range map[string]func(*task.Noise){
		"noise": func(*task.Noise) {}, "noise cells": func(n *task.Noise) { n.Cells = 5 },
		"noise batches":     func(n *task.Noise) { n.Batches = 1 },
		"noise table":       func(n *task.Noise) { n.Tables[1][1] = 8 },
		"noise tables":      func(n *task.Noise) { n.Tables = n.Tables[:1] },
		"noise run":         func(n *task.Noise) { n.Which[1].Count = 3 },
		"noise run's table": func(n *task.Noise) { n.Which[1].Table = 1 },
		"noise centre":      func(n *task.Noise) { n.Tilt.Centre = 1 },
		"noise weights":     func(n *task.Noise) { n.Tilt.Weights[0] = 1 },
		"noise factors":     func(n *task.Noise) { n.Tilt.Factors[1] = 1 },
		"noise no tilt":     func(n *task.Noise) { n.Tilt = nil },
		"noise total":       func(n *task.Noise) { n.Total = number(0) },
		"noise no total":    func(n *task.Noise) { n.Total = nil },
	} {
		out[name] = func(t *task.Task) { t.Noise = cells(); change(t.Noise) }
	}
	return out
}

// requireField fails unless the sample, after a change, is refused with an error that names the field.
func requireField(t *testing.T, field string, i int, change func(*task.Task)) {
	t.Helper()
	bad := sample()
	change(bad)
	var refused *invalid.FieldError
	require.True(t, errors.As(bad.Validate(), &refused), "%s, case %d: %v", field, i, bad.Validate())
	require.Equal(t, field, refused.Field, "case %d: %v", i, refused)
}

func TestValidateNamesThePart(t *testing.T) {
	for field, changes := range map[string][]func(*task.Task){
		"claim.total.epsilon": decimals(func(t *task.Task, s string) { t.Claim.SetTotal(s, "1e-6") }, "101"),
		"claim.total.delta":   decimals(func(t *task.Task, s string) { t.Claim.SetTotal("1", s) }, "1", "1.5"),
		"claim.assumption": {
			func(t *task.Task) { t.Claim.Assumption = task.NoneHonest }, // invalid without noise
			func(t *task.Task) { t.Noise, t.Claim.Assumption = cells(), 2 },
		},
	} {
		for i, change := range changes {
			requireField(t, field, i, change)
		}
	}
	for field, changes := range map[string][]func(*task.StreamPosition){
		"stream.name": {func(s *task.StreamPosition) { s.Name = "" },
			func(s *task.StreamPosition) { s.Name = strings.Repeat("x", 65) }, func(s *task.StreamPosition) { s.Name = "é" }},
		"stream.position": {func(s *task.StreamPosition) { s.Position = 1 << 32 }},
		"stream.before":   {func(s *task.StreamPosition) { s.Position = 0 }, func(s *task.StreamPosition) { s.Before = task.ID{} }},
		"stream.allow": {
			func(s *task.StreamPosition) { s.Allow = []string{"name", "batch.size"} },
			func(s *task.StreamPosition) { s.Allow = []string{"name", "name"} },
			func(s *task.StreamPosition) { s.Allow = []string{"stream.allow"} },
			func(s *task.StreamPosition) { s.Allow = []string{"stream.name"} },
			func(s *task.StreamPosition) { s.Allow = []string{"relays"} },
			func(s *task.StreamPosition) { s.Allow = []string{""} },
		},
	} {
		for i, change := range changes {
			requireField(t, field, i, func(t *task.Task) { t.Stream = stream(); change(t.Stream) })
		}
	}
}

// TestPaceFitsCap compares the least cap of a pace with the most reports over all places where a block may begin.
func TestPaceFitsCap(t *testing.T) {
	for _, pace := range []task.Cap{{4, 28}, {1, 7}, {2, 42}, {5, 30}, {1, 2}, {2, 3}, {3, 7}, {6, 7}} {
		for _, window := range []uint64{2, 3, 5, 13, 21, 30, 53, 365} {
			most := uint64(0)
			for phase := range pace.Window {
				blocks, all := map[uint64]uint64{}, uint64(0)
				for epoch := range window {
					if blocks[(epoch+phase)/pace.Window]++; blocks[(epoch+phase)/pace.Window] <= pace.Reports {
						all++
					}
				}
				most = max(most, all)
			}
			fits := func(reports uint64) bool {
				return task.Epochs{Cap: task.Cap{reports, window}, Pace: pace}.CheckLimits() == nil
			}
			require.Equal(t, most < window, fits(most), "%v in %d epochs: %d", pace, window, most)
			require.False(t, fits(most-1), "%v in %d epochs: %d", pace, window, most)
		}
	}
	require.NoError(t, task.Epochs{Cap: task.Cap{56, 365}, Pace: task.Cap{4, 28}}.CheckLimits())
	require.Error(t, task.Epochs{Cap: task.Cap{60, 365}, Pace: task.Cap{5, 30}}.CheckLimits())
}

func TestValidateNamesTheNoise(t *testing.T) {
	large := task.Noise{Kind: task.NoiseCells, Cells: 1 << 17, Tables: [][]uint64{{1}}}
	for field, changes := range map[string][]func(*task.Noise){
		"noise.kind":    {func(n *task.Noise) { n.Kind = "" }},
		"noise.cells":   {func(n *task.Noise) { n.Cells = 0 }, func(n *task.Noise) { n.Cells = 257 }},
		"noise.batches": {func(n *task.Noise) { n.Batches = 1 << 32 }},
		"noise.tables": {
			func(n *task.Noise) { n.Tables = nil }, func(n *task.Noise) { n.Tables[1] = nil },
			func(n *task.Noise) { n.Tables[1] = []uint64{1, 0} },
			func(n *task.Noise) { n.Tables[0][0] = 1 << 53 },
			func(n *task.Noise) { n.Tables[0] = slices.Repeat([]uint64{1<<53 - 1}, 1025) },
		},
		"noise.which": {
			func(n *task.Noise) { n.Which = nil }, func(n *task.Noise) { n.Which = n.Which[:2] },
			func(n *task.Noise) { n.Which[0].Count = 0 },
			func(n *task.Noise) { n.Which[2].Count = 2 }, func(n *task.Noise) { n.Which[1].Table = 2 },
			func(n *task.Noise) { n.Which[1].Table = 1 },
			func(n *task.Noise) { n.Tables = append(n.Tables, []uint64{1}) }, // a table that no cell uses
			func(n *task.Noise) { n.Tables, n.Which, n.Total = n.Tables[:1], []task.Run{{Count: 4}}, nil },
		},
		"noise.tilt.weights": {
			func(n *task.Noise) { n.Tilt.Weights = n.Tilt.Weights[:3] },
			func(n *task.Noise) { n.Tilt.Weights[0] = 1 << 53 },
			func(n *task.Noise) { // so does a zero of 2⁵³ − 1, in four cells
				n.Tables, n.Which, n.Tilt.Zero = [][]uint64{slices.Repeat([]uint64{1}, 401)}, nil, 1<<53-1
			},
			func(n *task.Noise) { // weights of 2⁵³ − 1 times 2000 dummies exceed 2⁶³
				n.Tables, n.Which, n.Tilt.Weights[3] = [][]uint64{slices.Repeat([]uint64{1}, 2001)}, nil, 1<<53-1
			},
		},
		"noise.tilt.factors": {func(n *task.Noise) { n.Tilt.Factors = nil },
			func(n *task.Noise) { n.Tilt.Factors = []uint64{1, 0} }},
		"noise.tilt.centre": {func(n *task.Noise) { n.Tilt.Centre = 1 << 53 }},
		"noise.tilt.zero":   {func(n *task.Noise) { n.Tilt.Zero = 1 << 53 }},
		// In the sample, two cells always have 1 dummy, and two have up to 3.
		"noise.total": {func(n *task.Noise) { n.Total = number(1) },
			func(n *task.Noise) { n.Total = number(9) }},
		"noise.pool": {
			func(n *task.Noise) { n.Pool = 1 }, func(n *task.Noise) { *n = task.Noise{Kind: task.NoisePool, Cells: 4} },
			func(n *task.Noise) { *n = task.Noise{Kind: task.NoisePool, Cells: 4, Pool: 1 << 32} },
		},
		"noise": {
			func(n *task.Noise) { n.Kind, n.Pool = task.NoisePool, 5 },
			func(n *task.Noise) { n.Tables[0] = slices.Repeat([]uint64{1}, 1<<16) },
		},
	} {
		for i, change := range changes {
			requireField(t, field, i, func(t *task.Task) { t.Noise = cells(); change(t.Noise) })
		}
	}
	for i, limit := range []task.Cap{{1, 1}, {0, 7}, {7, 7}, {8, 7}, {1, 1<<16 + 1}, {3, 0}} {
		field := "epochs.cap.window"
		if limit.Window == 7 {
			field = "epochs.cap.reports"
		}
		requireField(t, field, i, func(t *task.Task) { t.Epochs.Cap = limit })
	}
	for i, pace := range []task.Cap{{5, 28}, {1, 6}, {0, 28}, {28, 28}, {4, 1 << 17}} {
		field := "epochs.pace"
		if i == 2 || i == 3 {
			field = "epochs.pace.reports"
		} else if i == 4 {
			field = "epochs.pace.window"
		}
		requireField(t, field, i, func(t *task.Task) { t.Epochs.Cap, t.Epochs.Pace = task.Cap{56, 365}, pace })
	}
	requireField(t, "epochs.pace", 0, func(t *task.Task) { t.Epochs.Pace = task.Cap{4, 28} })
	for i, change := range []func(*task.Slots){
		func(s *task.Slots) { s.Padding = task.PaddingNone }, func(s *task.Slots) { s.Lanes = 2 },
		func(s *task.Slots) { s.PerLane = 2 },
	} {
		requireField(t, "noise", i, func(t *task.Task) { t.Noise = cells(); change(&t.Slots) })
	}
	requireField(t, "noise.cells", 0, func(t *task.Task) { t.Noise, t.Slots.MessageBytes = &large, 2 })
	requireField(t, "noise.cells", 1, func(t *task.Task) {
		t.Noise, t.Slots.MessageBytes = &task.Noise{Kind: task.NoiseCells, Cells: 1<<20 + 1, Tables: [][]uint64{{1}}}, 3
	})
}

// TestParsePartsIsStrict: an absent part must be an empty array; Parse must refuse every other form of it.
func TestParsePartsIsStrict(t *testing.T) {
	withParts := func() *task.Task {
		s := sample()
		s.Claim.SetTotal("2", "1e-5")
		s.Stream, s.Noise = stream(), cells()
		return s
	}
	for name, c := range map[string]struct{ old, new string }{
		"a total of one":             {"\x92\xa12\xa41e-5", "\x91\xa12"},
		"an empty total":             {"\x92\xa12\xa41e-5", "\x92\xa0\xa0"},
		"an assumption of no name":   {"\xaamin-honest", "\xaamin-homest"},
		"a stream of three":          {"\x94\xa4site\xcd\x01\x2c", "\x93\xa4site\xcd\x01\x2c"},
		"a hash before position 0":   {"\xa4site\xcd\x01\x2c", "\xa4site\x00"},
		"noise of six parts":         {"\x97\xa5cells", "\x96\xa5cells"},
		"noise of no kind":           {"\xa5cells", "\xa5calls"},
		"pool with the parts of all": {"\xa5cells", "\xa4pool"},
		"a run of three":             {"\x92\x02\x00", "\x93\x02\x00\x00"},
		"a tilt of two":              {"\x94\x0c\x01\x94", "\x92\x0c\x94"},
		"two totals":                 {"\x91\x08", "\x92\x08\x08"},
	} {
		form := string(withParts().Canonical())
		require.Equal(t, 1, strings.Count(form, c.old), name)
		_, err := task.Parse([]byte(strings.Replace(form, c.old, c.new, 1)))
		require.Error(t, err, name)
	}
	_, err := task.Parse(withParts().Canonical())
	require.NoError(t, err)
}

func TestChangeableAscends(t *testing.T) {
	require.True(t, slices.IsSorted(new(task.StreamPosition).Changeable()))
	all := new(task.StreamPosition).Changeable()
	require.Len(t, slices.Compact(slices.Clone(all)), len(all))
}

// TestNotSupportedYet: CheckSupported must refuse a part that no party supports yet, and name it.
func TestNotSupportedYet(t *testing.T) {
	require.NoError(t, sample().CheckSupported())
	inStream := sample()
	inStream.Stream = &task.StreamPosition{Name: "site", Allow: []string{"name", "relays.url"}}
	require.NoError(t, inStream.CheckSupported())
	for field, change := range map[string]func(*task.Task){
		"stream.allow": func(t *task.Task) { t.Stream = stream() },
	} {
		s := sample()
		change(s)
		require.NoError(t, s.Validate(), field)
		var refused *invalid.FieldError
		require.ErrorAs(t, s.CheckSupported(), &refused)
		require.Equal(t, field, refused.Field)
		require.ErrorContains(t, refused, "not supported yet")
	}
}

// TestMostBatches: an epoch of any task may have at most 2¹⁶ batches, and fewer if the task says so.
func TestMostBatches(t *testing.T) {
	const limit = 1 << 16
	for says, most := range map[uint64]uint64{0: limit, 1: 1, 7: 7, limit: limit, 1<<32 - 1: limit} {
		one := &task.Task{Noise: &task.Noise{Batches: says}}
		require.Equal(t, most, one.MostBatches(), says)
		require.True(t, one.HasBatch(most-1), says)
		require.False(t, one.HasBatch(most), says)
	}
	require.EqualValues(t, limit, (&task.Task{}).MostBatches())
}
