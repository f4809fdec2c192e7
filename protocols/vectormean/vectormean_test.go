package vectormean_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/brute"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/protocols/vectormean"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// As in vectorsum's tests: 80 checks at 5.7 standard deviations, together a false alarm in 10⁶.
const (
	repeats    = 5000
	deviations = 5.7
)

func open(t *testing.T, q planner.Query) (*task.Task, protocols.Mechanism) {
	t.Helper()
	q.Name, q.Query, q.Protocol = "test", task.VectorMean, vectormean.Name
	draft, err := planner.Draft(q)
	require.NoError(t, err)
	m, err := registry.Open(draft)
	require.NoError(t, err)
	require.NoError(t, m.CheckClaim())
	return draft, m
}

func TestEstimatesAreUnbiasedWithThePredictedVariance(t *testing.T) {
	const n = 60
	for name, q := range map[string]planner.Query{
		"d = 3":                       {Dim: 3, Honest: 1},
		"d = 3, 80 % honest":          {Dim: 3, Honest: 0.8},
		"d = 4, padding none":         {Dim: 4, Honest: 1, Padding: task.PaddingNone},
		"d = 4, none, 80 % honest":    {Dim: 4, Honest: 0.8, Padding: task.PaddingNone},
		"d = 5, a lane each":          {Dim: 5, Honest: 1, Lanes: 16},
		"d = 2, 4 bits":               {Dim: 2, Honest: 1, Params: planner.Params{"bits": 4}},
		"d = 2, 4 bits, padding none": {Dim: 2, Honest: 1, Padding: task.PaddingNone, Lanes: 4, Params: planner.Params{"bits": 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q.Batch, q.Epsilon, q.Delta, q.Clip = n, 8, 1e-4, true
			draft, m := open(t, q)
			values := make([][]float64, n)
			for i := range values {
				for j := range q.Dim {
					values[i] = append(values[i], math.Sin(float64(i)/5+float64(j)*float64(j))*float64(i%3)/2)
				}
			}
			out, err := planner.Trial{Repeats: repeats}.Run(draft, m, values)
			require.NoError(t, err)
			for l, truth := range out.Truth {
				se := math.Sqrt(out.PredictedVariance[l] / repeats)
				require.InDelta(t, truth, out.Estimate[l], deviations*se, "bias of coordinate %d", l)
				require.InEpsilon(t, out.PredictedVariance[l], out.Variance[l], deviations*math.Sqrt(2.0/repeats), "variance of coordinate %d", l)
			}
		})
	}
}

// counters describes a tiny mechanism: N coefficients of len(noise) bits.
type counters struct {
	size, sides int
	noise       []trials
}

type trials struct {
	m uint64
	q float64
}

// leak returns the largest δ(ε) of the counters for users clients, all of whose vectors are known but
// one: the others' values move every count by a constant, which changes nothing, so they are left out.
func (c counters) leak(users int, eps float64) (worst float64) {
	bits := len(c.noise)
	kinds := c.size * bits * c.sides
	blanket := brute.Nothing(kinds)
	for kind := range kinds {
		n := c.noise[kind/c.sides%bits]
		trial := brute.Law{}
		trial.Mix(1-n.q, brute.Nothing(kinds))
		trial.Mix(n.q, brute.One(kinds, kind))
		for range uint64(users) * n.m {
			blanket = blanket.Add(trial)
		}
	}
	var seen []brute.Law
	for _, x := range brute.Vectors(c.size*bits, 1) {
		law := blanket
		for i, bit := range x {
			if c.sides == 2 {
				law = law.Add(brute.One(kinds, 2*i+int(bit)))
			} else if bit == 1 {
				law = law.Add(brute.One(kinds, i))
			}
		}
		seen = append(seen, law)
	}
	for i := range seen {
		for j := range seen {
			worst = max(worst, brute.HockeyStick(seen[i], seen[j], eps))
		}
	}
	return worst
}

