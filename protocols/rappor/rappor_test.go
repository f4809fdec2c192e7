package rappor_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/rappor"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// distribution is the probability distribution of the shuffled messages: the counts of the k indices, one byte each.
type distribution map[string]float64

// client adds a client that holds level x and flips each of its k bits with probability f. If limit ≥ 0, the client
// makes at most limit flips, as the slots require.
func (d distribution) client(k, x int, f float64, limit int) distribution {
	reports, total := map[string]float64{}, 0.0
	for flips := range 1 << k {
		bits, p, count := make([]byte, k), 1.0, 0
		for j := range k {
			flipped := flips >> j & 1
			count += flipped
			p *= []float64{1 - f, f}[flipped]
			bits[j] = byte(flipped)
			if j+1 == x {
				bits[j] ^= 1
			}
		}
		if limit < 0 || count <= limit {
			reports[string(bits)] += p
			total += p
		}
	}
	out := distribution{}
	for counts, p := range d {
		for bits, q := range reports {
			sum := []byte(counts)
			for j := range sum {
				sum[j] += bits[j]
			}
			out[string(sum)] += p * q / total
		}
	}
	return out
}

// worstDelta returns the largest divergence Σ(P-e^ε·Q)₊ over all values of n clients. If zeros is true, all clients but
// one hold 0.
func worstDelta(n, k int, f, eps float64, limit int, zeros bool) (worst float64) {
	var others func(left, from int, d distribution)
	others = func(left, from int, d distribution) {
		if left > 0 {
			for x := from; x <= k && !(zeros && x > 0); x++ {
				others(left-1, x, d.client(k, x, f, limit))
			}
			return
		}
		for x := 0; x <= k; x++ {
			for y := 0; y <= k; y++ {
				p, q, delta := d.client(k, x, f, limit), d.client(k, y, f, limit), 0.0
				for counts, mass := range p {
					delta += max(mass-math.Exp(eps)*q[counts], 0)
				}
				worst = max(worst, delta)
			}
		}
	}
	others(n-1, 0, distribution{string(make([]byte, k)): 1})
	return worst
}

func draft(t *testing.T, q planner.Query) (*task.Task, protocols.Mechanism) {
	t.Helper()
	q.Name, q.Protocol = "test", rappor.Name
	if q.Query == "" {
		q.Query = task.Sum
	}
	if q.Hi == 0 {
		q.Hi = 1
	}
	d, err := planner.Draft(q)
	require.NoError(t, err)
	m, err := registry.Open(d)
	require.NoError(t, err)
	return d, m
}

// TestShuffledMechanismIsPrivate enumerates everything that up to 6 clients can hold and send. The calibrated
// mechanism, with the flips that fit its slots, must keep its claim. With half the flips, or calibrated for others that
// all hold 0, it must break the claim.
func TestShuffledMechanismIsPrivate(t *testing.T) {
	zeros, half, all := 0, 0, 0
	for _, target := range []struct{ eps, delta float64 }{{0.5, 0.05}, {1, 0.01}, {1, 0.1}, {2, 0.003}} {
		for _, c := range []struct{ n, k int }{{1, 2}, {2, 1}, {2, 3}, {3, 2}, {4, 1}, {4, 3}, {5, 2}, {6, 1}, {6, 2},
			{6, 3}} {
			name := fmt.Sprintf("%+v %+v", target, c)
			d, m := draft(t, planner.Query{Batch: uint64(c.n), Honest: 1, Epsilon: target.eps, Delta: target.delta,
				Params: planner.Params{"k": uint64(c.k)}})
			require.NoError(t, m.CheckClaim(), name)
			f, _ := d.Param("f")
			limit := -1
			if int(d.Slots.PerLane) < c.k {
				limit = int(d.Slots.PerLane) - 1
			}
			exact := worstDelta(c.n, c.k, f.Float64(), target.eps, limit, false)
			require.LessOrEqual(t, exact, target.delta*(1+1e-9), name)
			require.Greater(t, exact, target.delta*0.75, "the bound is nearly exact: %s", name)

			all++
			if worstDelta(c.n, c.k, f.Float64()/2, target.eps, -1, false) > target.delta {
				half++
			}
			lo, hi := 0.0, f.Float64()
			for range 14 { // find the f calibrated for others that all hold 0
				if mid := (lo + hi) / 2; worstDelta(c.n, c.k, mid, target.eps, -1, true) <= target.delta {
					hi = mid
				} else {
					lo = mid
				}
			}
			if c.n > 1 && worstDelta(c.n, c.k, hi, target.eps, -1, false) > target.delta*1.001 {
				zeros++
			}
		}
	}
	require.Equal(t, all, half, "half the flips are caught")
	t.Logf("caught all-zero others in %d of %d cases", zeros, all)
	require.Greater(t, zeros, all/2)
}

