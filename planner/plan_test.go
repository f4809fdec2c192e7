package planner_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/strings"
	"github.com/doona-dp/doona/wire/task"
)

// goal returns a goal that every protocol for means can reach. Tests change it.
func goal() planner.Goal {
	return planner.Goal{Query: planner.Query{Name: "plan", Query: task.Mean, Hi: 1, Batch: 100, Honest: 1, Epsilon: 1,
		Delta: 1e-6}, Noise: planner.NoiseAny, Hops: 2}
}

func asking(query task.Query, change func(*planner.Goal)) planner.Goal {
	g := goal()
	g.Query.Query = query
	change(&g)
	return g
}

// goals returns small goals, one for each query except vectors. In the long form it returns the goals of the project's
// acceptance test.
func goals() map[string]planner.Goal {
	if !stattest.Long {
		return map[string]planner.Goal{
			"count of 20": asking(task.Count, func(g *planner.Goal) { g.Batch = 20 }),
			"mean of 60":  asking(task.Mean, func(g *planner.Goal) { g.Batch, g.MaxSlots = 60, 30 }),
			"5 labels": asking(task.Histogram, func(g *planner.Goal) {
				g.Batch, g.Bins, g.Labels, g.MaxSlots = 60, 5, true, 60
			}),
			"vectormean of 2": asking(task.VectorMean,
				func(g *planner.Goal) { g.Dim, g.Epsilon, g.MaxSlots = 2, 4, 60 }),
		}
	}
	return map[string]planner.Goal{
		"mean": asking(task.Mean, func(g *planner.Goal) { g.Batch, g.Honest, g.Delta = 1e6, .9, 1e-8 }),
		"histogram": asking(task.Histogram, func(g *planner.Goal) {
			g.Batch, g.Honest, g.Bins, g.Labels, g.Epsilon = 1e5, .9, 100, true, .5
		}),
		"vector":     asking(task.Vector, func(g *planner.Goal) { g.Batch, g.Honest, g.Dim = 1e6, .9, 100 }),
		"vectormean": asking(task.VectorMean, func(g *planner.Goal) { g.Batch, g.Honest, g.Dim = 1e5, .9, 16 }),
		"count":      asking(task.Count, func(g *planner.Goal) { g.Batch, g.Honest = 50, .9 }),
		"sum": asking(task.Sum, func(g *planner.Goal) {
			g.Batch, g.Honest, g.Epsilon, g.Delta = 1e5, .9, 0, 0
			g.TotalEpsilon, g.TotalDelta, g.Epochs = 5, 1e-5, 30
		}),
	}
}

// TestPlansPredict simulates every possible way with the worst-case input. The measured root mean square error must be
// within 10 % of the prediction. So must the width of 95 % intervals, plus a step if answers are whole numbers; only
// intervals of rappor's sums may be a quarter wider. With 4,000 repetitions, and errors of at most the kurtosis of
// Laplace noise, the relative standard error of the measured error is 1.8 %. A row then fails by chance with
// probability 2·10⁻⁸. For answers of at least 16 entries, 1,250 batches give 20,000 errors and 0.8 %. The long form
// (make test-full PART=coverage) has the goals of the project's acceptance test.
func TestPlansPredict(t *testing.T) {
	for name, g := range goals() {
		t.Run(name, func(t *testing.T) {
			ways, err := planner.Plan(g, nil)
			require.NoError(t, err)
			require.Nil(t, ways[0].Why)
			repeats := 4000
			if g.Dim >= 16 {
				repeats = 1250
			}
			for i, w := range ways {
				if w.Why != nil {
					t.Logf("%s: %v", w.Protocol, w.Why)
					continue
				}
				require.NoError(t, w.Mechanism.CheckClaim())
				if i > 1 { // the first two may be out of order, because the first is the recommended way
					require.GreaterOrEqual(t, w.RMSE, ways[i-1].RMSE)
				}
				fast := protocols.CapabilitiesOf(w.Mechanism).Fast != nil
				trial := planner.Trial{Repeats: repeats, Fast: fast, Confidences: []float64{.95}}
				values := slices.Repeat([][]float64{w.Mechanism.Worst().Value}, int(g.Batch))
				out, err := trial.Run(w.Task, w.Mechanism, values)
				require.NoError(t, err, w.Protocol)
				width := slices.Max(out.Coverage[0].Width)
				t.Logf("%s %s %s: rmse %.4g, found %.4g; width %.4g, found %.4g; %v", w.Protocol, w.Noise, w.Padding,
					w.RMSE, out.RMSE, w.Width, width, w.Task.Params)
				require.InEpsilon(t, w.RMSE, out.RMSE, .1, w.Protocol)
				if w.Protocol == "rappor" && g.Query.Query != task.Count {
					// Intervals of flipped levels hold for the worst values (docs/proofs/bands.md), so they are wider.
					require.Greater(t, width, .9*w.Width)
					require.Less(t, width, 1.25*w.Width)
				} else if g.Query.Query == task.Count || g.Query.Query == task.Histogram {
					require.InDelta(t, w.Width, width, .1*w.Width+2, w.Protocol)
				} else {
					require.InEpsilon(t, w.Width, width, .1, w.Protocol)
				}
			}
		})
	}
}

