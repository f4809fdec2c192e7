package splitmix_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/protocols/splitmix"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// exactZ returns Z = E[q^{C-1}] over all (mn)! matchings of out-stubs to in-stubs of n vertices; C is the number of
// connected components.
func exactZ(n, m int, q float64) float64 {
	perm := make([]int, n*m)
	for i := range perm {
		perm[i] = i
	}
	total, count := 0.0, 0.0
	var visit func(k int)
	visit = func(k int) {
		if k == len(perm) {
			total += math.Pow(q, float64(components(n, m, perm)-1))
			count++
			return
		}
		for i := k; i < len(perm); i++ {
			perm[k], perm[i] = perm[i], perm[k]
			visit(k + 1)
			perm[k], perm[i] = perm[i], perm[k]
		}
	}
	visit(0)
	return total / count
}

func components(n, m int, perm []int) int {
	parent := make([]int, n)
	for i := range parent {
		parent[i] = i
	}
	root := func(v int) int {
		for parent[v] != v {
			v = parent[v]
		}
		return v
	}
	left := n
	for from, to := range perm {
		if a, b := root(from/m), root(to/m); a != b {
			parent[a] = b
			left--
		}
	}
	return left
}

// distribution is the probability distribution of a multiset of messages, keyed by its counts.
type distribution map[string]float64

func (d distribution) add(e distribution) distribution {
	out := distribution{}
	for a, p := range d {
		for b, q := range e {
			sum := []byte(a)
			for i := range sum {
				sum[i] += b[i]
			}
			out[string(sum)] += p * q
		}
	}
	return out
}

func (d distribution) scale(by float64) distribution {
	out := distribution{}
	for k, p := range d {
		out[k] = p * by
	}
	return out
}

// shares returns the distribution of m uniform messages that add up to y mod q, as a multiset.
func shares(m, q, y uint64) distribution {
	all := distribution{}
	residues := map[string]uint64{}
	all[string(make([]byte, q))] = 1
	residues[string(make([]byte, q))] = 0
	for range m {
		next := distribution{}
		for k, p := range all {
			for v := range q {
				counts := []byte(k)
				counts[v]++
				next[string(counts)] += p / float64(q)
				residues[string(counts)] = (residues[k] + v) % q
			}
		}
		all = next
	}
	for k := range all {
		if residues[k] != y {
			delete(all, k)
		}
	}
	return all.scale(float64(q)) // Pr[sum = y] = 1/q
}

// uniform returns the distribution of one uniform message.
func uniform(q uint64) distribution {
	out := distribution{}
	for v := range q {
		one := make([]byte, q)
		one[v] = 1
		out[string(one)] = 1 / float64(q)
	}
	return out
}

func shuffled(m, q uint64, ys []uint64) distribution {
	out := distribution{string(make([]byte, q)): 1}
	for _, y := range ys {
		out = out.add(shares(m, q, y))
	}
	return out
}

func statisticalDistance(p, q distribution) (sd float64) {
	for k := range p {
		sd += math.Abs(p[k]-q[k]) / 2
	}
	for k := range q {
		if _, ok := p[k]; !ok {
			sd += q[k] / 2
		}
	}
	return sd
}

// vectors calls visit with every vector of n residues.
func vectors(n int, q uint64, visit func([]uint64)) {
	v := make([]uint64, n)
	var fill func(i int)
	fill = func(i int) {
		if i == n {
			visit(v)
			return
		}
		for v[i] = 0; v[i] < q; v[i]++ {
			fill(i + 1)
		}
	}
	fill(0)
}