// TestBoundIsAboveEveryPair checks that, for 200 others, the bound is above the exact divergence for every u and w of
// [RuleOthers]. The divergence must be largest if all others hold the client's value. There the bound must be within 2
// % of n·f.
func TestBoundIsAboveEveryPair(t *testing.T) {
	const n = 200
	for _, c := range []struct{ eps, f float64 }{{1, 0.15}, {0.5, 0.25}, {2, 0.1}} {
		bound, err := rappor.FlipsDelta(c.eps, c.f, n+1, 2)
		require.NoError(t, err)
		worst, at := 0.0, [2]int{}
		for u := 0; u <= n; u += 4 {
			for w := 0; w <= u; w += 4 {
				if delta := rappor.Twice(c.eps, c.f, n, float64(u), float64(w)); delta > worst {
					worst, at = delta, [2]int{u, w}
				}
			}
		}
		require.Equal(t, [2]int{n, n}, at, "u and w of the worst case")
		require.LessOrEqual(t, worst, bound)
		less, err := rappor.FlipsDelta(c.eps, c.f*1.02, n+1, 2)
		require.NoError(t, err)
		require.LessOrEqual(t, less, worst)
	}
}

// TestFlipsAgainstExact checks figures at ε = 1, δ = 10⁻⁶. With n·f = 42.6, enough if the others hold 0, the true δ is
// 4.7e-6. n·f = 50.0 is necessary; the bound takes 50.3.
func TestFlipsAgainstExact(t *testing.T) {
	const n = 100_000
	require.InEpsilon(t, 4.72e-6, rappor.Twice(1, 42.6/n, n-1, n-1, n-1), 0.001)
	require.InEpsilon(t, 1.0e-6, rappor.Twice(1, 42.6/n, n-1, 0, n-1), 0.001, "all others at 0")
	require.InEpsilon(t, 0.9933e-6, rappor.Twice(1, 50.0/n, n-1, n-1, n-1), 0.001)
	delta, err := rappor.FlipsDelta(1, 50.3/n, n, 2)
	require.NoError(t, err)
	require.Less(t, delta, 1e-6)
}

// TestClaims checks that calibrated tasks prove their claims and no stronger ones.
func TestClaims(t *testing.T) {
	for _, n := range []uint64{1, 2, 10, 66, 1000, 100_000, 10_000_000} {
		for _, eps := range []float64{0.2, 1, 4} {
			d, m := draft(t, planner.Query{Batch: n, Honest: 1, Epsilon: eps, Delta: 1e-3 / float64(n),
				Params: planner.Params{"k": 5}})
			require.NoError(t, m.CheckClaim())
			for _, change := range []func(){
				func() { d.Params[0].Value = randomizer.NewRational(d.Params[0].Value.Num, 2*d.Params[0].Value.Den) },
				func() { d.Claim.Delta = task.NewDelta("1e-11") },
			} {
				f, delta := d.Params[0].Value, d.Claim.Delta
				change()
				weak, err := registry.Open(d)
				require.NoError(t, err)
				requireField(t, weak.CheckClaim(), "claim.delta")
				d.Params[0].Value, d.Claim.Delta = f, delta
			}
		}
	}
}

func requireField(t *testing.T, err error, field string) {
	t.Helper()
	var f *invalid.FieldError
	require.True(t, errors.As(err, &f), "%v", err)
	require.Equal(t, field, f.Field)
	require.NotEmpty(t, f.Want)
}

func column(n int, value func(i int) float64) [][]float64 {
	out := make([][]float64, n)
	for i := range out {
		out[i] = []float64{value(i)}
	}
	return out
}