// TestPlansHaveEveryProtocol: a plan has a way for every protocol that answers the query, and each padding, possible or
// not.
func TestPlansHaveEveryProtocol(t *testing.T) {
	ways, err := planner.Plan(asking(task.Count, func(g *planner.Goal) {}), nil)
	require.NoError(t, err)
	got := map[string]int{}
	for _, w := range ways {
		got[w.Protocol]++
	}
	require.Equal(t, map[string]int{"realsum": 1, "splitmix": 1, "correlated": 2, "rappor": 1, "augmented": 1}, got)

	for noise, want := range map[planner.Noise]int{planner.NoiseClients: 5, planner.NoiseRelays: 1} {
		ways, err := planner.Plan(asking(task.Count, func(g *planner.Goal) { g.Noise = noise }), nil)
		require.NoError(t, err)
		require.Len(t, ways, want)
		for _, w := range ways {
			require.Equal(t, noise, w.Noise)
		}
	}
}

// TestPlansOfSparseVectors: a protocol that takes only sparse vectors is impossible for others.
func TestPlansOfSparseVectors(t *testing.T) {
	for _, sparse := range []bool{false, true} {
		ways, err := planner.Plan(asking(task.Vector,
			func(g *planner.Goal) { g.Batch, g.Dim, g.Sparse = 10, 2, sparse }),
			nil)
		require.NoError(t, err)
		for _, w := range ways {
			if w.Protocol == "correlated" {
				require.Equal(t, sparse, w.Why == nil, w.Why)
			}
		}
	}
}

