package vectorsum_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/protocols/vectorsum"
)

// losses are the outcomes of a pair of distributions P and Q, sorted by the privacy loss ln(p/q), lowest first.
type losses struct{ at, p, q []float64 }

// revealed enumerates the outcomes of one message under rule revealed. Two cells matter, those of the two values. c ~
// Bin(n-1, 2γ/K) blanket messages are in them, a ~ Bin(c, ½) in the first. The client's own message is in the first
// under P and in the second under Q. With probability γ it does not depend on the value: it is in either cell or in
// neither.
func revealed(k, users int, gamma float64) losses {
	merged := map[float64]outcome{0: {gamma, gamma}}
	in := 2 * gamma / float64(k)
	for c := range users {
		cells := choose(users-1, c) + float64(c)*math.Log(in) + float64(users-1-c)*math.Log1p(-in)
		for first := 0; first <= c+1; first++ { // first messages in the first cell, of c+1 with the client's own
			var o outcome
			if first > 0 {
				o.p = (1 - gamma) * math.Exp(cells+choose(c, first-1)-float64(c)*math.Ln2)
			}
			if first <= c {
				o.q = (1 - gamma) * math.Exp(cells+choose(c, first)-float64(c)*math.Ln2)
			}
			at := math.Log(float64(first) / float64(c+1-first))
			merged[at] = outcome{merged[at].p + o.p, merged[at].q + o.q}
		}
	}
	return sorted(merged)
}

// exactly enumerates the outcomes of one message under rule exact. m ~ Bin(n, γ) messages come from blankets, the
// client's own among them. s ~ Bin(m, 2/K) of these are in the two cells that matter, a ~ Bin(s, ½) of them in the
// first. P weighs each outcome with ((1-γ)·K·a + γ·m)/(γ·n), and Q with s-a in place of a.
func exactly(k, users int, gamma float64) losses {
	merged := map[float64]outcome{}
	n, size := float64(users), float64(k)
	for m := 1; m <= users; m++ {
		blanket := choose(users, m) + float64(m)*math.Log(gamma) + float64(users-m)*math.Log1p(-gamma)
		for s := 0; s <= m; s++ {
			cells := blanket + choose(m, s) + float64(s)*math.Log(2/size)
			if s < m {
				cells += float64(m-s) * math.Log1p(-2/size)
			}
			if cells < -40 {
				continue
			}
			for a := range s + 1 {
				likely := math.Exp(cells + choose(s, a) - float64(s)*math.Ln2)
				p := ((1-gamma)*size*float64(a) + gamma*float64(m)) / (gamma * n)
				q := ((1-gamma)*size*float64(s-a) + gamma*float64(m)) / (gamma * n)
				o := merged[math.Log(p/q)]
				merged[math.Log(p/q)] = outcome{o.p + likely*p, o.q + likely*q}
			}
		}
	}
	return sorted(merged)
}

type outcome struct{ p, q float64 }

// choose returns the logarithm of the binomial coefficient.
func choose(n, k int) float64 {
	a, _ := math.Lgamma(float64(n + 1))
	b, _ := math.Lgamma(float64(k + 1))
	c, _ := math.Lgamma(float64(n - k + 1))
	return a - b - c
}

func sorted(merged map[float64]outcome) (all losses) {
	for at, o := range merged {
		if o.p+o.q > 1e-12 { // leaving out a rare outcome can only lower δ
			all.at = append(all.at, at)
		}
	}
	slices.Sort(all.at)
	for _, at := range all.at {
		all.p, all.q = append(all.p, merged[at].p), append(all.q, merged[at].q)
	}
	return all
}

// curve returns the function δ(ε) = Σ (p − e^ε·q)₊ for any ε, from sums over the outcomes of largest loss.
func (l losses) curve() func(eps float64) float64 {
	p, q := make([]float64, len(l.at)+1), make([]float64, len(l.at)+1)
	for i := len(l.at) - 1; i >= 0; i-- {
		p[i], q[i] = p[i+1]+l.p[i], q[i+1]+l.q[i]
	}
	return func(eps float64) float64 {
		i, _ := slices.BinarySearch(l.at, eps)
		return p[i] - math.Exp(eps)*q[i]
	}
}