// TestEstimatesHaveThePredictedErrors checks the mean of many estimates within 5 standard errors of the truth. Their
// variance must be within 4.9 standard deviations of the prediction. For near-normal estimates a sample variance has
// the relative deviation √(2/R).
func TestEstimatesHaveThePredictedErrors(t *testing.T) {
	const repeats = 6000
	for name, c := range map[string]struct {
		query  planner.Query
		values [][]float64
		fast   bool
	}{
		"sum of 0..5, h = 1": {planner.Query{Query: task.Sum, Hi: 5, Honest: 1, Params: planner.Params{"k": 5}},
			column(120, func(i int) float64 { return float64(i % 6) }), false},
		"mean, h = 0.8": {planner.Query{Query: task.Mean, Lo: -1, Hi: 1, Honest: 0.8},
			column(120, func(i int) float64 { return float64(i%11)/5 - 1 }), false},
		"count, h = 0.8": {planner.Query{Query: task.Count, Honest: 0.8},
			column(120, func(i int) float64 { return float64(i % 2) }), false},
		"worst, fast": {planner.Query{Query: task.Sum, Honest: 1, Params: planner.Params{"k": 4}},
			column(500, func(int) float64 { return 0.125 }), true},
		"sum of 0..20, slots": {planner.Query{Query: task.Sum, Hi: 20, Honest: 1, Params: planner.Params{"k": 20}},
			column(150, func(i int) float64 { return float64(i % 21) }), false},
	} {
		t.Run(name, func(t *testing.T) {
			q := c.query
			q.Batch, q.Epsilon, q.Delta = uint64(len(c.values)), 2, 1e-4
			d, m := draft(t, q)
			out, err := planner.Trial{Repeats: repeats, Fast: c.fast}.Run(d, m, c.values)
			require.NoError(t, err)
			require.InDelta(t, out.Truth[0], out.Estimate[0], 5*math.Sqrt(out.PredictedVariance[0]/repeats))
			require.InEpsilon(t, out.PredictedVariance[0], out.Variance[0], 4.9*math.Sqrt(2.1/repeats))
			require.Less(t, out.MessagesPerUser, float64(d.Slots.PerLane))
		})
	}
}

// TestSlotsHoldEveryReport checks that no client ever has more messages than slots, and that there are few slots.
func TestSlotsHoldEveryReport(t *testing.T) {
	d, m := draft(t, planner.Query{Batch: 10_000, Honest: 1, Hi: 64, Epsilon: 1, Delta: 1e-6,
		Params: planner.Params{"k": 64}})
	require.Less(t, d.Slots.PerLane, uint64(12))
	require.True(t, math.IsInf(m.Epsilon0(), 1))
	src, most := randomizer.NewSource(), 0
	for i := range 20_000 {
		lanes, err := m.Randomize(src, []float64{float64(i % 65)})
		require.NoError(t, err)
		most = max(most, len(lanes[0]))
	}
	require.LessOrEqual(t, most, int(d.Slots.PerLane))

	d.Slots.PerLane--
	fewer, err := registry.Open(d)
	require.NoError(t, err)
	requireField(t, fewer.CheckClaim(), "claim.delta")

	_, small := draft(t, planner.Query{Batch: 20, Honest: 1, Epsilon: 1, Delta: 1e-6, Params: planner.Params{"k": 2}})
	require.Less(t, small.Epsilon0(), 10.0, "with k slots nothing is cut, and every bit stays private by itself")
}