// TestPlansKeepLimits: a way that exceeds a limit is impossible and says what limit would suffice. With that it is
// possible.
func TestPlansKeepLimits(t *testing.T) {
	plan := func(change func(*planner.Goal)) map[string]planner.Way {
		ways, err := planner.Plan(asking(task.Count, change), nil)
		require.NoError(t, err)
		out := map[string]planner.Way{}
		for _, w := range ways {
			out[w.Protocol+" "+string(w.Padding)] = w
		}
		return out
	}
	narrow := plan(func(g *planner.Goal) { g.MaxSlots = 1 })
	for name, w := range narrow {
		if w.Why == nil {
			require.EqualValues(t, 1, w.Task.Slots.PerLane*w.Task.Slots.Lanes, name)
		}
	}
	why := narrow["splitmix "].Why
	require.ErrorContains(t, why, "max-slots")
	var field *invalid.FieldError
	require.True(t, errors.As(why, &field))
	var slots uint64
	_, err := fmt.Sscan(field.Want, &slots)
	require.NoError(t, err, field.Want)
	possible := plan(func(g *planner.Goal) { g.MaxSlots = slots })["splitmix full"]
	require.NoError(t, possible.Why)
	require.LessOrEqual(t, possible.Task.Slots.PerLane, slots)

	vector := func(g *planner.Goal) {
		g.Query.Query, g.Dim, g.Epsilon = task.VectorMean, 2, 4
	}
	free := plan(vector)["vectormean full"]
	held := plan(func(g *planner.Goal) {
		vector(g)
		g.MaxSlots = free.Task.Slots.PerLane - 1
	})["vectormean full"]
	require.NoError(t, held.Why)
	require.Less(t, held.Task.Slots.PerLane, free.Task.Slots.PerLane)
	require.Greater(t, held.RMSE, free.RMSE)

	for name, w := range plan(func(g *planner.Goal) { g.MaxMessages = 1.5 }) {
		require.True(t, w.Why != nil || w.Messages <= 1.5, name)
	}
	few := plan(func(g *planner.Goal) { g.MaxDummies = 40 })["augmented full"]
	require.NoError(t, few.Why)
	require.LessOrEqual(t, few.Dummies, 40.)
	for name, w := range plan(func(g *planner.Goal) { g.LeastLocal = 3 }) {
		require.True(t, w.Why != nil || w.Mechanism.Epsilon0() <= 3, name)
	}
}

func TestPlansNameWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*planner.Goal)
		field  string
	}{
		"no users":         {func(g *planner.Goal) { g.Batch = 0 }, "users"},
		"too many users":   {func(g *planner.Goal) { g.Batch = 1 << 32 }, "users"},
		"epsilon is NaN":   {func(g *planner.Goal) { g.Epsilon = math.NaN() }, "epsilon"},
		"an unknown noise": {func(g *planner.Goal) { g.Noise = "nobody" }, "noise"},
		"no such noise": {func(g *planner.Goal) {
			g.Query.Query, g.Dim, g.Noise = task.Vector, 2, planner.NoiseRelays
		}, "noise"},
		"no relay":             {func(g *planner.Goal) { g.Hops = 0 }, "hops"},
		"nine relays":          {func(g *planner.Goal) { g.Hops = 9 }, "hops"},
		"dummies are NaN":      {func(g *planner.Goal) { g.MaxDummies = math.NaN() }, "max-dummies"},
		"fewer than no dummy":  {func(g *planner.Goal) { g.MaxDummies = -1 }, "max-dummies"},
		"messages are NaN":     {func(g *planner.Goal) { g.MaxMessages = math.NaN() }, "max-messages"},
		"local ε is too large": {func(g *planner.Goal) { g.LeastLocal = 65 }, "local-epsilon"},
		"texts of no byte":     {func(g *planner.Goal) { g.Query.Query, g.Length = task.Strings, 0 }, "length"},
		"one bin":              {func(g *planner.Goal) { g.Query.Query, g.Bins = task.Histogram, 1 }, "bins"},
		"bins of a mean":       {func(g *planner.Goal) { g.Bins = 4 }, "bins"},
	} {
		g := goal()
		c.change(&g)
		_, err := planner.Plan(g, nil)
		var field *invalid.FieldError
		require.True(t, errors.As(err, &field), "%s: %v", name, err)
		require.Equal(t, c.field, field.Field, name)
	}
}