func of(t *testing.T, draft *task.Task) counters {
	size := 2
	for size < 2*int(draft.Input.Bins) {
		size *= 2
	}
	c := counters{size: size, sides: 1}
	if draft.Slots.Padding == task.PaddingNone {
		c.sides = 2
	}
	bits, ok := draft.Param("bits")
	require.True(t, ok)
	for i := range bits.Num {
		m, _ := draft.Param(fmt.Sprint("m", i))
		q, _ := draft.Param(fmt.Sprint("q", i))
		c.noise = append(c.noise, trials{uint64(m.Num), q.Float64()})
	}
	return c
}

// The counters of tiny mechanisms, enumerated from their parameters, leak no more than claimed, and
// more if there are fewer honest clients, less noise, or one coefficient more than calibrated for.
func TestShuffledCountersArePrivate(t *testing.T) {
	cases := []struct {
		users, bits, dim uint64
		padding          string
		eps, delta       float64
	}{
		{1, 1, 1, "full", 3, 0.05}, {2, 1, 1, "full", 2, 0.1}, {4, 1, 1, "full", 3, 0.02}, {6, 1, 1, "full", 3, 0.05},
		{3, 2, 1, "full", 4, 0.1}, {1, 1, 1, "none", 6, 0.3}, {1, 1, 2, "full", 5, 0.2}, {2, 1, 1, "none", 7, 0.3},
	}
	for _, c := range cases {
		t.Run(fmt.Sprintf("n=%d b=%d d=%d %s", c.users, c.bits, c.dim, c.padding), func(t *testing.T) {
			draft, _ := open(t, planner.Query{Dim: c.dim, Batch: c.users, Honest: 1, Epsilon: c.eps, Delta: c.delta, Padding: c.padding, Params: planner.Params{"bits": c.bits}})
			exact := of(t, draft)
			worst := exact.leak(int(c.users), c.eps)
			require.LessOrEqual(t, worst, c.delta*(1+1e-9))
			loose := 2.0
			if c.padding == task.PaddingNone {
				loose = 5 // one counter of a pair moves up and the other down; the bound takes the worse for both
			}
			require.Greater(t, worst, c.delta/loose, "the bound is not far off")

			weak := exact
			weak.noise = append([]trials(nil), exact.noise...)
			for i := range weak.noise {
				weak.noise[i].q /= 2
			}
			require.Greater(t, weak.leak(int(c.users), c.eps), c.delta, "half the noise")
			if c.users > 1 && exact.noise[0].m > 0 {
				fewer := exact
				fewer.noise = append([]trials(nil), exact.noise...)
				for i := range fewer.noise {
					fewer.noise[i].m = fewer.noise[i].m * 2 / 3
				}
				require.Greater(t, fewer.leak(int(c.users), c.eps), c.delta, "two thirds of the trials")
			}
			for i := range draft.Params {
				if draft.Params[i].Key == "q0" {
					draft.Params[i].Value = randomizer.NewRational(draft.Params[i].Value.Num, 2*draft.Params[i].Value.Den)
				}
			}
			m, err := new(vectormean.Protocol).Open(draft)
			require.NoError(t, err)
			require.ErrorContains(t, m.CheckClaim(), "claim.delta")
		})
	}
}

// Noise calibrated for one counter does not hide two: composition is needed.
func TestNoiseOfOneCounterIsNotEnoughForTwo(t *testing.T) {
	draft, _ := open(t, planner.Query{Dim: 1, Batch: 4, Honest: 1, Epsilon: 3, Delta: 0.05, Params: planner.Params{"bits": 1}})
	exact := of(t, draft)
	require.Equal(t, 2, exact.size)
	one := counters{size: 1, sides: 1, noise: append([]trials(nil), exact.noise...)}
	for one.leak(4, 3) < 0.05 { // as little noise as one counter alone needs
		one.noise[0].q *= 0.95
	}
	one.noise[0].q /= 0.95
	require.LessOrEqual(t, one.leak(4, 3), 0.05)
	both := counters{size: 2, sides: 1, noise: one.noise}
	require.Greater(t, both.leak(4, 3), 0.05)
}

