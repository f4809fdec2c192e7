package vectormean_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/protocols/vectormean"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// As in vectorsum's tests, 80 checks allow 5.7 standard deviations each. Together they fail by chance once in 10⁶ runs.
const (
	repeats    = 1500 * stattest.Times
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
		"d = 3":                    {Dim: 3, Honest: 1},
		"d = 3, 80 % honest":       {Dim: 3, Honest: 0.8},
		"d = 4, padding none":      {Dim: 4, Honest: 1, Padding: task.PaddingNone},
		"d = 4, none, 80 % honest": {Dim: 4, Honest: 0.8, Padding: task.PaddingNone},
		"d = 5, a lane each":       {Dim: 5, Honest: 1, Lanes: 16},
		"d = 2, 15 units":          {Dim: 2, Honest: 1, Params: planner.Params{"units": 15}},
		"d = 2, a lane each, none": {Dim: 2, Honest: 1, Padding: task.PaddingNone, Lanes: 4,
			Params: planner.Params{"units": 3}},
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
				require.InEpsilon(t, out.PredictedVariance[l], out.Variance[l], deviations*math.Sqrt(2.0/repeats),
					"variance of coordinate %d", l)
			}
		})
	}
}

// exact describes the counters of a tiny mechanism with one lane, for exact enumeration. Each of the 2·size counters of
// units has noise Bin(trials, q) over all clients. Under padding none the counter of null messages has noise
// Bin(trials0, q0).
type exact struct {
	size             int
	units            float64
	most             int // A, the most units of a vector.
	trials, trials0  int
	q, q0            float64
	withoutSecond    bool // Broken variant: no noise on the messages (l, -).
	withoutNullNoise bool // Broken variant: no noise on the null messages.
}

func of(t *testing.T, draft *task.Task, users int) exact {
	e := exact{size: int(draft.Input.Bins)}
	get := func(key string) float64 {
		p, ok := draft.Param(key)
		require.True(t, ok, key)
		return p.Float64()
	}
	e.units, e.trials, e.q = get("units"), users*int(get("m")), get("q")
	e.most = int(draft.Slots.PerLane) - 2*e.size*int(get("m"))
	if draft.Slots.Padding == task.PaddingNone {
		e.trials0, e.q0 = users*int(get("m0")), get("q0")
		e.most -= int(get("m0"))
	}
	return e
}

func (e exact) kinds() int {
	if e.trials0 > 0 {
		return 2*e.size + 1
	}
	return 2 * e.size
}

// noise returns the distribution of the noise on a kind's counter.
func (e exact) noise(kind int) []float64 {
	n, q := e.trials, e.q
	if kind == 2*e.size {
		if n, q = e.trials0, e.q0; e.withoutNullNoise {
			n = 0
		}
	} else if kind%2 == 1 && e.withoutSecond {
		n = 0
	}
	return binomial(n, q)
}

// binomial returns the probabilities of Bin(n, q).
func binomial(n int, q float64) []float64 {
	pmf := make([]float64, n+1)
	for k := range pmf {
		choose, _ := math.Lgamma(float64(n + 1))
		a, _ := math.Lgamma(float64(k + 1))
		b, _ := math.Lgamma(float64(n - k + 1))
		pmf[k] = math.Exp(choose - a - b + float64(k)*math.Log(q) + float64(n-k)*math.Log1p(-q))
	}
	return pmf
}

// outcome is a rounded vector and its probability.
type outcome struct {
	x []int
	p float64
}