// TestPlansOfTexts: clients or relays add the noise of texts. A way's accuracy is that of the count of a text that is
// barely listed. With more dummies, fewer clients suffice. With a total, both ways keep it.
func TestPlansOfTexts(t *testing.T) {
	texts := func(g *planner.Goal) { g.Batch, g.Length = 10_000, 8 }
	plan := func(change func(*planner.Goal)) map[planner.Noise]planner.Way {
		ways, err := planner.Plan(asking(task.Strings, change), nil)
		require.NoError(t, err)
		require.Len(t, ways, 2)
		out := map[planner.Noise]planner.Way{}
		for i, w := range ways {
			require.NoError(t, w.Why)
			require.Equal(t, "strings", w.Protocol)
			require.GreaterOrEqual(t, w.RMSE, planner.LeastError(ways).RMSE, i)
			m := w.Mechanism.(*strings.Mechanism)
			require.Equal(t, m.FoundDownTo(2), w.FoundDownTo)
			require.InEpsilon(t, math.Sqrt(m.CountVariance(w.FoundDownTo, 2)), w.RMSE, 1e-9)
			require.InEpsilon(t, m.Reach(), w.Shift, 1e-9)
			require.Greater(t, w.Central, 1.)
			require.Greater(t, w.FoundDownTo, 3*w.RMSE)
			require.Equal(t, 1., w.Messages)
			out[w.Noise] = w
		}
		return out
	}
	usual := plan(texts)
	require.Zero(t, usual[planner.NoiseClients].Dummies)
	require.EqualValues(t, usual[planner.NoiseRelays].Task.Noise.Pool, usual[planner.NoiseRelays].Dummies)
	more := plan(func(g *planner.Goal) {
		texts(g)
		g.MaxDummies = 11_000
	})
	require.Less(t, more[planner.NoiseRelays].FoundDownTo, usual[planner.NoiseRelays].FoundDownTo)
	for noise, w := range plan(func(g *planner.Goal) {
		texts(g)
		g.Epsilon, g.Delta, g.TotalEpsilon, g.TotalDelta, g.Epochs = 0, 0, 8, 1e-5, 30
	}) {
		require.NoError(t, w.Mechanism.CheckClaim(), noise)
		require.Greater(t, w.Task.Claim.Epsilon.Value(), 8./30, noise)
	}
}

// TestSolveUsers: a mean needs the returned number of users; 5 % fewer do not suffice.
func TestSolveUsers(t *testing.T) {
	g := goal()
	g.Noise = planner.NoiseRelays
	users, ways, err := planner.SolveUsers(g, .1, nil)
	require.NoError(t, err)
	require.LessOrEqual(t, ways[0].Width, .1)
	require.Equal(t, users, ways[0].Task.Batch.Size)
	g.Batch = users * 95 / 100
	ways, err = planner.Plan(g, nil)
	require.NoError(t, err)
	require.Greater(t, ways[0].Width, .1)

	_, _, err = planner.SolveUsers(asking(task.Count, func(g *planner.Goal) { g.Noise = planner.NoiseRelays }), .001,
		nil)
	require.ErrorIs(t, err, planner.ErrNeverReached)
	hardly := g
	hardly.Honest = 1e-309
	_, _, err = planner.SolveUsers(hardly, 0, nil)
	require.ErrorContains(t, err, "invalid honest 1e-309: want 2.4e-10 or more")
	_, _, err = planner.SolveUsers(g, math.NaN(), nil)
	require.ErrorContains(t, err, "interval-width")
}

// TestCentralRatio: the curator's error is that of [planner.NewCentral] if it answers the query. For many bins it is
// less, because Gaussian noise is better.
func TestCentralRatio(t *testing.T) {
	for _, g := range []planner.Goal{
		asking(task.Count, func(g *planner.Goal) { g.Noise = planner.NoiseRelays }),
		asking(task.Mean, func(g *planner.Goal) { g.Noise, g.MaxSlots = planner.NoiseClients, 1 }),
		asking(task.Histogram, func(g *planner.Goal) { g.Bins, g.Labels = 3, true }),
	} {
		ways, err := planner.Plan(g, nil)
		require.NoError(t, err)
		w := ways[0]
		m, err := planner.NewCentral(w.Task, int(g.Batch))
		require.NoError(t, err)
		_, variance, err := m.Exact(w.Mechanism.Worst().Value)
		require.NoError(t, err)
		scale := protocols.Scale(w.Task.Query, g.Batch)
		curator := math.Sqrt(variance[0]*float64(g.Batch)) * scale
		require.InEpsilon(t, curator, w.RMSE/w.Central, 1e-3, g.Query.Query)
	}
}