// Covers in place of zeros, as many as make the number of a client's slots the same for every vector,
// give the number of ones away: padding none needs messages for zeros.
func TestCountingCoversWouldShowTheVector(t *testing.T) {
	const kinds = 3 // two counters and covers
	report := func(x []uint64) brute.Law {
		law := brute.Nothing(kinds)
		for i, bit := range x {
			if bit == 1 {
				law = law.Add(brute.One(kinds, i))
			} else {
				law = law.Add(brute.One(kinds, 2))
			}
			for range 8 {
				trial := brute.Law{}
				trial.Mix(0.5, brute.Nothing(kinds))
				trial.Mix(0.5, brute.One(kinds, i))
				law = law.Add(trial)
			}
		}
		return law
	}
	require.InDelta(t, 1, brute.HockeyStick(report([]uint64{1, 1}), report([]uint64{0, 1}), 10), 1e-9)
}

// TestRandomizerFollowsItsLaw compares the mean and variance of all counters over 4,000 clients with
// Bin(m, q) and the bit, each within 6 standard deviations: 64 checks, a false alarm in 10⁷.
func TestRandomizerFollowsItsLaw(t *testing.T) {
	const draws = 4000
	for _, padding := range []string{task.PaddingFull, task.PaddingNone} {
		draft, m := open(t, planner.Query{Dim: 2, Batch: 100, Honest: 1, Epsilon: 4, Delta: 1e-6, Padding: padding, Params: planner.Params{"bits": 2}})
		c := of(t, draft)
		kinds := c.size * 2 * c.sides
		sums, squares := make([]float64, kinds), make([]float64, kinds)
		src := randomizer.NewSource()
		for range draws {
			lanes, err := m.Randomize(src, []float64{0, 0}) // every coefficient halfway between levels 1 and 2
			require.NoError(t, err)
			require.LessOrEqual(t, uint64(len(lanes[0])), draft.Slots.PerLane)
			counts := make([]float64, kinds)
			for _, message := range lanes[0] {
				counts[message[0]]++
			}
			for kind, n := range counts {
				sums[kind] += n
				squares[kind] += n * n
			}
		}
		for kind := range kinds {
			n := c.noise[kind/c.sides%2]
			mean := 0.5 + float64(n.m)*n.q
			variance := 0.25 + float64(n.m)*n.q*(1-n.q)
			got := sums[kind] / draws
			require.InDelta(t, mean, got, 6*math.Sqrt(variance/draws), "%s, kind %d", padding, kind)
			require.InDelta(t, variance, squares[kind]/draws-got*got, 6*variance*math.Sqrt(3.0/draws), "%s, kind %d", padding, kind)
		}
	}
}

// The composition over 32 coefficients is far below the closed form of the paper, which needs
// ε/(2√(2d·ln(2/δ))) in each, and near the Gaussian limit.
func TestNoiseIsNearTheGaussianLimit(t *testing.T) {
	draft, m := open(t, planner.Query{Dim: 16, Batch: 100_000, Honest: 1, Epsilon: 1, Delta: 1e-6, Params: planner.Params{"bits": 8}})
	kashin, _ := draft.Param("kashin")
	mu := 0.2308 // δ = Φ(−1/μ + μ/2) − e·Φ(−1/μ − μ/2) = 10⁻⁶
	limit := 2 * kashin.Float64() / mu
	got := math.Sqrt(m.WorstVariance() * 100_000)
	require.InEpsilon(t, limit, got, 0.05, "standard error of the sum")
	closed := 16 / (1 / (2 * math.Sqrt(2*16*math.Log(2e6)))) // discrete Laplace of scale Δ/ε₀ on [-c, c], c = κ/√32
	require.Less(t, 3*got, closed*2*kashin.Float64()/math.Sqrt(32))
}