// outcomes enumerates the results of dependent rounding: one of the first two fractions becomes whole, and so on.
func (e exact) outcomes(v []float64) (out []outcome) {
	var walk func(f []float64, p float64)
	walk = func(f []float64, p float64) {
		var open []int
		for k, t := range f {
			if frac := t - math.Floor(t); frac > 1e-9 && frac < 1-1e-9 {
				open = append(open, k)
			}
		}
		with := func(p float64, values ...float64) {
			g := append([]float64(nil), f...)
			for i, value := range values {
				g[open[i]] = math.Floor(f[open[i]]) + value
			}
			walk(g, p)
		}
		switch {
		case p <= 1e-15:
		case len(open) == 0:
			x := make([]int, len(f))
			for k := range f {
				x[k] = int(math.Round(f[k]))
				if v[k] < 0 {
					x[k] = -x[k]
				}
			}
			out = append(out, outcome{x, p})
		case len(open) == 1:
			a := f[open[0]] - math.Floor(f[open[0]])
			with(p*(1-a), 0)
			with(p*a, 1)
		default:
			a, b := f[open[0]]-math.Floor(f[open[0]]), f[open[1]]-math.Floor(f[open[1]])
			if sum := a + b; sum <= 1 {
				with(p*a/sum, sum, 0)
				with(p*b/sum, 0, sum)
			} else {
				with(p*(1-b)/(2-sum), 1, sum-1)
				with(p*(1-a)/(2-sum), sum-1, 1)
			}
		}
	}
	f := make([]float64, len(v))
	for k := range v {
		f[k] = math.Abs(v[k]) * e.units
	}
	walk(f, 1)
	return out
}

// sent returns the number of messages of each kind for a rounded vector, without noise.
func (e exact) sent(x []int) []int {
	out := make([]int, e.kinds())
	total := 0
	for k, units := range x {
		if units >= 0 {
			out[2*k] = units
		} else {
			out[2*k+1] = -units
		}
		total += max(units, -units)
	}
	if e.trials0 > 0 {
		out[2*e.size] = e.most - total
	}
	return out
}

// law returns the distribution of what the verifier sees if the client's vector is v. All other vectors are known.
// Their units shift every count by a constant, which changes nothing, so they are left out.
func (e exact) law(blanket stattest.Law, v []float64) stattest.Law {
	law := stattest.Law{}
	for _, o := range e.outcomes(v) {
		key := make([]byte, e.kinds())
		for kind, n := range e.sent(o.x) {
			key[kind] = byte(n)
		}
		law.Mix(o.p, blanket.Add(stattest.Law{string(key): 1}))
	}
	return law
}

// leak returns the largest δ(ε) over all ordered pairs of the given vectors, by enumeration of all counts.
func (e exact) leak(vectors [][]float64, eps float64) (worst float64) {
	blanket := stattest.NoMessage(e.kinds())
	for kind := range e.kinds() {
		one := stattest.Law{}
		for n, p := range e.noise(kind) {
			key := make([]byte, e.kinds())
			key[kind] = byte(n)
			one[string(key)] = p
		}
		blanket = blanket.Add(one)
	}
	var laws []stattest.Law
	for _, v := range vectors {
		laws = append(laws, e.law(blanket, v))
	}
	for i := range laws {
		for j := range laws {
			worst = max(worst, stattest.HockeyStick(laws[i], laws[j], eps))
		}
	}
	return worst
}

// pairLeak returns δ(ε) for two vectors whose entries are whole numbers of units. Their counters are independent, so
// their privacy losses add up. It rounds each loss up to a thousandth.
func (e exact) pairLeak(v, w []float64, eps float64) (delta float64) {
	a, b := e.sent(e.outcomes(v)[0].x), e.sent(e.outcomes(w)[0].x)
	for kind := range a {
		a[kind] -= b[kind]
	}
	return composed(a, e.noise, eps)
}

// composed returns δ(ε) for independent counters with the given shifts.
func composed(shifts []int, noise func(kind int) []float64, eps float64) (delta float64) {
	const half = 40_000
	total := make([]float64, 2*half+1)
	total[half] = 1
	for kind, shift := range shifts {
		pmf := noise(kind)
		if shift == 0 {
			continue
		}
		next := make([]float64, len(total))
		for z, p := range pmf {
			if z+shift < 0 || z+shift >= len(pmf) || p < 1e-12 {
				continue // the loss is infinite, or counted as infinite because it is rare
			}
			loss := int(math.Ceil(1000 * math.Log(p/pmf[z+shift])))
			for i := max(0, -loss); i < min(len(total), len(total)-loss); i++ {
				next[i+loss] += p * total[i]
			}
		}
		total = next
	}
	infinite := 1.0
	for i, p := range total {
		infinite -= p
		delta += p * max(0, -math.Expm1(eps-float64(i-half)/1000))
	}
	return delta + infinite
}

