package vectormean

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Compares the law with the rule's curve at ε in [−8, 8]. The rule's curve is what its bounds at all ε prove together.
// The law must nowhere be below it. For δ in [1e-12, .1] it must be at most 1 % in ε above it, or a few thousandths in
// δ where the curve is flat. Each bound is the least of several, so bounds are not convex, and grids differ by a few
// thousandths in δ.
func TestLawIsItsRuleAtEveryEpsilon(t *testing.T) {
	for _, c := range []struct {
		dim, lanes, users uint64
		padding           task.Padding
		eps, delta        string
	}{
		{2, 1, 100, task.PaddingFull, "4", "1e-6"}, {2, 4, 100, task.PaddingFull, "4", "1e-6"},
		{16, 1, 10_000, task.PaddingFull, "1", "1e-6"}, {16, 1, 10_000, task.PaddingNone, "1", "1e-6"},
		{4, 8, 2000, task.PaddingNone, "2", "1e-9"}, {64, 1, 100_000, task.PaddingFull, "0.5", "1e-8"},
	} {
		draft := &task.Task{
			Name: "test", Query: task.VectorMean, Protocol: Name, Rule: Rule, KEM: task.KEMX25519,
			Input: task.Input{Lo: randomizer.NewRational(-1, 1), Hi: randomizer.NewRational(1, 1), Bins: c.dim},
			Claim: task.NewClaim(c.eps, c.delta), Clients: task.Clients{Kind: task.ClientAddress, Quota: 1},
			Batch: task.Batch{Size: c.users, Honest: randomizer.NewRational(1, 1), Min: c.users},
			Slots: task.Slots{Padding: c.padding, Lanes: c.lanes},
		}
		require.NoError(t, new(Protocol).Calibrate(draft))
		opened, err := new(Protocol).Open(draft)
		require.NoError(t, err)
		m := opened.(*Mechanism)
		law, err := m.Law()
		require.NoError(t, err)
		bounds, least := m.curve(), 1.0
		var values []stattest.Point
		for eps := 0.0; eps <= 8.2; eps += .002 * min(draft.Claim.Epsilon.Value(), 2) {
			least = min(least, bounds.delta(eps))
			values = append(values, stattest.Point{Epsilon: eps, Delta: least})
		}
		rule, near := stattest.Proven(values), 0
		for eps := -8.0; eps <= 8; eps += .03 {
			delta := rule(eps)
			require.GreaterOrEqual(t, law.Delta(eps), delta*(1-3e-3), "%v at %v", c, eps)
			if eps > 0 && delta <= .1 && delta >= 1e-12 {
				near++
				require.LessOrEqual(t, law.Delta(1.01*eps), delta*1.003, "%v at %v", c, eps)
			}
		}
		require.Greater(t, near, 15)
		require.LessOrEqual(t, bounds.delta(math.Nextafter(draft.Claim.Epsilon.Value(), 0)),
			draft.Claim.Delta.Value()*1.01)
	}
}

// calibrated returns the calibrated mechanism of a task under padding none, in which all clients are honest.
func calibrated(t *testing.T, dim, users uint64, claim task.Claim, units int64) *Mechanism {
	t.Helper()
	draft := &task.Task{
		Name: "test", Query: task.VectorMean, Protocol: Name, Rule: Rule, KEM: task.KEMX25519, Claim: claim,
		Input:   task.Input{Lo: randomizer.NewRational(-1, 1), Hi: randomizer.NewRational(1, 1), Bins: dim},
		Clients: task.Clients{Kind: task.ClientAddress, Quota: 1},
		Batch:   task.Batch{Size: users, Honest: randomizer.NewRational(1, 1), Min: users},
		Slots:   task.Slots{Padding: task.PaddingNone, Lanes: 1},
		Params:  []task.Param{{Key: "units", Value: randomizer.NewRational(units, 1)}},
	}
	require.NoError(t, new(Protocol).Calibrate(draft))
	opened, err := new(Protocol).Open(draft)
	require.NoError(t, err)
	return opened.(*Mechanism)
}

// Compares the bound with vectors whose loss is known. A flat vector has entries y+f units with d·f whole. Whatever the
// draws, d·f of them are rounded up, so ‖x‖² = d(y² + (2y+1)f) = s² + d·f(1−f) is certain. Its negative shares no
// counter with it. Given both roundings, the pair is the Gaussian pair G_μ in the limit, with μ² = 2‖x‖²/λ, λ being a
// counter's variance. Theorem 2 of docs/proofs/vectormean.md must be above that, and close to it for many clients. The
// test computes λ from the trials, and takes only δ from the curve.
func TestAboveFlatVectorsOfCertainNorm(t *testing.T) {
	for _, c := range []struct {
		size, users, trials uint64
		units, most         float64
	}{{16, 10_000, 3, 14, 1.3}, {64, 10_000, 4, 20, 1.7}, {256, 100_000, 3, 72, 1.1}} { // units with f = ½
		m := &Mechanism{task: &task.Task{Batch: task.Batch{Min: c.users}}, size: int(c.size), units: c.units, lanes: 1,
			noise: noise{c.trials, randomizer.NewRational(1, 2)}}
		_, f := math.Modf(c.units / math.Sqrt(float64(c.size)))
		lambda := float64(c.users*c.trials) / 4
		mu := math.Sqrt(2 * (c.units*c.units + float64(c.size)*f*(1-f)) / lambda)
		curve, near := m.curve(), 0
		for eps := .5; eps < 2; eps += .05 {
			delta := (math.Erfc((eps/mu-mu/2)/math.Sqrt2) - math.Exp(eps)*math.Erfc((eps/mu+mu/2)/math.Sqrt2)) / 2
			if delta > 1e-7 && delta < 1e-2 {
				near++
				require.GreaterOrEqual(t, curve.delta(eps), delta, "%+v at %v", c, eps)
				require.LessOrEqual(t, curve.delta(eps), c.most*delta, "%+v at %v", c, eps)
			}
		}
		require.Greater(t, near, 5)
	}
}

