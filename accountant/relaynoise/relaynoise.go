// Package relaynoise bounds what a batch reveals about one client if every relay adds dummies to it and only one relay
// is honest: the augmented shuffle model ([MSE25]). Proofs are in docs/proofs/relay-noise.md.
//
// One honest relay draws Z_j dummies of each cell j by the law of [task.Noise], independent of the messages it
// received, and permutes. An adversary who sees the batch may know every other client's message, all dummies of other
// relays and how many messages were dropped. So for a client that sends a or b, the pair to bound is
//
//	Z + e_a  against  Z + e_b,   e_a one message of cell a.                                       (1)
//
// The pair depends neither on n nor on any other client. Dummies of further honest relays only add to Z.
//
// [Curve.Delta] bounds the divergence δ(ε) = Σ (P − e^ε·Q)₊ of (1) over all a ≠ b. Exchanging a and b in (1) gives the
// other direction, so the maximum covers both directions.
//
//   - Independent cells: the counts of all cells except a and b have the same law under P and Q, so
//     δ_ab(ε) = Σ_{u,v} (f_a(u)·f_b(v) − e^ε·f_a(u+1)·f_b(v−1))₊, exactly.                          (2)
//     For long tables, (2) is composed of two copies of one cell's pair, f(u) against f(u+1).
//   - A fixed total T: (2) with each term times Pr[the other cells have T−u−v] / Pr[all cells have T].  (3)
//   - A rest cell: two copies of one cell's pair, slightly raised (docs/proofs/events.md, Theorem 7).
//   - A tilt: for outcomes possible under P and Q, P/Q is at most e^ρ with ρ of [Curve.Ratio]. Outcomes
//     impossible under Q count in full: δ = Pr[Z_b = 0 or Z_a = M_a] plus the probability beyond the end
//     of the tilt. At ε < ρ the curve is that of the worst (ρ, δ)-private mechanism ([KOV15]).       (4)
//   - A Gaussian tilt, of tables and factors that are discrete Gaussians: the curve of a Gaussian pair,
//     slightly raised (docs/proofs/relay-noise.md, Theorem 3).                                        (5)
//
// [MSE25]: https://arxiv.org/abs/2504.07362 [KOV15]: https://arxiv.org/abs/1311.0776
package relaynoise

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/task"
)

// Curve is an upper bound on the divergence δ(ε) of (1), what a batch reveals of one client, over all pairs of cells.
// Immutable.
type Curve struct {
	pairs []pair
	cell  *pair   // For a long table or a rest cell, instead of pairs: two independent copies of it are the bound.
	gauss *gauss  // Of a Gaussian tilt, instead of pairs.
	ratio float64 // Largest finite privacy loss of a tilted law.
	tail  float64 // Bound on the probability of an infinite loss of a tilted law.
	gamma float64 // Probability that a client sends a uniform cell.
	cells float64 // Number of cells K.
}

// pair lists the outcomes of a sum (2) or (3) for two cells, with their probabilities under P and Q.
type pair struct{ p, q []float64 }

// Limits on the work of checking a certificate.
const (
	maxTerms = 1 << 20 // Terms of the sums (2) and (3).
	maxSteps = 1 << 24 // Steps to compute the other cells' law in (3).
)

// New returns the curve of a noise of kind cells. n must be valid. It is an error if no bound is known for n, or if
// computing the bound would take too long.
func New(n *task.Noise) (*Curve, error) {
	c, _, err := newCurve(n, 1)
	return c, err
}

// Group returns the curve of a person with some equal reports in one batch, such as from several devices whose answers
// are alike: the pair Z + reports·e_a against Z + reports·e_b in place of (1). It is the curve of (2) or (3) with that
// shift, and has no bound for a tilt or a rest cell (docs/proofs/group.md, "Equal reports").
func Group(n *task.Noise, reports int) (*Curve, error) {
	if n.Tilt != nil {
		return nil, invalid.Field("noise.tilt", "a tilt", "none, for several reports of one person")
	}
	if n.Rest != nil {
		return nil, invalid.Field("noise.rest", strconv.FormatUint(*n.Rest, 10), "none, for several reports of one person")
	}
	c, _, err := newCurve(n, reports)
	return c, err
}