// corners returns vectors of one or two coordinates: the extremes of both norms, and vectors whose entries are between
// whole units.
func corners(d int) (out [][]float64) {
	if d == 1 {
		return [][]float64{{-1}, {-0.7}, {-0.2}, {0}, {0.5}, {0.9}, {1}}
	}
	r := math.Sqrt(0.5)
	return [][]float64{{1, 0}, {-1, 0}, {0, 1}, {r, r}, {-r, -r}, {r, -r}, {0, 0}, {0.3, -0.2}}
}

// Enumerates the counters of tiny mechanisms from their parameters. They must leak no more than the claim. They must
// leak more with less noise, without noise on the messages of one sign, or without noise on the null message.
func TestShuffledCountersArePrivate(t *testing.T) {
	for _, c := range []struct {
		users, units, dim uint64
		padding           task.Padding
		eps, delta        float64
	}{
		{1, 1, 1, "full", 1, 0.05}, {2, 2, 1, "full", 2, 0.05}, {3, 3, 1, "full", 3, 0.02}, {6, 4, 1, "full", 1.5, 0.1},
		{4, 1, 2, "full", 3, 0.3}, {6, 1, 2, "full", 1.5, 0.3}, {2, 1, 1, "none", 3, 0.3}, {6, 1, 1, "none", 4, 0.2},
	} {
		t.Run(fmt.Sprintf("n=%d s=%d d=%d %s", c.users, c.units, c.dim, c.padding), func(t *testing.T) {
			draft, _ := open(t, planner.Query{Dim: c.dim, Batch: c.users, Honest: 1, Epsilon: c.eps, Delta: c.delta,
				Padding: c.padding, Params: planner.Params{"units": c.units}})
			good, vectors := of(t, draft, int(c.users)), corners(int(c.dim))
			t.Logf("%+v", good)
			worst := good.leak(vectors, c.eps)
			t.Logf("δ = %.4g of %g", worst, c.delta)
			require.LessOrEqual(t, worst, c.delta*(1+1e-9))
			require.Greater(t, worst, c.delta/50, "the bound wastes noise")

			weak := good
			weak.trials /= 3
			require.Greater(t, weak.leak(vectors, c.eps), c.delta, "a third of the noise")
			weak = good
			weak.withoutSecond = true
			require.Greater(t, weak.leak(vectors, c.eps), c.delta, "no noise on (l, -)")
			if c.padding == task.PaddingNone {
				weak = good
				weak.withoutNullNoise = true
				require.Greater(t, weak.leak(vectors, c.eps), c.delta, "no noise on the null message")
			}
			for i, p := range draft.Params {
				if p.Key == "q" {
					draft.Params[i].Value = randomizer.NewRational(p.Value.Num, 2*p.Value.Den)
				}
			}
			m, err := new(vectormean.Protocol).Open(draft)
			require.NoError(t, err)
			require.ErrorContains(t, m.CheckClaim(), "claim.delta")
		})
	}
}