// The missed probability at every level is that of all 2d counters plus that of the null messages.
func TestMissedIsThatOfAllCounters(t *testing.T) {
	m := calibrated(t, 3, 200, task.NewClaim("2", "1e-6"), 4)
	counter := compose.NewBinomial(200*m.noise.trials, m.noise.chance.Float64())
	null := compose.NewBinomial(200*m.null.trials, m.null.chance.Float64())
	levels := m.curve().levels
	require.Greater(t, len(levels), 20)
	for k, miss := 0, .25; k < quarters; k, miss = k+1, miss/4 {
		one := counter.Rates(4, []float64{miss / 6})[0]
		other := null.Rates(7, []float64{miss})[0] // ⌈4√3⌉ null messages.
		want := 6*one.Missed + other.Missed
		require.Greater(t, one.Missed*6, want/10, "both count")
		require.Greater(t, other.Missed, want/10, "both count")
		require.InEpsilon(t, want, levels[k].missed, 1e-9)
		require.InEpsilon(t, one.Eta, levels[k].rate, 1e-12)
		require.InEpsilon(t, other.Eta, levels[k].null, 1e-12)
	}
}

// TestOneEntrySpendsItsEpsilon checks d = 1, where a client's 1 and −1 differ by s units in each of two counters. By an
// enumeration of both counters, the claim must hold and spend at least .85 of its ε. Units must be whole, so that no
// rounding moves a client further.
func TestOneEntrySpendsItsEpsilon(t *testing.T) {
	for _, c := range []struct {
		users      uint64
		eps, delta string
		padding    task.Padding
	}{
		{100, "1", "1e-6", task.PaddingFull}, {1000, "1", "1e-6", task.PaddingFull},
		{10_000, "0.5", "1e-8", task.PaddingFull}, {1000, "4", "1e-6", task.PaddingFull},
	} {
		draft := &task.Task{
			Name: "test", Query: task.VectorMean, Protocol: Name, Rule: Rule, KEM: task.KEMX25519,
			Input:   task.Input{Lo: randomizer.NewRational(-1, 1), Hi: randomizer.NewRational(1, 1), Bins: 1},
			Claim:   task.NewClaim(c.eps, c.delta),
			Clients: task.Clients{Kind: task.ClientAddress, Quota: 1},
			Batch:   task.Batch{Size: c.users, Honest: randomizer.NewRational(1, 1), Min: c.users},
			Slots:   task.Slots{Padding: c.padding, Lanes: 1},
		}
		require.NoError(t, new(Protocol).Calibrate(draft))
		opened, err := new(Protocol).Open(draft)
		require.NoError(t, err)
		m := opened.(*Mechanism)
		require.Equal(t, math.Trunc(m.units), m.units, "%+v", c)
		require.Equal(t, uint64(m.units), m.most(), "%+v", c)
		eps, delta := draft.Claim.Epsilon.Value(), draft.Claim.Delta.Value()
		exact := oneEntry(c.users*m.noise.trials, m.noise.chance.Float64(), int(m.units))
		require.LessOrEqual(t, exact(eps), delta, "%+v", c)
		require.Greater(t, exact(.85*eps), delta, "%+v: %v units, %d trials", c, m.units, m.noise.trials)
	}
}

// oneEntry returns δ(ε) for telling the pair (Bin(n, q)+s, Bin(n, q)) from the same pair exchanged.
func oneEntry(n uint64, q float64, s int) func(eps float64) float64 {
	mass := func(y int) float64 {
		if y < 0 || uint64(y) > n {
			return 0
		}
		all, _ := math.Lgamma(float64(n + 1))
		in, _ := math.Lgamma(float64(y + 1))
		out, _ := math.Lgamma(float64(n - uint64(y) + 1))
		return math.Exp(all - in - out + float64(y)*math.Log(q) + (float64(n)-float64(y))*math.Log1p(-q))
	}
	mean, reach := float64(n)*q, 9*math.Sqrt(float64(n)*q*(1-q))+float64(s)
	low, high := int(math.Max(0, mean-reach)), int(math.Min(float64(n), mean+reach))+s
	var still, moved []float64
	for y := low; y <= high; y++ {
		still, moved = append(still, mass(y)), append(moved, mass(y-s))
	}
	return func(eps float64) (sum float64) {
		e := math.Exp(eps)
		for i := range still {
			for j := range still {
				sum += max(0, moved[i]*still[j]-e*still[i]*moved[j])
			}
		}
		return sum
	}
}