// newCurve returns the curve for a shift, and the spectrum of a tilted law, if its curve took one.
func newCurve(n *task.Noise, shift int) (*Curve, *spectrum, error) {
	c, s, err := shifted(n, shift)
	if err == nil {
		c.cells = float64(n.Cells)
	}
	return c, s, err
}

func shifted(n *task.Noise, shift int) (c *Curve, s *spectrum, err error) {
	switch {
	case n.Kind != task.NoiseCells:
		return nil, nil, invalid.Field("noise.kind", n.Kind, "cells")
	case n.Cells < 2:
		return nil, nil, invalid.Field("noise.cells", strconv.FormatUint(n.Cells, 10), "at least 2")
	case n.Tilt != nil && n.Total != nil:
		return nil, nil, invalid.Field("noise.tilt", "one beside a total", "a tilt or a total")
	case n.Tilt != nil:
		return tilted(n)
	case n.Rest != nil:
		c, err = slack(n)
		return c, nil, err
	case n.Total != nil:
		c, err = fixedTotal(n, shift)
		return c, nil, err
	}
	c, err = independent(n, shift)
	return c, nil, err
}

// independent returns the exact curve (2) for independent cells.
func independent(n *task.Noise, shift int) (*Curve, error) {
	laws, counts := tables(n)
	if len(laws) == 1 && len(laws[0]) > maxPairTable {
		cell, err := oneCell(laws[0], shift)
		return &Curve{cell: cell}, err
	}
	c, terms := &Curve{}, 0
	for i, a := range laws {
		for j, b := range laws {
			if i == j && counts[i] < 2 {
				continue
			}
			if terms += len(a) * len(b); terms > maxTerms {
				return nil, tooLarge(terms)
			}
			c.pairs = append(c.pairs, newPair(a, b, shift, func(int) float64 { return 1 }))
		}
	}
	return c, nil
}

// oneCell returns the pair of one cell with a long table: f(u) under P, f(u+1) under Q. For a table that equals its
// mirror image, (2) is the curve of two independent copies of it (docs/proofs/relay-noise.md, "Long tables").
func oneCell(f []float64, shift int) (*pair, error) {
	if len(f) > maxLongTable {
		return nil, invalid.Field("noise.tables", strconv.Itoa(len(f))+" numbers", "at most "+
			strconv.Itoa(maxLongTable)+", which a client can check")
	}
	out := &pair{}
	for u, p := range f {
		if p != f[len(f)-1-u] {
			return nil, invalid.Field("noise.tables", strconv.Itoa(len(f))+" numbers", "at most "+
				strconv.Itoa(maxPairTable)+", or the same read backwards")
		}
		if p > 0 {
			out.p, out.q = append(out.p, p), append(out.q, at(f, u+shift))
		}
	}
	return out, nil
}

// fixedTotal returns the exact curve (3) for a fixed total. All cells must have the same table.
func fixedTotal(n *task.Noise, shift int) (*Curve, error) {
	if len(n.Tables) > 1 {
		return nil, invalid.Field("noise.tables", strconv.Itoa(len(n.Tables))+" tables", "one, with a fixed total")
	}
	laws, _ := tables(n)
	f, total := laws[0], int(*n.Total)
	others, terms := []float64{1}, len(f)*len(f)
	if terms > maxTerms {
		return nil, tooLarge(terms)
	}
	for range n.Cells - 2 {
		if terms += len(others) * len(f); terms > maxSteps {
			return nil, tooLarge(terms)
		}
		others = convolve(others, f, total)
	}
	all := at(convolve(convolve(others, f, total), f, total), total)
	if !(all > 1e-9) {
		return nil, invalid.Field("noise.total", strconv.Itoa(total), "a total that the tables allow, and make likely")
	}
	rest := func(sum int) float64 { return at(others, total-sum) / all }
	return &Curve{pairs: []pair{newPair(f, f, shift, rest)}}, nil
}

func tooLarge(terms int) error {
	return invalid.Field("noise", "a law of "+strconv.Itoa(terms)+" terms or more",
		"at most "+strconv.Itoa(maxTerms)+", which a client can check")
}

// newPair returns the outcomes for cells with the laws a and b. rest returns the factor for the other cells, given the
// number of dummies in both cells together.
func newPair(a, b []float64, shift int, rest func(sum int) float64) (out pair) {
	for u := range a {
		for v := range b {
			p := a[u] * b[v] * rest(u+v)
			if p == 0 {
				continue
			}
			out.p = append(out.p, p)
			out.q = append(out.q, at(a, u+shift)*at(b, v-shift)*rest(u+v))
		}
	}
	return out
}