// Checks three and four coordinates and up to 6 clients, by exact composition. The worst pairs of whole vectors are
// opposite ones and those without a common coordinate. They must meet the claim. Noise that hides only a pair of
// vectors in one coordinate must not suffice for all pairs.
func TestManyCountersTogetherArePrivate(t *testing.T) {
	for _, c := range []struct{ users, dim uint64 }{{1, 4}, {4, 3}, {6, 4}} {
		draft, _ := open(t, planner.Query{Dim: c.dim, Batch: c.users, Honest: 1, Epsilon: 2, Delta: 0.05,
			Params: planner.Params{"units": 2}})
		good := of(t, draft, int(c.users))
		flat, spike, other := make([]float64, c.dim), make([]float64, c.dim), make([]float64, c.dim)
		for l := range flat {
			flat[l] = 0.5
		}
		spike[0], other[1] = 1, 1
		worst := func(e exact) (most float64) {
			for _, pair := range [][2][]float64{{flat, negative(flat)}, {spike, negative(spike)}, {spike, other},
				{flat, spike}, {spike, flat}} {
				most = max(most, e.pairLeak(pair[0], pair[1], 2))
			}
			return most
		}
		t.Logf("N = %d, n = %d: %+v: δ = %.4g of 0.05", c.dim, c.users, good, worst(good))
		require.LessOrEqual(t, worst(good), 0.05)
		require.Greater(t, worst(good), 0.05/30)
		weak := good
		for weak.pairLeak(flat, spike, 2) <= 0.05 {
			weak.trials--
		}
		weak.trials++ // enough for this pair, but not for opposite ones
		require.Greater(t, worst(weak), 0.05)
	}
}

// With a lane per coefficient, counters that all move from one end to the other, some up and some down, must meet the
// claim by exact composition. With a third of the noise they must break it.
func TestLanesTogetherArePrivate(t *testing.T) {
	for _, c := range []struct {
		users, dim, units uint64
		padding           task.Padding
	}{{1, 1, 1, "full"}, {4, 2, 1, "full"}, {6, 2, 2, "full"}, {5, 4, 3, "full"}, {3, 1, 1, "none"},
		{6, 2, 2, "none"}} {
		lanes := uint64(2)
		for lanes < 2*c.dim {
			lanes *= 2
		}
		draft, _ := open(t, planner.Query{Dim: c.dim, Batch: c.users, Honest: 1, Epsilon: 2, Delta: 0.05, Lanes: lanes,
			Padding: c.padding, Params: planner.Params{"units": c.units}})
		e := of(t, draft, int(c.users))
		worst := func(trials, trials0 int) (most float64) {
			for _, up := range []int{0, 1, int(lanes) / 2, int(lanes)} {
				var shifts []int
				var laws [][]float64
				for lane := range int(lanes) {
					shift := int(c.units)
					if lane >= up {
						shift = -shift
					}
					shifts, laws = append(shifts, shift), append(laws, binomial(trials, e.q))
					if trials0 > 0 {
						shifts, laws = append(shifts, -shift), append(laws, binomial(trials0, e.q0))
					}
				}
				most = max(most, composed(shifts, func(kind int) []float64 { return laws[kind] }, 2))
			}
			return most
		}
		t.Logf("%+v: %+v: δ = %.4g of 0.05", c, draft.Params, worst(e.trials, e.trials0))
		require.LessOrEqual(t, worst(e.trials, e.trials0), 0.05)
		require.Greater(t, worst(e.trials, e.trials0), 0.05/50)
		require.Greater(t, worst(e.trials/3, e.trials0/3), 0.05)
	}
}

func negative(v []float64) []float64 {
	out := make([]float64, len(v))
	for l := range v {
		out[l] = -v[l]
	}
	return out
}

// Padding none needs messages for zeros. Covers in their place would keep the number of slots equal for every vector,
// but the verifier counts covers, and so would learn the number of ones.
func TestCountingCoversWouldShowTheVector(t *testing.T) {
	const kinds = 3 // two counters and covers
	report := func(x []uint64) stattest.Law {
		law := stattest.NoMessage(kinds)
		for i, bit := range x {
			if bit == 1 {
				law = law.Add(stattest.OneMessage(kinds, i))
			} else {
				law = law.Add(stattest.OneMessage(kinds, 2))
			}
			for range 8 {
				trial := stattest.Law{}
				trial.Mix(0.5, stattest.NoMessage(kinds))
				trial.Mix(0.5, stattest.OneMessage(kinds, i))
				law = law.Add(trial)
			}
		}
		return law
	}
	require.InDelta(t, 1, stattest.HockeyStick(report([]uint64{1, 1}), report([]uint64{0, 1}), 10), 1e-9)
}