func TestWorstValueHasTheWorstVariance(t *testing.T) {
	for _, bits := range []uint64{1, 2, 5} {
		_, m := open(t, planner.Query{Dim: 3, Batch: 1000, Honest: 0.9, Epsilon: 1, Delta: 1e-6, Params: planner.Params{"bits": bits}})
		_, at, err := m.Exact(m.WorstValue())
		require.NoError(t, err)
		require.InEpsilon(t, m.WorstVariance(), at[0], 1e-9)
		for i := range 500 {
			_, v, err := m.Exact([]float64{math.Sin(float64(i)) / 2, math.Cos(float64(i)) / 2, 0.3})
			require.NoError(t, err)
			require.LessOrEqual(t, v[0], m.WorstVariance()*(1+1e-12))
		}
	}
}

func TestBadParametersNameTheField(t *testing.T) {
	for name, c := range map[string]struct {
		query planner.Query
		field string
		want  string
	}{
		"bits of zero":        {planner.Query{Dim: 4, Params: planner.Params{"bits": 0}}, "params.bits", "1 to 10"},
		"too many bits":       {planner.Query{Dim: 4, Params: planner.Params{"bits": 11}}, "params.bits", "1 to 10"},
		"kashin below 1":      {planner.Query{Dim: 4, Params: planner.Params{"kashin": 0}}, "params.kashin", "from 1 to"},
		"kashin too large":    {planner.Query{Dim: 4, Params: planner.Params{"kashin": 3}}, "params.kashin", "2.8284"},
		"dimension too large": {planner.Query{Dim: 8193}, "input.dim", "1 to 8192"},
		"too few users":       {planner.Query{Dim: 1000, Batch: 100}, "users", "at least"},
		"rule":                {planner.Query{Dim: 4, Rule: "revealed"}, "rule", "composed"},
		"unknown parameter":   {planner.Query{Dim: 4, Params: planner.Params{"r": 1}}, "params.r", ""},
	} {
		t.Run(name, func(t *testing.T) {
			q := c.query
			q.Name, q.Query, q.Protocol, q.Honest, q.Epsilon, q.Delta = "test", task.VectorMean, vectormean.Name, 1, 1, 1e-6
			q.Batch = max(q.Batch, 1000)
			_, err := planner.Draft(q)
			var field *invalid.FieldError
			require.ErrorAs(t, err, &field)
			require.Equal(t, c.field, field.Field)
			require.Contains(t, field.Want, c.want)
		})
	}
}

func TestTasksWithOtherParametersAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*task.Task)
		field  string
	}{
		"no bits":         {func(d *task.Task) { d.Params = d.Params[1:] }, "params.bits"},
		"no noise":        {func(d *task.Task) { d.Params[2].Value = randomizer.NewRational(0, 1) }, "params.m0"},
		"certain noise":   {func(d *task.Task) { d.Params[3].Value = randomizer.NewRational(1, 1) }, "params.q0"},
		"q not dyadic":    {func(d *task.Task) { d.Params[3].Value = randomizer.NewRational(1, 3) }, "params.q0"},
		"a slot too few":  {func(d *task.Task) { d.Slots.PerLane-- }, "slots"},
		"padding changed": {func(d *task.Task) { d.Slots.Padding = task.PaddingNone }, "slots"},
		"odd lanes":       {func(d *task.Task) { d.Slots.Lanes = 3 }, "slots.lanes"},
		"seed missing":    {func(d *task.Task) { d.Params = d.Params[:4] }, "params.seed"},
	} {
		t.Run(name, func(t *testing.T) {
			draft, _ := open(t, planner.Query{Dim: 4, Batch: 1000, Honest: 1, Epsilon: 1, Delta: 1e-6, Params: planner.Params{"bits": 1}})
			c.change(draft)
			_, err := registry.Open(draft)
			var field *invalid.FieldError
			require.ErrorAs(t, err, &field)
			require.Equal(t, c.field, field.Field)
		})
	}
}