// at returns element i of a law, 0 beyond its end.
func at(law []float64, i int) float64 {
	if i < 0 || i >= len(law) {
		return 0
	}
	return law[i]
}

// convolve returns the law of the sum of two independent numbers, for sums up to most.
func convolve(a, b []float64, most int) []float64 {
	out := make([]float64, min(len(a)+len(b)-1, most+1))
	for i, x := range a {
		for j := 0; j < len(b) && i+j < len(out); j++ {
			out[i+j] += x * b[j]
		}
	}
	return out
}

// tables returns, for each table, the law of a cell's dummies and the number of cells with that table. It ignores a
// tilt and a fixed total.
func tables(n *task.Noise) (laws [][]float64, cells []uint64) {
	for _, table := range n.Tables {
		sum := 0.0
		for _, weight := range table {
			sum += float64(weight)
		}
		law := make([]float64, len(table))
		for z, weight := range table {
			law[z] = float64(weight) / sum
		}
		laws = append(laws, law)
	}
	cells = make([]uint64, len(laws))
	n.Each(func(_ uint64, run task.Run) { cells[run.Table] += run.Count })
	return laws, cells
}

// rounding exceeds the error of a sum of differences p − e^ε·q whose p add up to at most 1. Each p and q carries some
// ten roundings of 2⁻⁵³, including its own table's sum.
const rounding = 4e-15

// Local returns the curve for clients that also randomize: each sends a uniform cell with probability gamma in [0, 1).
// Let δ_Z be the curve of the relay's dummies alone and K the number of cells. Then, with equality for K = 2,
//
//	δ(ε) ≤ A·δ_Z(ln(1 + (e^ε-1)/A)),   A = 1 - γ - (e^ε-1)·γ/K                                    (10)
//
// and δ(ε) = 0 if A ≤ 0, where local randomization alone has ε (docs/proofs/relay-noise.md, Theorem 4).
func (c *Curve) Local(gamma float64) *Curve {
	local := *c
	local.gamma = gamma
	return &local
}

// Delta returns an upper bound on δ(eps), eps ≥ 0, in (0, 1].
func (c *Curve) Delta(eps float64) float64 {
	share, stronger := c.stronger(eps)
	return share * c.relays(stronger)
}

// relays returns the curve of the relays' dummies alone, without local randomization.
func (c *Curve) relays(eps float64) float64 {
	most := c.beyond(eps)
	e := math.Exp(eps)
	switch {
	case c.cell != nil:
		most = c.cell.twice(eps)
	case c.gauss != nil:
		most = c.gauss.delta(1, eps)
	}
	for _, pair := range c.pairs {
		sum := 0.0
		for i, p := range pair.p {
			sum += max(0, p-e*pair.q[i])
		}
		most = max(most, sum+rounding)
	}
	if most *= 1 + 1e-9; !(most <= 1) {
		return 1
	}
	return most
}

// twice returns an upper bound on δ(eps) of two independent copies of the pair.
func (p *pair) twice(eps float64) float64 {
	if eps <= 0 { // Total variation distance at most doubles with two copies.
		sum := rounding
		for i, x := range p.p {
			sum += max(0, x-p.q[i])
		}
		return 2 * sum
	}
	return compose.Delta([]compose.Observation{{Pair: p.grid(), Count: 2}}, eps, 1e-12)
}

// grid returns the pair with its losses on the grid of [Curve.Observation].
func (p *pair) grid() *compose.Pair {
	o := compose.NewOutcomes(p.top(), gridSteps)
	for i, x := range p.p {
		o.Add(x, p.q[i])
	}
	return o.Pair()
}

// gridTop (the largest loss) and gridSteps define the grid of [Curve.Observation]. It is finer than composition needs.
const (
	gridTop   = 16
	gridSteps = 1 << 13
)