// TestRandomizerFollowsItsLaw compares the mean and variance of all counters over 4,000 clients with those of Bin(m, q)
// and the rounded units. Each of 27 checks allows 6 standard deviations, which all together fail by chance once in 10⁷
// runs.
func TestRandomizerFollowsItsLaw(t *testing.T) {
	const draws = 4000
	for _, padding := range []task.Padding{task.PaddingFull, task.PaddingNone} {
		draft, m := open(t, planner.Query{Dim: 3, Batch: 100, Honest: 1, Epsilon: 4, Delta: 1e-6, Padding: padding,
			Params: planner.Params{"units": 4}})
		e := of(t, draft, 1)
		kinds := e.kinds()
		sums, squares := make([]float64, kinds), make([]float64, kinds)
		src := randomizer.NewSource()
		value := []float64{0.125, -0.3, 0.7} // ½, 1.2, 2.8 units
		for range draws {
			lanes, err := m.Randomize(src, value)
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
			mean, variance := float64(e.trials)*e.q, float64(e.trials)*e.q*(1-e.q)
			if kind == 2*e.size {
				mean, variance = float64(e.trials0)*e.q0, float64(e.trials0)*e.q0*(1-e.q0)
			}
			for _, o := range e.outcomes(value) {
				mean += o.p * float64(e.sent(o.x)[kind])
			}
			for _, o := range e.outcomes(value) {
				variance += o.p * math.Pow(float64(e.sent(o.x)[kind]), 2)
			}
			units := mean - float64(e.trials)*e.q
			if kind == 2*e.size {
				units = mean - float64(e.trials0)*e.q0
			}
			variance -= units * units
			got := sums[kind] / draws
			require.InDelta(t, mean, got, 6*math.Sqrt(variance/draws), "%s, kind %d", padding, kind)
			require.InDelta(t, variance, squares[kind]/draws-got*got, 6*variance*math.Sqrt(3.0/draws), "%s, kind %d",
				padding, kind)
		}
	}
}

// Under padding none the units and null messages add up to A for every vector. Only noise may change the number of a
// client's messages.
func TestNumberOfMessagesDoesNotDependOnTheVector(t *testing.T) {
	for _, lanes := range []uint64{1, 8} {
		draft, m := open(t, planner.Query{Dim: 4, Batch: 100, Honest: 1, Epsilon: 4, Delta: 1e-6,
			Padding: task.PaddingNone, Lanes: lanes, Params: planner.Params{"units": 5}})
		var sent []int
		for _, v := range [][]float64{{0, 0, 0, 0}, {1, 0, 0, 0}, {0.5, -0.5, 0.5, 0.5}, {0.1, 0.33, 0, -0.2}} {
			got, err := protocols.CapabilitiesOf(m).Attack(randomizer.NewSource(), protocols.AttackDropNoise, 0, v)
			require.NoError(t, err)
			require.Len(t, got, int(draft.Slots.Lanes))
			for lane := range got {
				sent = append(sent, len(got[lane]))
			}
		}
		for _, n := range sent {
			require.Equal(t, sent[0], n)
			require.GreaterOrEqual(t, n, 5)
		}
	}
}

// central is the standard error of a sum by the Gaussian mechanism for vectors of norm at most 1, at ε = 1, δ = 10⁻⁶:
// distance 2 divided by μ, with δ = Φ(−1/μ + μ/2) − e·Φ(−1/μ − μ/2).
const central = 2 / 0.2367044