// TestComponentsBoundByBruteForce checks rule components for tiny (n, m, q) with m ≥ 2 messages. By the proof, the view
// of any inputs is within ½√(Z-1) of an ideal view, with Z for m-1: the average over the inputs with the same sum. So
// the views of two inputs with the same sum must be within twice that. The recursion (5) of logExcess must bound the
// exact Z, and not be far above it.
func TestComponentsBoundByBruteForce(t *testing.T) {
	for _, c := range []struct{ n, m, q int }{
		{2, 2, 2}, {2, 2, 3}, {2, 2, 5}, {2, 3, 2}, {2, 3, 4}, {2, 3, 5}, {2, 4, 2}, {2, 4, 3}, {2, 5, 2}, {2, 5, 3},
		{2, 5, 4},
		{3, 2, 2}, {3, 2, 3}, {3, 3, 2}, {3, 3, 3}, {3, 3, 4}, {4, 2, 2}, {4, 2, 3}, {4, 3, 2}, {4, 3, 3}, {5, 2, 2},
		{5, 2, 3},
	} {
		t.Run(fmt.Sprintf("n=%d m=%d q=%d", c.n, c.m, c.q), func(t *testing.T) {
			q := uint64(c.q)
			excess := exactZ(c.n, c.m-1, float64(q)) - 1
			bound := math.Exp(splitmix.LogExcess(uint64(c.n), uint64(c.m-1), float64(q)))
			require.LessOrEqual(t, excess, bound*(1+1e-6), "recursion (5)")
			require.Less(t, bound, 6*excess, "recursion (5) is too loose")

			views := map[uint64][]distribution{}
			vectors(c.n, q, func(ys []uint64) {
				sum := uint64(0)
				for i, y := range ys {
					sum += y
					if i > 0 && y < ys[i-1] {
						return // the view does not depend on the order of clients
					}
				}
				views[sum%q] = append(views[sum%q], shuffled(uint64(c.m), q, ys))
			})
			for _, same := range views {
				for i := range same {
					for j := range i {
						// Each view is within half of this of the ideal view.
						require.LessOrEqual(t, statisticalDistance(same[i], same[j]), 2*0.5*math.Sqrt(excess)+1e-12)
					}
				}
			}
		})
	}
}

// ideal returns the proof's ideal view for a sum: the average of the views over all inputs with that sum. It arises
// from shuffling the shares of inputs x - r, for uniform r whose own shares are shuffled too. The inputs x - r and r
// are then uniform inputs with the right sum.
func ideal(n int, m, q, sum uint64) distribution {
	out, count := distribution{}, 0.0
	vectors(n, q, func(ys []uint64) {
		total := uint64(0)
		for _, y := range ys {
			total += y
		}
		if total%q != sum {
			return
		}
		for k, p := range shuffled(m, q, ys) {
			out[k] += p
		}
		count++
	})
	return out.scale(1 / count)
}

// TestDistanceToTheIdealView checks, in a few cases, that views are within ½√(Z-1) of the ideal view itself.
func TestDistanceToTheIdealView(t *testing.T) {
	for _, c := range []struct{ n, m, q int }{{2, 2, 3}, {2, 4, 3}, {2, 5, 4}, {3, 3, 3}, {4, 3, 2}, {4, 3, 3}} {
		q := uint64(c.q)
		bound := math.Sqrt(exactZ(c.n, c.m-1, float64(q))-1) / 2
		vectors(c.n, q, func(ys []uint64) {
			sum := uint64(0)
			for _, y := range ys {
				sum += y
			}
			require.LessOrEqual(t, statisticalDistance(shuffled(uint64(c.m), q, ys),
				ideal(c.n, uint64(c.m), q, sum%q)), bound+1e-12, "%+v %v", c, ys)
		})
	}
}

// TestFarBoundAgreesWithTheTable checks formula (6) of logExcess, which continues a short table of (5) to many clients.
// It must be above the full table and close to it.
func TestFarBoundAgreesWithTheTable(t *testing.T) {
	for _, c := range []struct {
		n, m uint64
		q    float64
	}{{200, 4, 1 << 20}, {500, 3, 1 << 10}, {1000, 6, 1 << 40}, {1200, 11, 1 << 32}, {1300, 5, 1 << 24}} {
		exact := fullTable(c.n, c.m, c.q)
		far := splitmix.LogExcess(c.n, c.m, c.q)
		require.GreaterOrEqual(t, far, exact-1e-6, "%+v", c)
		require.Less(t, far, exact+0.1, "%+v", c)
		lead := math.Log(c.q*float64(c.n)) - logBinomial(c.m*c.n, c.m)
		require.InDelta(t, lead, exact, 0.1, "the leading term q·n/C(mn, m), %+v", c)
	}
}

// TestFewClientsNeedNoMoreThanTheTable checks that for few clients the bound of logExcess is the recursion (5), at most
// a few percent above the exact Z. Three clients at (1, 10⁻⁶) must need 21 messages, where (6) would ask for 22.
func TestFewClientsNeedNoMoreThanTheTable(t *testing.T) {
	for _, n := range []uint64{2, 3, 4, 5, 8, 13, 20, 40, 64} {
		for _, m := range []uint64{2, 5, 9, 16, 21} {
			for _, q := range []float64{64, 1 << 16, 1 << 32} {
				if exact := math.Log(exactExcess(n, m, q)); exact < 0 { // with Z - 1 of 1 or more, nothing is proven
					require.GreaterOrEqual(t, splitmix.LogExcess(n, m, q), exact-1e-6, "n=%d m=%d q=%g", n, m, q)
					require.LessOrEqual(t, splitmix.LogExcess(n, m, q), exact+.04, "n=%d m=%d q=%g", n, m, q)
				}
			}
		}
	}
	d := draft(t, planner.Query{Query: task.Mean, Batch: 3, Honest: 1, Hi: 1, Epsilon: 1, Delta: 1e-6})
	require.EqualValues(t, 21, d.Slots.PerLane)
}

