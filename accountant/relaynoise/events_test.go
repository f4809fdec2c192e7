package relaynoise_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant/relaynoise"
	"github.com/doona-dp/doona/wire/task"
)

// finite is a pair of distributions on finitely many outcomes.
type finite []outcome

func (f finite) delta(alpha float64) (sum float64) {
	for _, o := range f {
		sum += max(0, o.p-alpha*o.q)
	}
	return sum
}

// power returns independent copies of a pair; none has one outcome.
func (f finite) power(copies int) finite {
	out := finite{{1, 1}}
	for range copies {
		out = times(out, f)
	}
	return out
}

// hidden returns the pair that is f with probability 1−tau, and else an infinite loss in both directions.
func (f finite) hidden(tau float64) (out finite) {
	for _, o := range f {
		out = append(out, outcome{o.p * (1 - tau), o.q * (1 - tau)})
	}
	return append(out, outcome{tau, 0}, outcome{0, tau})
}

// alphas returns the ratios of a pair's outcomes: its curve is straight between them.
func (f finite) alphas() (out []float64) {
	for _, o := range f {
		if o.p > 0 && o.q > 0 {
			out = append(out, o.p/o.q)
		}
	}
	return append(out, 1)
}

// worst returns the symmetric pair whose curve is the largest of all given pairs, in both directions.
func worst(pairs ...finite) (out finite) {
	var alphas []float64
	for _, f := range pairs {
		for _, a := range f.alphas() {
			alphas = append(alphas, a, 1/a)
		}
	}
	curve := func(alpha float64) (most float64) {
		for _, f := range pairs {
			back := 1 - alpha + alpha*f.delta(1/alpha)
			most = max(most, f.delta(alpha), back)
		}
		return most
	}
	// Straight between corners of all pairs, so it is above the largest where two of them cross.
	slices.Sort(alphas)
	alphas = slices.Compact(alphas)
	left, at := -1.0, 0.0
	value := 1.0
	for i, a := range alphas {
		slope := (curve(a) - value) / (a - at)
		if i > 0 {
			out = append(out, outcome{(slope - left) * at, slope - left})
		} else {
			out = append(out, outcome{0, slope + 1}) // Mass of Q where P has none.
		}
		left, at, value = slope, a, curve(a)
	}
	return append(out, outcome{-left * at, -left}, outcome{value, 0})
}

// below reports whether the upper pair's curve dominates the curve of f. Both are straight between corners, so their
// difference is least at a corner of the upper one.
func below(f, upper finite) bool {
	for _, a := range upper.alphas() {
		if f.delta(a) > upper.delta(a)+1e-12 {
			return false
		}
	}
	return true
}

// letters holds what is seen of each letter: laws on the same outcomes. Letter 0 is the default.
type letters [][]float64

func (l letters) pair(a, b int) (out finite) {
	for i, p := range l[a] {
		out = append(out, outcome{p, l[b][i]})
	}
	return out
}

// largest returns V of docs/proofs/events.md: the largest divergence that two worlds can reach in a number of steps, if
// one of them has r and the other s events left.
func (l letters) largest(steps, r, s int, alpha float64) float64 {
	most := max(0, 1-alpha)
	if steps == 0 {
		return most
	}
	for a := range l {
		for b := range l {
			left, right := r-min(a, 1), s-min(b, 1)
			if left < 0 || right < 0 {
				continue
			}
			if a == b {
				most = max(most, l.largest(steps-1, left, right, alpha))
				continue
			}
			sum := 0.0
			for _, o := range l.pair(a, b) {
				if o.p > 0 {
					sum += o.p * l.largest(steps-1, left, right, alpha*o.q/o.p)
				}
			}
			most = max(most, sum)
		}
	}
	return most
}

// TestAllowances: for random laws of three letters, no choice of letters exceeds the copies of f₁ that Theorem 6 of
// docs/proofs/events.md states. It comes close where events have disjoint supports. One copy less is not enough.
func TestAllowances(t *testing.T) {
	rng, tight, tooFew := rand.New(rand.NewPCG(46, 6)), 0.0, 0
	for i := range 11_000 {
		l := make(letters, 3)
		for j := range l {
			l[j] = make([]float64, 3)
			sum := 0.0
			for k := range l[j] {
				l[j][k] = rng.ExpFloat64()
				if rng.IntN(6) == 0 {
					l[j][k] = 0
				}
				sum += l[j][k]
			}
			if sum == 0 {
				l[j][j], sum = 1, 1
			}
			for k := range l[j] {
				l[j][k] /= sum
			}
		}
		one := worst(l.pair(0, 1), l.pair(0, 2))
		for tau := 1e-3; !below(l.pair(1, 2), one.power(2)) || !below(l.pair(2, 1), one.power(2)); tau = min(1, 2*tau) {
			one = worst(l.pair(0, 1), l.pair(0, 2)).hidden(tau)
		}
		r, s, steps := 1+rng.IntN(2), rng.IntN(2), 2
		if i%50 == 0 {
			steps = 3
		}
		bound, fewer := one.power(r+s), one.power(r+s-1)
		for range 3 {
			alpha := math.Exp(2*rng.Float64() - .5)
			found, most := l.largest(steps, r, s, alpha), bound.delta(alpha)
			require.LessOrEqual(t, found, most+1e-12, "%v, %d + %d events, α = %v", l, r, s, alpha)
			if most > 1e-3 {
				tight = max(tight, found/most)
			}
			if found > fewer.delta(alpha)+1e-9 {
				tooFew++
			}
		}
	}
	require.Greater(t, tight, .999)
	require.Greater(t, tooFew, 1000)
}