func TestAttacksAndMerge(t *testing.T) {
	d, m := draft(t, planner.Query{Batch: 1000, Honest: 1, Hi: 8, Epsilon: 1, Delta: 1e-6,
		Params: planner.Params{"k": 8}})
	zeros := column(1000, func(int) float64 { return 0 })
	f, _ := d.Param("f")
	out, err := planner.Trial{Repeats: 200, Malicious: 3, Attack: protocols.AttackMax, Fast: true}.Run(d, m, zeros)
	require.NoError(t, err)
	want := (3*8*float64(d.Slots.PerLane) - 3*f.Float64()*36) / (1 - 2*f.Float64())
	require.InDelta(t, want, out.Estimate[0], 6*math.Sqrt(out.PredictedVariance[0]/200))

	a, b := m.Aggregate(), m.Aggregate()
	require.NoError(t, a.Add(0, []byte{7}))
	require.NoError(t, b.Add(0, []byte{1}))
	require.Error(t, a.Add(0, []byte{8}))
	require.Error(t, a.Add(1, []byte{0}))
	a.AddUsers(2)
	b.AddUsers(3)
	require.NoError(t, a.Merge(b))
	require.EqualValues(t, 5, a.Reports())
	require.InDelta(t, (10-5*f.Float64()*36)/(1-2*f.Float64()), a.Total()[0], 1e-9)
	_, other := draft(t, planner.Query{Batch: 1000, Honest: 1, Epsilon: 1, Delta: 1e-6, Params: planner.Params{"k": 2}})
	require.ErrorIs(t, a.Merge(other.Aggregate()), protocols.ErrMerge)
}

func TestBadParametersAreNamed(t *testing.T) {
	for field, change := range map[string]func(*task.Task){
		"params":        func(d *task.Task) { d.Params = d.Params[1:] },
		"params.f":      func(d *task.Task) { d.Params[0].Value = randomizer.NewRational(1, 2) },
		"params.k":      func(d *task.Task) { d.Params[1].Value = randomizer.NewRational(0, 1) },
		"slots.perLane": func(d *task.Task) { d.Slots.PerLane = 100 },
		"slots":         func(d *task.Task) { d.Slots.Padding = task.PaddingNone },
		"query":         func(d *task.Task) { d.Query = task.Histogram },
		"rule":          func(d *task.Task) { d.Rule = "zeros" },
	} {
		d, _ := draft(t, planner.Query{Batch: 100, Honest: 1, Epsilon: 1, Delta: 1e-6, Params: planner.Params{"k": 6}})
		change(d)
		_, err := registry.Open(d)
		requireField(t, err, field)
	}
	for field, q := range map[string]planner.Query{
		"params.k":    {Batch: 1000, Epsilon: 1, Delta: 1e-8, Params: planner.Params{"k": 5000}},
		"claim.delta": {Batch: 1000, Epsilon: 1, Delta: 1e-13},
		"params.f":    {Batch: 100_000_000, Epsilon: 0.01, Delta: 1e-8},
		"epsilon":     {Batch: 3, Epsilon: 1e-7, Delta: 1e-9},
	} {
		q.Name, q.Protocol, q.Query, q.Hi, q.Honest = "test", rappor.Name, task.Mean, 1, 1
		_, err := planner.Draft(q)
		requireField(t, err, field)
	}
}

// TestFewSlotsForManyFlips checks that the claim is refused with k = 4096 and f = 0.3. A client flips hundreds of bits,
// and Pr[Bin(k, f) = 0] is below the smallest float64. A client limited to 1200 slots has exactly 1199 flips once in 20
// times. Then its report cannot contain both x and x', which tells them apart.
func TestFewSlotsForManyFlips(t *testing.T) {
	for _, users := range []uint64{1, 10} {
		for _, slots := range []uint64{1, 1000, 1200, 1240, 1400} {
			draft := &task.Task{
				Query: task.Sum, Protocol: rappor.Name, Rule: rappor.RuleOthers,
				Input: task.Input{Lo: randomizer.NewRational(0, 1), Hi: randomizer.NewRational(1, 1)},
				Claim: task.NewClaim("2", "1e-10"),
				Batch: task.Batch{Size: users, Honest: randomizer.NewRational(1, 1), Min: users},
				Params: []task.Param{{Key: "f", Value: randomizer.NewRational(5033165, 1<<24)},
					protocols.Whole("k", 4096)},
				Slots: task.Slots{Padding: task.PaddingFull, Lanes: 1, PerLane: slots, MessageBytes: 2},
			}
			m, err := registry.Open(draft)
			require.NoError(t, err)
			var invalidField *invalid.FieldError
			require.ErrorAs(t, m.CheckClaim(), &invalidField, "%d users, %d slots", users, slots)
			require.Equal(t, "claim.delta", invalidField.Field)
		}
	}
}