// with returns the curve of two independent observations together: this pair, and one that has the given curve.
func (l losses) with(curve func(eps float64) float64) func(eps float64) float64 {
	return func(eps float64) (sum float64) {
		for i, at := range l.at {
			if l.p[i] > 0 {
				sum += l.p[i] * curve(eps-at)
			}
		}
		return sum
	}
}

// TestSeveralMessagesByRuleExact checks γ of several messages by rule exact, against an enumeration of all outcomes of
// one message. 1 % less noise must break the claim. With two messages at n_min = 200, rule revealed must take more than
// twice the error.
func TestSeveralMessagesByRuleExact(t *testing.T) {
	for _, c := range []struct {
		users     uint64
		messages  int64
		less      float64 // Least ratio of the error with rule revealed to the error with rule exact.
		onlyOfTwo bool
	}{{200, 2, 2.1, true}, {900, 5, 1.3, false}} {
		at := func(rule string) float64 {
			return calibrated(t, draft(5, c.users, "1", "1e-6", rule, whole("k", 1), whole("t", c.messages)))
		}
		gamma := at("exact")
		spread := func(gamma float64) float64 { return math.Sqrt(gamma/2*(1-gamma/2)) / (1 - gamma) }
		require.Greater(t, spread(at("revealed")), c.less*spread(gamma), "%+v", c)
		delta := func(gamma float64) float64 {
			one := exactly(2, int(c.users), gamma)
			if c.onlyOfTwo {
				return one.with(one.curve())(1)
			}
			curve := one.curve()
			return compose.Delta([]compose.Observation{{
				Delta: func(eps float64) float64 { return max(0, curve(eps)) }, Count: uint64(c.messages)}}, 1, 1e-6)
		}
		require.LessOrEqual(t, delta(gamma), 1.001e-6, "%+v", c)
		require.Greater(t, delta(gamma*.99), 1e-6, "%+v: hundredth less noise is seen", c)
	}
}

// Compares the law of several messages with an enumeration of all outcomes of rule revealed, at every real ε. The law
// must nowhere be below it, and less than 1 % above it in ε.
func TestLawOfSeveralMessagesIsExact(t *testing.T) {
	const users = 1000 // enough that local privacy does not help
	several := map[int64][]float64{2: {.01, .1, .3, .6, 1, 1.4, 1.8, 2.2, 2.6}}
	if stattest.Long {
		several[3] = []float64{1}
	}
	for messages, points := range several {
		d := draft(3, users, "1", "0.0001", "revealed", whole("k", 2), whole("t", messages))
		gamma := calibrated(t, d)
		m, err := new(vectorsum.Protocol).Open(d)
		require.NoError(t, err)
		law, err := m.Law()
		require.NoError(t, err)
		one := revealed(3, users, gamma)
		exact := one.curve()
		for range messages - 1 {
			exact = one.with(exact)
		}
		near := 0
		for _, eps := range points {
			delta := exact(eps)
			require.GreaterOrEqual(t, law.Delta(eps), delta*(1-1e-9), "%d messages at %v", messages, eps)
			require.GreaterOrEqual(t, -math.Expm1(-eps)+math.Exp(-eps)*law.Delta(eps), exact(-eps)*(1-1e-9),
				"%d messages at −%v", messages, eps)
			if delta >= 1e-12 && delta <= .1 {
				near++
				require.LessOrEqual(t, law.Delta(eps*1.01), delta, "%d messages at %v", messages, eps)
			}
		}
		require.GreaterOrEqual(t, near, len(points)/2)
		require.InEpsilon(t, 1e-4, exact(1), .03, "the claim is met exactly")
	}
}