// exactExcess returns Z_n − 1 by the exact recursion that (5) of logExcess bounds. connected[s] is the probability that
// s vertices are connected.
func exactExcess(n, m uint64, q float64) float64 {
	z, connected := make([]float64, n+1), make([]float64, n+1)
	z[1], connected[1] = 1, 1
	excess := 0.0
	for size := uint64(2); size <= n; size++ {
		excess, connected[size] = 0, 1
		for s := uint64(1); s < size; s++ {
			share := math.Exp(logBinomial(size-1, s-1)-logBinomial(m*size, m*s)) * connected[s]
			connected[size] -= share
			excess += share * (q*z[size-s] - 1)
		}
		z[size] = 1 + excess
	}
	return excess
}

// fullTable returns ln(Z_n − 1) by the recursion (5) of logExcess up to n, in plain form.
func fullTable(n, m uint64, q float64) float64 {
	logZ := make([]float64, n+1)
	last := 0.0
	for size := uint64(2); size <= n; size++ {
		sum, top := 0.0, math.Inf(-1)
		terms := []float64{}
		for s := uint64(1); s < size; s++ {
			v := logBinomial(size-1, s-1) - logBinomial(m*size, m*s) + math.Log(q) + logZ[size-s]
			terms, top = append(terms, v), max(top, v)
		}
		for _, v := range terms {
			sum += math.Exp(v - top)
		}
		last = top + math.Log(sum)
		logZ[size] = last
		if last < 700 {
			logZ[size] = math.Log1p(math.Exp(last))
		}
	}
	return last
}

func logBinomial(n, k uint64) float64 {
	a, _ := math.Lgamma(float64(n) + 1)
	b, _ := math.Lgamma(float64(k) + 1)
	c, _ := math.Lgamma(float64(n-k) + 1)
	return a - b - c
}

// TestPublishedFigures checks the numbers of messages for 1,000 users, a 32-bit q and σ = 40: 262 by rule paper, 134 by
// rule section5.1, 12 by rule components.
func TestPublishedFigures(t *testing.T) {
	least := func(rule string, n, q uint64, sigma float64) uint64 {
		m := uint64(1)
		for splitmix.StatisticalDistance(rule, n, m, q) > math.Exp2(-sigma)*(1+1e-9) {
			m++
		}
		return m
	}
	require.EqualValues(t, 262, least(splitmix.RulePaper, 1000, 1<<32, 40))
	require.EqualValues(t, 134, least(splitmix.RuleRoot, 1000, 1<<32, 40))
	require.EqualValues(t, 12, least(splitmix.RuleComponents, 1000, 1<<32, 40))
}

// noisePMF returns the distribution mod q of one client's noise, Pólya(r, α) - Pólya(r, α), with α = e^{-s}. It
// computes it from the sampler's parameters.
func noisePMF(r, s float64, q uint64) []float64 {
	polya := make([]float64, q)
	p := math.Pow(-math.Expm1(-s), r)
	for k := 0; p > 1e-18 || k < 50; k++ {
		polya[uint64(k)%q] += p
		p *= (r + float64(k)) / float64(k+1) * math.Exp(-s)
	}
	out := make([]float64, q)
	for a, x := range polya {
		for b, y := range polya {
			out[(uint64(a)+q-uint64(b))%q] += x * y
		}
	}
	return out
}

// tiny is a mechanism so small that its shuffled output can be enumerated.
type tiny struct {
	users, m, p, q uint64
	s, share       float64 // Exponent s of the noise; parameter r of one client's Pólya noise.
	strays         uint64  // Messages of clients whose other shares are in another batch: uniform.
}

// besides returns the mechanism with this many strays in its batch.
func (c tiny) besides(strays uint64) tiny {
	c.strays = strays
	return c
}

// reports returns the distribution of one client's messages for the rounded value x.
func (c tiny) reports(x uint64) distribution {
	out := distribution{}
	for noise, p := range noisePMF(c.share, c.s, c.q) {
		for k, w := range shares(c.m, c.q, (x+uint64(noise))%c.q) {
			out[k] += p * w
		}
	}
	return out
}