// world returns the law of the numbers of messages of all cells, if a person sends some messages of cell a.
func world(n *task.Noise, a, messages int) map[int]float64 {
	law, base := states(n)
	place := 1
	for range a {
		place *= base
	}
	out := map[int]float64{}
	for key, p := range law {
		out[key+messages*place] = p
	}
	return out
}

// between returns the pair of a person who sends one message of cell a, or of cell b.
func between(n *task.Noise, a, b int) finite { return equalBetween(n, a, b, 1) }

// equalBetween is [between] for some equal messages in one batch.
func equalBetween(n *task.Noise, a, b, messages int) (out finite) {
	p, q := world(n, a, messages), world(n, b, messages)
	for key, x := range p {
		out = append(out, outcome{x, q[key]})
	}
	for key, y := range q {
		if p[key] == 0 {
			out = append(out, outcome{0, y})
		}
	}
	return out
}

// restCell returns the pair π of Theorem 7 for a law of three cells with a rest cell, t and π's overlap.
func restCell(n *task.Noise) (cell finite, over, overlap float64) {
	table, sum := n.Tables[0], 0.0
	for _, w := range table {
		sum += float64(w)
	}
	at := func(u int) float64 {
		if u < 0 || u >= len(table) {
			return 0
		}
		return float64(table[u]) / sum
	}
	for u := range len(table) + 1 {
		cell = append(cell, outcome{at(u), at(u - 1)})
		overlap += min(at(u), at(u-1))
	}
	for u := range table {
		for v := range table {
			if u+v >= int(*n.Total) && int(*n.Total) < 2*(len(table)-1) {
				over += at(u) * at(v)
			}
		}
	}
	return cell, over, overlap
}

// TestEventLaws enumerates small laws with a rest cell. A default against an event must be below one copy of f₁, and
// two events below two copies (docs/proofs/events.md, Theorem 7). The package's curve must be at least that. A rest
// cell without τ, and independent cells at the pair of one cell, must be found to break this.
func TestEventLaws(t *testing.T) {
	rng, withoutTau, independent, valid := rand.New(rand.NewPCG(46, 7)), 0, 0, 0
	for i := range 600 {
		table := randomTable(rng, 4)
		for u := range table {
			table[u] = max(1, table[u], table[len(table)-1-u])
			table[len(table)-1-u] = table[u]
		}
		last := uint64(len(table) - 1)
		total := last + rng.Uint64N(last+2)
		rest := rng.Uint64N(3)
		n := &task.Noise{Kind: task.NoiseCells, Cells: 3, Tables: [][]uint64{table}, Total: &total, Rest: &rest}
		d, y, z := int(rest), int(rest+1)%3, int(rest+2)%3
		cell, over, overlap := restCell(n)
		tau := over / ((1 - over) * overlap * overlap)
		if tau < 1 {
			valid++
			one := cell.hidden(tau)
			require.True(t, below(between(n, d, y), one) && below(between(n, y, d), one), "%v", n)
			require.True(t, below(between(n, y, z), one.power(2)), "%v", n)
			if curve, err := relaynoise.New(n); err == nil && i%4 == 0 {
				for _, eps := range []float64{0, .3, 1, 2} {
					want := one.power(2).delta(math.Exp(eps))
					require.GreaterOrEqual(t, curve.Delta(eps), want-1e-12)
					above := max(eps, .01) // A law of several copies has no δ at ε = 0.
					require.GreaterOrEqual(t, curve.Law().Delta(above), one.power(2).delta(math.Exp(above))-1e-12)
					require.GreaterOrEqual(t, curve.Delta(eps), enumerated(n, eps)*(1-1e-12))
				}
			}
		}
		if !below(between(n, y, d), cell) {
			withoutTau++
		}
		n.Total, n.Rest = nil, nil
		if !below(between(n, d, y), cell) {
			independent++
		}
	}
	t.Logf("%d laws; %d break the rule without τ, %d of independent cells the curve of one cell", valid, withoutTau,
		independent)
	require.Greater(t, valid, 150)
	require.Greater(t, withoutTau, 100)
	require.Greater(t, independent, 300)
}

// TestSmallOverlaps: τ of Theorem 7 has the square of the overlap. Where the overlap is small, the package's curve must
// be at least the theorem's with the exact t. Two events whose overlap is mostly at totals that are drawn anew must be
// found to break the rule with the overlap itself, and with none.
func TestSmallOverlaps(t *testing.T) {
	rest, total := uint64(0), uint64(7)
	n := &task.Noise{Kind: task.NoiseCells, Cells: 3, Tables: [][]uint64{{1, 30, 900, 30, 1}}, Total: &total,
		Rest: &rest}
	cell, over, overlap := restCell(n)
	require.Less(t, overlap, .07)
	one := cell.hidden(over / ((1 - over) * overlap * overlap))
	curve, err := relaynoise.New(n)
	require.NoError(t, err)
	for _, eps := range []float64{1, 4, 8} {
		require.GreaterOrEqual(t, curve.Delta(eps), one.power(2).delta(math.Exp(eps)), "ε = %v", eps)
		require.GreaterOrEqual(t, curve.Law().Delta(eps), one.power(2).delta(math.Exp(eps)), "ε = %v", eps)
	}

	total, n.Tables = 20, [][]uint64{{1, 1, 0, 20, 0, 1, 1, 0, 20, 0, 1, 1}}
	cell, over, overlap = restCell(n)
	events := between(n, 1, 2)
	for power, holds := range []bool{false, false, true} {
		tau := over / ((1 - over) * math.Pow(overlap, float64(power)))
		require.Equal(t, holds, below(events, cell.hidden(tau).power(2)), "with the overlap to the power of %d", power)
	}
}