// TestCentralRatioOfVectors: no way has less error than a curator with the same vectors, sparse or not. With so few
// users the error is all noise; for a sparse vector it is the noise of two coordinates.
func TestCentralRatioOfVectors(t *testing.T) {
	for _, sparse := range []bool{false, true} {
		ways, err := planner.Plan(asking(task.Vector, func(g *planner.Goal) {
			g.Batch, g.Dim, g.Sparse, g.MaxSlots = 1000, 12, sparse, 60
		}), nil)
		require.NoError(t, err)
		for _, w := range ways {
			if w.Why == nil {
				require.Greater(t, w.Central, 1., "%s, sparse %v", w.Protocol, sparse)
			}
		}
	}
}

// TestShiftOfVectorMean: one malicious client can move the first coordinate of a mean by more than the whole range.
func TestShiftOfVectorMean(t *testing.T) {
	ways, err := planner.Plan(asking(task.VectorMean,
		func(g *planner.Goal) { g.Dim, g.Epsilon, g.MaxSlots = 2, 4, 60 }), nil)
	require.NoError(t, err)
	for _, w := range ways {
		if w.Why != nil {
			continue
		}
		require.Greater(t, w.Shift, 2/float64(w.Task.Batch.Size), w.Protocol)
	}
}

// TestShift: one malicious client moves an entry of a histogram by at most 1/(1-γ), or by 1 if relays add the noise.
func TestShift(t *testing.T) {
	ways, err := planner.Plan(asking(task.Histogram, func(g *planner.Goal) { g.Bins, g.Labels = 4, true }), nil)
	require.NoError(t, err)
	for _, w := range ways {
		switch w.Protocol {
		case "histogram":
			gamma, _ := w.Task.Param("gamma")
			require.Less(t, w.Shift, 1/(1-gamma.Float64())+1e-9)
			require.Greater(t, w.Shift, 1.)
		case "augmented":
			require.InDelta(t, 1, w.Shift, 1e-9)
		case "correlated":
			require.GreaterOrEqual(t, w.Shift, float64(w.Task.Slots.PerLane))
		}
	}
}

// TestServerSeconds: every party has an estimate. A client with one slot costs each party less than one with several.
func TestServerSeconds(t *testing.T) {
	ways, err := planner.Plan(asking(task.Count, func(g *planner.Goal) { g.Hops = 3 }), nil)
	require.NoError(t, err)
	seconds := map[string]map[string]float64{}
	for _, w := range ways {
		seconds[w.Protocol] = w.ServerSeconds()
		require.Len(t, seconds[w.Protocol], 4)
	}
	for _, party := range []string{"relay 1", "relay 2", "relay 3", "verifier"} {
		require.Greater(t, seconds["realsum"][party], 0., party)
		require.Less(t, seconds["realsum"][party], seconds["splitmix"][party], party)
		require.Less(t, seconds["realsum"][party], seconds["augmented"][party], party) // augmented adds dummies
	}
}

// TestOneUserAndRelays: noise by relays needs no honest client, so a plan must have it for a single user, too.
func TestOneUserAndRelays(t *testing.T) {
	for _, noise := range []planner.Noise{planner.NoiseRelays, planner.NoiseAny} {
		g := planner.Goal{Noise: noise, Hops: 2}
		g.Name, g.Query.Query, g.Batch, g.Honest, g.Epsilon, g.Delta = "one", task.Count, 1, .9, 1, 1e-6
		ways, err := planner.Plan(g, nil)
		require.NoError(t, err)
		require.NoError(t, ways[0].Why)
		require.Equal(t, planner.NoiseRelays, ways[0].Noise)
		for _, w := range ways[1:] {
			require.ErrorContains(t, w.Why, "at least one honest client")
		}
	}
}