// The error must be 1.13 to 1.15 times the central Gaussian mechanism's. A smaller one would mean too little noise:
// section 6 of docs/proofs/vectormean.md has the limit, and the bound's slack comes on top. The slots must be no more
// than those of an earlier design, which sent bits of Kashin coefficients and had 2.3 to 2.65 times that error.
func TestNearTheCentralGaussian(t *testing.T) {
	for _, c := range []struct {
		users, dim, slots uint64
		ratio             float64
	}{{10_000, 16, 224, 1.147}, {10_000, 64, 896, 1.132}, {100_000, 256, 2560, 1.129}} {
		draft, m := open(t, planner.Query{Dim: c.dim, Batch: c.users, Honest: 1, Epsilon: 1, Delta: 1e-6})
		ratio := math.Sqrt(m.Worst().Variance*float64(c.users)) / central
		t.Logf("n = %d, d = %d: %.4f times the central Gaussian's error in %d slots", c.users, c.dim, ratio,
			draft.Slots.PerLane)
		require.InDelta(t, c.ratio, ratio, .003)
		require.LessOrEqual(t, draft.Slots.PerLane, c.slots)
	}
}

// No number of slots or messages in the table of costs (d = 16, 90 % honest) may exceed that of an earlier design, bits
// of Kashin coefficients.
func TestCostsNoMoreThanBits(t *testing.T) {
	for _, c := range []struct {
		users, slots uint64
		messages     float64
	}{{1e3, 128, 127.3}, {1e4, 128, 105.4}, {1e5, 256, 153.4}, {1e6, 320, 165.1}, {1e7, 384, 128.2}} {
		q := planner.Query{Dim: 16, Batch: c.users, Honest: 0.9, Epsilon: 1, Delta: 1e-6}
		draft, _ := open(t, q)
		require.LessOrEqual(t, draft.Slots.PerLane, c.slots)
		q.Padding = task.PaddingNone
		draft, _ = open(t, q)
		e := of(t, draft, 1)
		require.LessOrEqual(t, float64(e.most)+32*float64(e.trials)*e.q+float64(e.trials0)*e.q0, c.messages, "n = %d",
			c.users)
	}
}

func TestWorstValueHasTheWorstVariance(t *testing.T) {
	for _, q := range []planner.Query{{Lanes: 1, Params: planner.Params{"units": 1}}, {Lanes: 1}, {Lanes: 8}} {
		q.Dim, q.Batch, q.Honest, q.Epsilon, q.Delta = 3, 1000, 0.9, 1, 1e-6
		_, m := open(t, q)
		_, at, err := m.Exact(m.Worst().Value)
		require.NoError(t, err)
		require.InEpsilon(t, m.Worst().Variance, at[0], 1e-9)
		for i := range 500 {
			_, v, err := m.Exact([]float64{math.Sin(float64(i)) / 2, math.Cos(float64(i)) / 2, 0.3})
			require.NoError(t, err)
			require.LessOrEqual(t, v[0], m.Worst().Variance*(1+1e-12))
		}
	}
}