// worstDelta returns the largest divergence Σ(P-e^ε·Q)₊ over all values of all clients, in both directions. Values
// between levels are mixtures of levels, so their divergence is no larger (joint convexity).
func (c tiny) worstDelta(eps float64) (worst float64) {
	var others func(left, from uint64, d distribution)
	others = func(left, from uint64, d distribution) {
		if left > 0 {
			for x := from; x <= c.p; x++ {
				others(left-1, x, d.add(c.reports(x)))
			}
			return
		}
		views := []distribution{}
		for x := uint64(0); x <= c.p; x++ {
			views = append(views, d.add(c.reports(x)))
		}
		for i := range views {
			for j := range views {
				if i == j {
					continue
				}
				delta := 0.0
				for k, p := range views[i] {
					delta += max(p-math.Exp(eps)*views[j][k], 0)
				}
				worst = max(worst, delta)
			}
		}
	}
	start := distribution{string(make([]byte, c.q)): 1}
	for range c.strays {
		start = start.add(uniform(c.q))
	}
	others(c.users-1, 0, start)
	return worst
}

// TestShuffledMechanismIsPrivate enumerates the shuffled mechanism for up to 6 clients with the sampler's
// probabilities. δ must be at most what the claim check derives. With less noise or fewer messages, most cases must
// exceed it.
func TestShuffledMechanismIsPrivate(t *testing.T) {
	weaker, caught := 0, map[string]int{}
	for _, c := range []struct{ users, m, p, q uint64 }{
		{2, 12, 1, 3}, {2, 8, 2, 4}, {3, 9, 1, 3}, {3, 6, 2, 4}, {4, 8, 1, 3}, {4, 7, 1, 2}, {5, 7, 1, 3},
		{5, 7, 1, 2}, {6, 7, 1, 3}, {6, 8, 1, 2},
	} {
		for _, eps := range []float64{0.5, 1, 2} {
			claimed := min(1, splitmix.StatisticalDistance(splitmix.RuleComponents, c.users, c.m,
				c.q)*(1+math.Exp(eps)))
			honest := tiny{c.users, c.m, c.p, c.q, eps / float64(c.p), 1 / float64(c.users), 0}
			require.LessOrEqual(t, honest.worstDelta(eps), claimed, "%+v, ε = %g", c, eps)

			weaker++
			for name, w := range map[string]tiny{
				"α²":                  {c.users, c.m, c.p, c.q, 2 * honest.s, honest.share, 0},
				"Pólya(1/2n)":         {c.users, c.m, c.p, c.q, honest.s, honest.share / 2, 0},
				"one client's noise":  {c.users, c.m, c.p, c.q, honest.s, honest.share / float64(c.users), 0},
				"one message":         {c.users, 1, c.p, c.q, honest.s, honest.share, 0},
				"two messages":        {c.users, 2, c.p, c.q, honest.s, honest.share, 0},
				"sensitivity ignored": {c.users, c.m, c.p, c.q, eps * float64(c.p), honest.share, 0},
			} {
				if w.worstDelta(eps) > claimed {
					caught[name]++
				}
			}
		}
	}
	require.Equal(t, 30, weaker)
	t.Log("caught of 30:", caught)
	require.GreaterOrEqual(t, caught["α²"], 23, "all cases except those with q = 2, where the noise wraps around")
	require.GreaterOrEqual(t, caught["Pólya(1/2n)"], 18)
	require.GreaterOrEqual(t, caught["one client's noise"], 27)
	require.GreaterOrEqual(t, caught["one message"], 24)
	require.GreaterOrEqual(t, caught["two messages"], 23)
	require.Equal(t, 6, caught["sensitivity ignored"], "p = 2")
}

func draft(t *testing.T, q planner.Query) *task.Task {
	t.Helper()
	q.Name, q.Protocol = "test", splitmix.Name
	if q.Query == "" {
		q.Query = task.Mean
	}
	if q.Hi == 0 {
		q.Hi = 1
	}
	d, err := planner.Draft(q)
	require.NoError(t, err)
	return d
}

// TestTenThousandUsers checks that 10,000 users send 8 messages each, with an error within 5 % of the central discrete
// Laplace mechanism's, rounding included.
func TestTenThousandUsers(t *testing.T) {
	d := draft(t, planner.Query{Batch: 10_000, Honest: 1, Epsilon: 1, Delta: 1e-8})
	m, err := registry.Open(d)
	require.NoError(t, err)
	require.EqualValues(t, 8, d.Slots.PerLane)
	p, _ := d.Param("p")
	variance, rounding := 10_000*m.Worst().Variance, 10_000*0.25/float64(p.Num)/float64(p.Num)
	central := splitmix.NoiseVariance(1/p.Float64()) / p.Float64() / p.Float64()
	require.InEpsilon(t, central, variance-rounding, 1e-9, "the variance without rounding is the central mechanism's")
	require.Less(t, math.Sqrt(variance/central), 1.05, "rounding included")
}