// One malicious client among 50: with one lane the error it makes grows as √d, with a lane per
// coefficient it does not grow.
func TestOneMaliciousClient(t *testing.T) {
	reach := func(dim, lanes uint64) (norm float64) {
		q := planner.Query{Dim: dim, Batch: 2000, Honest: 1, Epsilon: 1, Delta: 1e-6, Lanes: lanes}
		q.Params = planner.Params{"bits": 1, "seed": 2}
		draft, m := open(t, q)
		kashin, _ := draft.Param("kashin")
		trials, _ := draft.Param("m0")
		lanesOf, err := m.(protocols.Attacker).Attack(randomizer.NewSource(), protocols.AttackMax, 0, make([]float64, dim))
		require.NoError(t, err)
		honest, attacked := m.Aggregate(), m.Aggregate()
		for lane, messages := range lanesOf {
			require.LessOrEqual(t, uint64(len(messages)), draft.Slots.PerLane)
			for _, message := range messages {
				require.NoError(t, attacked.Add(lane, message))
			}
		}
		before := honest.Total()
		for l, after := range attacked.Total() {
			norm = math.Hypot(norm, after-before[l])
		}
		return norm / kashin.Float64() / float64(1+trials.Num)
	}
	for _, dim := range []uint64{16, 64, 256} {
		require.InDelta(t, math.Sqrt(float64(2*dim)*2), reach(dim, 1), 1e-6, "one lane: 2c/L·B in norm √½, c·B = κ√N·(b+m)")
		require.InDelta(t, 1, reach(dim, 2*dim), 0.5, "a lane each")
	}
}

// TestFastPathHasTheSlowPathsMoments: 2,000 estimates each; means within 5.7 standard errors of their
// difference, variances within 5.7 of theirs.
func TestFastPathHasTheSlowPathsMoments(t *testing.T) {
	for _, padding := range []string{task.PaddingFull, task.PaddingNone} {
		draft, m := open(t, planner.Query{Dim: 2, Batch: 50, Honest: 1, Epsilon: 6, Delta: 1e-4, Padding: padding, Params: planner.Params{"bits": 2}})
		values := make([][]float64, 50)
		for i := range values {
			values[i] = []float64{float64(i) / 60, -0.5}
		}
		out, err := planner.Trial{Repeats: 2000, Fast: true}.Run(draft, m, values)
		require.NoError(t, err)
		for l, truth := range out.Truth {
			require.InDelta(t, truth, out.Estimate[l], deviations*math.Sqrt(out.PredictedVariance[l]/2000))
			require.InEpsilon(t, out.PredictedVariance[l], out.Variance[l], deviations*math.Sqrt(2.0/2000))
		}
		slow, err := planner.Trial{Repeats: 500}.Run(draft, m, values)
		require.NoError(t, err)
		require.InEpsilon(t, slow.MessagesPerUser, out.MessagesPerUser, 0.01)
	}
}

// A task may ask a client to check anything; it must not panic, or take memory or time.
func TestHostileNoiseIsRefusedQuickly(t *testing.T) {
	for name, noise := range map[string]struct {
		m, q randomizer.Rational
		min  uint64
	}{
		"more than fits in memory": {randomizer.NewRational(65535, 1), randomizer.NewRational(1, 2), 60_000},
		"next to none":             {randomizer.NewRational(1, 1), randomizer.NewRational(1, 1<<62), 60_000},
		"nearly certain":           {randomizer.NewRational(2, 1), randomizer.NewRational(1<<52-1, 1<<52), 60_000},
		"one client":               {randomizer.NewRational(1, 1), randomizer.NewRational(1, 2), 1},
	} {
		t.Run(name, func(t *testing.T) {
			draft, _ := open(t, planner.Query{Dim: 2, Batch: 60_000, Honest: 1, Epsilon: 1, Delta: 1e-6, Params: planner.Params{"bits": 1}})
			draft.Params[2].Value, draft.Params[3].Value = noise.m, noise.q
			draft.Slots.PerLane = 4 * (1 + uint64(noise.m.Num))
			draft.Batch.Min = noise.min
			m, err := new(vectormean.Protocol).Open(draft)
			require.NoError(t, err)
			require.ErrorContains(t, m.CheckClaim(), "claim.delta")
		})
	}
}