func TestBadParametersNameTheField(t *testing.T) {
	for name, c := range map[string]struct {
		query planner.Query
		field string
		want  string
	}{
		"no units": {planner.Query{Dim: 4, Params: planner.Params{"units": 0}}, "params.units", "1 to 4096"},
		"too many units": {planner.Query{Dim: 4, Params: planner.Params{"units": 4097}}, "params.units",
			"1 to 4096"},
		"kashin below 1": {planner.Query{Dim: 4, Lanes: 8, Params: planner.Params{"kashin": 0}}, "params.kashin",
			"from 1 to"},
		"kashin too large": {planner.Query{Dim: 4, Lanes: 8, Params: planner.Params{"kashin": 3}}, "params.kashin",
			"2.8284"},
		"dimension too large": {planner.Query{Dim: 8193}, "input.dim", "1 to 8192"},
		"too few users":       {planner.Query{Dim: 1000, Batch: 100}, "users", "at least"},
		"rule":                {planner.Query{Dim: 4, Rule: "revealed"}, "rule", vectormean.Rule},
		"delta too small":     {planner.Query{Dim: 4, Delta: 3e-18}, "claim.delta", "at least 2^-58"},
		"unknown parameter":   {planner.Query{Dim: 4, Params: planner.Params{"r": 1}}, "params.r", ""},
	} {
		t.Run(name, func(t *testing.T) {
			q := c.query
			q.Name, q.Query, q.Protocol, q.Honest, q.Epsilon = "test", task.VectorMean, vectormean.Name, 1, 1
			if q.Delta == 0 {
				q.Delta = 1e-6
			}
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
	set := func(key string, v randomizer.Rational) func(*task.Task) {
		return func(d *task.Task) {
			for i := range d.Params {
				if d.Params[i].Key == key {
					d.Params[i].Value = v
				}
			}
		}
	}
	for name, c := range map[string]struct {
		change func(*task.Task)
		field  string
	}{
		"no noise":        {set("m", randomizer.NewRational(0, 1)), "params.m"},
		"no null noise":   {set("m0", randomizer.NewRational(0, 1)), "params.m0"},
		"certain noise":   {set("q", randomizer.NewRational(1, 1)), "params.q"},
		"q not dyadic":    {set("q0", randomizer.NewRational(1, 3)), "params.q0"},
		"other units":     {set("units", randomizer.NewRational(20, 1)), "slots"},
		"a slot too few":  {func(d *task.Task) { d.Slots.PerLane-- }, "slots"},
		"padding changed": {func(d *task.Task) { d.Slots.Padding = task.PaddingFull }, "params"},
		"odd lanes":       {func(d *task.Task) { d.Slots.Lanes = 3 }, "params.seed"},
		"units missing":   {func(d *task.Task) { d.Params = d.Params[:4] }, "params.units"},
		"one too many":    {func(d *task.Task) { d.Params = append(d.Params, protocols.Whole("v", 1)) }, "params"},
	} {
		t.Run(name, func(t *testing.T) {
			draft, _ := open(t, planner.Query{Dim: 4, Batch: 1000, Honest: 1, Epsilon: 1, Delta: 1e-6,
				Padding: task.PaddingNone})
			c.change(draft)
			_, err := registry.Open(draft)
			var field *invalid.FieldError
			require.ErrorAs(t, err, &field)
			require.Equal(t, c.field, field.Field)
		})
	}
}

// Calibration succeeds close to the least δ of a claim, under both paddings and with a lane per coefficient.
func TestLeastDelta(t *testing.T) {
	for _, q := range []planner.Query{{Padding: task.PaddingNone}, {Padding: task.PaddingFull}, {Lanes: 8}} {
		q.Dim, q.Batch, q.Honest, q.Epsilon, q.Delta = 4, 1000, 1, 1, 3.5e-18
		open(t, q)
	}
}

// reach returns how far the attack max moves the total of one client whose vector is 0, without the noise of others.
// norm is the distance, first the change of the first entry.
func reach(t *testing.T, m protocols.Mechanism, dim uint64) (norm, first float64) {
	t.Helper()
	lanes, err := protocols.CapabilitiesOf(m).Attack(randomizer.NewSource(), protocols.AttackMax, 0,
		make([]float64, dim))
	require.NoError(t, err)
	attacked := m.Aggregate()
	for lane, messages := range lanes {
		for _, message := range messages {
			require.NoError(t, attacked.Add(lane, message))
		}
	}
	attacked.AddUsers(1)
	for _, after := range attacked.Total() {
		norm = math.Hypot(norm, after)
	}
	return norm, attacked.Total()[0]
}

// Checks how far one malicious client among 2,000 moves the total. With one lane it is as many units as it has slots,
// at least √d in norm. With a lane per coefficient it must be κ(1+m/h) or, because q is below ½, slightly more.
func TestOneMaliciousClient(t *testing.T) {
	for _, dim := range []uint64{4, 16, 64} {
		for _, padding := range []task.Padding{task.PaddingFull, task.PaddingNone} {
			q := planner.Query{Dim: dim, Batch: 2000, Honest: 1, Epsilon: 4, Delta: 1e-6, Padding: padding,
				Params: planner.Params{"units": 3}}
			draft, m := open(t, q)
			one, _ := reach(t, m, dim)
			require.InDelta(t, float64(draft.Slots.PerLane)/3, one, 1e-9)
			require.GreaterOrEqual(t, one, math.Sqrt(float64(dim)))

			q.Lanes = 2 * dim
			draft, m = open(t, q)
			kashin, _ := draft.Param("kashin")
			e := of(t, draft, 1)
			least, most := 1+float64(e.trials)/3, 1+2*float64(e.trials)*(1-e.q)/3
			if padding == task.PaddingNone {
				least = 1 + 2*float64(e.trials)/3
				most = least
			}
			each, first := reach(t, m, dim)
			require.GreaterOrEqual(t, first, kashin.Float64()*least*(1-1e-9))
			require.LessOrEqual(t, each, kashin.Float64()*most*(1+1e-9))
		}
	}
}

// Checks a lane per coefficient. A client must have no more slots per lane than with an earlier design of bits, which
// took 7, 7 and 4. It must reach no further than a sixth of the noise of all clients. The error must be at most 1.17
// times κ = 11/5 times the central Gaussian mechanism's, whose μ is 0.838 at ε = 4, δ = 10⁻⁶.
func TestReachWithLanes(t *testing.T) {
	for _, c := range []struct {
		dim, slots uint64
		reach      float64
	}{{16, 7, 4.1}, {64, 7, 5.8}, {256, 4, 9.4}} {
		draft, m := open(t, planner.Query{Dim: c.dim, Batch: 1000, Honest: 1, Epsilon: 4, Delta: 1e-6,
			Lanes: 2 * c.dim})
		each := math.Sqrt(1000 * m.Worst().Variance)
		noise := each * math.Sqrt(float64(c.dim))
		got, _ := reach(t, m, c.dim)
		t.Logf("d = %d: %d slots, reach %.2f, noise %.1f, error %.3f central ones", c.dim, draft.Slots.PerLane, got,
			noise, each/(2/0.838))
		require.LessOrEqual(t, draft.Slots.PerLane, c.slots)
		require.LessOrEqual(t, got, c.reach)
		require.LessOrEqual(t, got, noise/6)
		require.LessOrEqual(t, each, 1.17*2.2*2/0.838)
	}
}

// TestFastPathHasTheSlowPathsMoments checks means and variances of 2,000 fast estimates within 5.7 standard errors of
// the prediction, and their number of messages within 1 % of the slow path's.
func TestFastPathHasTheSlowPathsMoments(t *testing.T) {
	for _, padding := range []task.Padding{task.PaddingFull, task.PaddingNone} {
		draft, m := open(t, planner.Query{Dim: 2, Batch: 50, Honest: 1, Epsilon: 6, Delta: 1e-4, Padding: padding})
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

// A task may ask a client to check anything. The client must refuse the claim without a panic, much memory or time.
func TestHostileNoiseIsRefusedQuickly(t *testing.T) {
	for name, noise := range map[string]struct {
		m, q randomizer.Rational
		min  uint64
	}{
		"more than fits in memory": {randomizer.NewRational(16000, 1), randomizer.NewRational(1, 2), 60_000},
		"next to none":             {randomizer.NewRational(1, 1), randomizer.NewRational(1, 1<<62), 60_000},
		"nearly certain":           {randomizer.NewRational(2, 1), randomizer.NewRational(1<<52-1, 1<<52), 60_000},
		"one client":               {randomizer.NewRational(1, 1), randomizer.NewRational(1, 2), 1},
	} {
		t.Run(name, func(t *testing.T) {
			draft, _ := open(t, planner.Query{Dim: 2, Batch: 60_000, Honest: 1, Epsilon: 1, Delta: 1e-6,
				Params: planner.Params{"units": 2}})
			draft.Slots.PerLane += 4 * uint64(noise.m.Num-draft.Params[0].Value.Num)
			draft.Params[0].Value, draft.Params[1].Value = noise.m, noise.q
			draft.Batch.Min = noise.min
			m, err := new(vectormean.Protocol).Open(draft)
			require.NoError(t, err)
			require.ErrorContains(t, m.CheckClaim(), "claim.delta")
		})
	}
}