// TestClaims checks that calibrated claims hold at every size. With one message fewer they must not hold, and
// CheckClaim must refuse a smaller ε with an error about it.
func TestClaims(t *testing.T) {
	for _, rule := range []string{splitmix.RuleComponents, splitmix.RuleRoot, splitmix.RulePaper} {
		for _, n := range []uint64{1, 2, 3, 10, 100, 1000, 100_000, 10_000_000} {
			for _, query := range []task.Query{task.Count, task.Mean} {
				d := draft(t, planner.Query{Query: query, Rule: rule, Batch: n, Honest: 1, Epsilon: 0.7, Delta: 1e-10})
				require.Equal(t, rule, d.Rule)
				m, err := registry.Open(d)
				require.NoError(t, err)
				require.NoError(t, m.CheckClaim())

				if n > 1 {
					fewer, _ := d.Param("m")
					d.Params[0].Value = randomizer.NewRational(fewer.Num-1, 1)
					d.Slots.PerLane--
					m, err = registry.Open(d)
					require.NoError(t, err)
					requireField(t, m.CheckClaim(), "claim.delta")
					d.Params[0].Value, d.Slots.PerLane = fewer, uint64(fewer.Num)
				}
				d.Claim.Epsilon = task.NewEpsilon("0.699")
				m, err = registry.Open(d)
				require.NoError(t, err)
				requireField(t, m.CheckClaim(), "claim.epsilon")
			}
		}
	}
}

// TestHonestFractionCalibratesForTheFewest checks that m and the noise suffice for n_min clients, and q for all n.
func TestHonestFractionCalibratesForTheFewest(t *testing.T) {
	d := draft(t, planner.Query{Batch: 1000, Honest: 0.1, Epsilon: 1, Delta: 1e-8})
	all := draft(t, planner.Query{Batch: 1000, Honest: 1, Epsilon: 1, Delta: 1e-8})
	require.Greater(t, d.Slots.PerLane, all.Slots.PerLane)
	q, _ := d.Param("q")
	atAll, _ := all.Param("q")
	require.Greater(t, q.Num, atAll.Num, "ten times the noise variance needs more room")
}

func requireField(t *testing.T, err error, field string) {
	t.Helper()
	var f *invalid.FieldError
	require.True(t, errors.As(err, &f), "%v", err)
	require.Equal(t, field, f.Field)
	require.NotEmpty(t, f.Want)
}

func TestBadParametersAreNamed(t *testing.T) {
	for field, change := range map[string]func(*task.Task){
		"params":   func(d *task.Task) { d.Params = d.Params[1:] },
		"params.m": func(d *task.Task) { d.Params[0].Value = randomizer.NewRational(0, 1) },
		"params.p": func(d *task.Task) { d.Params[1].Value = randomizer.NewRational(1, 2) },
		"params.q": func(d *task.Task) { d.Params[2].Value = randomizer.NewRational(d.Params[2].Value.Num-2, 1) },
		"params.s": func(d *task.Task) { d.Params[3].Value = randomizer.NewRational(0, 1) },
		"slots":    func(d *task.Task) { d.Slots.PerLane++ },
		"query":    func(d *task.Task) { d.Query = task.Histogram },
		"rule":     func(d *task.Task) { d.Rule = "revealed" },
	} {
		d := draft(t, planner.Query{Batch: 100, Honest: 1, Epsilon: 1, Delta: 1e-6})
		change(d)
		_, err := registry.Open(d)
		requireField(t, err, field)
	}
	for field, q := range map[string]planner.Query{
		"batch.size": {Rule: splitmix.RulePaper, Batch: 1_000_000_000, Epsilon: 1, Delta: 1e-8},
		"params.p":   {Batch: 1 << 31, Epsilon: 1, Delta: 1e-8, Params: planner.Params{"p": 1 << 30}},
		"rule":       {Rule: "exact", Batch: 1000, Epsilon: 1, Delta: 1e-8},
		"epsilon":    {Batch: 10, Epsilon: 1e-9, Delta: 1e-8, Params: planner.Params{"p": 1 << 20}},
	} {
		q.Name, q.Protocol, q.Query, q.Hi, q.Honest = "test", splitmix.Name, task.Mean, 1, 1
		_, err := planner.Draft(q)
		requireField(t, err, field)
	}
}