// Observation returns what a verifier sees of a client in the given number of epochs, for [compose.Delta]. The two
// cells that the verifier compares may change from epoch to epoch, so Observation uses the largest curve over all pairs
// at every ε.
func (c *Curve) Observation(epochs uint64) compose.Observation {
	switch {
	case c.gauss != nil && c.gamma == 0:
		return c.gauss.observation(epochs)
	case c.cell != nil && c.gamma == 0:
		return compose.Observation{Pair: c.cell.grid(), Count: 2 * epochs}
	case c.cell != nil: // Each point of the curve takes a millisecond.
		return compose.Observation{Delta: compose.Chords(c.Delta, 64, 1e-15), Count: epochs}
	case len(c.pairs) != 1 || c.gamma > 0:
		return compose.Observation{Delta: compose.Chords(c.Delta, 512, 1e-15), Count: epochs}
	}
	return compose.Observation{Pair: c.pairs[0].grid(), Count: epochs}
}

// Law returns a law that bounds the privacy loss of one epoch.
func (c *Curve) Law() *compose.Law {
	if c.ratio > 0 {
		return compose.LawOf(c.Delta, c.weaker(c.ratio))
	}
	switch {
	case c.gauss != nil:
		return compose.LawOf(c.Delta, compose.Top(c.Delta))
	case c.cell != nil:
		return c.longLaw()
	}
	laws, most := make([]*compose.Law, len(c.pairs)), 0.0
	for i, pair := range c.pairs {
		laws[i], most = pair.law(), max(most, pair.top())
	}
	if len(laws) == 1 && c.gamma == 0 {
		return laws[0]
	}
	return compose.LawOf(func(eps float64) (delta float64) {
		share, eps := c.stronger(eps)
		for _, law := range laws {
			delta = max(delta, law.Delta(eps))
		}
		return share * delta
	}, c.weaker(most))
}

// longLaw is [Curve.Law] for a long table.
func (c *Curve) longLaw() *compose.Law {
	two, err := c.cell.law().Copies(2)
	if err == nil && c.gamma == 0 {
		return two
	}
	return compose.LawOfSlow(c.Delta, c.weaker(2*c.cell.top()))
}

// law returns the law of the outcomes that are likelier under P. Outcomes likelier under Q belong to the pair with the
// cells exchanged. All probabilities have a relative error of at most some 1e-14.
func (p *pair) law() *compose.Law {
	return compose.LawOfOutcomes(func(add func(p, q float64)) {
		for i, x := range p.p {
			if x > p.q[i] {
				add(x*(1+1e-13), p.q[i])
			}
		}
	})
}

// leastShare is a lower bound on A of formula (10), above its rounding errors. mostStronger is the largest ε_Z.
const (
	leastShare   = 1e-14
	mostStronger = 100
)

// stronger returns A of formula (10), rounded up, and the ε_Z at which the relays' noise must be evaluated so that
// noise and local randomization together have ε, rounded down. weaker is the inverse.
func (c *Curve) stronger(eps float64) (share, stronger float64) {
	if c.gamma == 0 {
		return 1, eps
	}
	grow := math.Expm1(eps) * (1 - 1e-15)
	share = max(1-c.gamma-grow*c.gamma/c.cells*(1-1e-15), 0) + leastShare
	return min(share, 1), min(math.Log1p(grow/share)*(1-1e-15), mostStronger)
}

func (c *Curve) weaker(eps float64) float64 {
	if c.gamma == 0 {
		return eps * (1 + 1e-12)
	}
	grow := math.Expm1(eps)
	return math.Log1p(grow*(1-c.gamma)/(1+grow*c.gamma/c.cells)) * (1 + 1e-12)
}

// top returns the largest finite privacy loss of the pair, at most gridTop.
func (p *pair) top() float64 {
	most := 1.0 // largest p/q
	for i, x := range p.p {
		if p.q[i] > 0 {
			most = max(most, x/p.q[i])
		}
	}
	return min(gridTop, math.Log(most)*(1+1e-12)+1e-12)
}

// Ratio returns ρ, the largest finite privacy loss of a tilted law, and 0 for other laws. At ε < ρ the curve (4) of the
// package comment is the best known bound.
func (c *Curve) Ratio() float64 { return c.ratio }

// beyond returns the bound (4) on δ for a tilted law, and 0 for other laws.
func (c *Curve) beyond(eps float64) float64 {
	if eps >= c.ratio {
		return c.tail
	}
	return c.tail - (1-c.tail)*math.Expm1(eps-c.ratio)/(1+math.Exp(-c.ratio))
}
