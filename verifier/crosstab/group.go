package crosstab

import (
	"math"
	"slices"
)

// Group is some cells of a [Table] whose estimated number of clients N̂ exceeds a threshold t, so that shares of it are
// shown.
//
// The noise e of N̂ is then larger than t − N, so intervals that ignore the threshold miss too often in small groups.
// The tests here take their probabilities given e > t − N. N is unknown. So they first exclude the N that N̂ makes
// improbable, given the same, and then take the largest probability over the others. Both steps together miss with at
// most the wanted probability, given that the share is shown. [FST14] has the theory of inference given a selection.
// The code takes at most 13 of the other N, at equal distances. TestSharesOfSmallGroups shows that they are enough.
//
// With exact laws that holds for groups of any size. Nearly normal laws have been tried from five clients on.
//
// [FST14]: https://arxiv.org/abs/1410.2597
type Group struct {
	table *Table
	cells []int
	size  float64   // N̂
	least float64   // t
	tail  float64   // largest probability on each side of a part's test
	sizes []float64 // the N to test; +Inf for all for which the threshold does not matter
	sigma float64   // standard deviation of e
	exact *exactLaw // law of e, or nil
}

// emptyShown is the largest probability with which the shares of a group without clients are shown, and emptyNormal the
// same where the law is only nearly normal, for its tail may be longer.
const (
	emptyShown  = 1e-3
	emptyNormal = 1e-6
)

// sizeMiss is the part of all misses that the choice of the possible N may have.
const sizeMiss = .02

// ignored is the probability below which the threshold does not matter.
const ignored = 1e-5

// mostSizes is the largest number of N that a test tries.
const mostSizes = 12

// mostWeighed is the largest number of cells of a table whose laws without exact ones are used for more than their
// variances. With more cells, they are nearly normal, and each use takes time.
const mostWeighed = 1000

// Group returns a group of cells, whose shares and quantiles have intervals of this confidence. ok is false if its
// estimated size is at most the threshold, for then nothing is known of its shares.
func (t *Table) Group(cells []int, confidence float64) (_ *Group, ok bool) {
	miss, empty := 1-confidence, emptyShown
	g := &Group{table: t, cells: cells, size: t.estimate(cells), tail: miss * (1 - sizeMiss) / 2, exact: t.sum(cells)}
	if g.exact != nil {
		g.sigma = math.Sqrt(g.exact.variance())
	} else {
		g.sigma, empty = math.Sqrt(t.bins.Weighted(t.weights(cells, 1, nil, 0)).Variance()), emptyNormal
	}
	g.least = first(-1, math.Ceil(g.sigma*40)+1, func(x float64) bool { return 1-g.upTo(x) <= empty })
	if !(g.size > g.least) {
		return nil, false
	}
	g.sizes = g.possible(miss * sizeMiss / 2)
	return g, true
}

// first returns the least whole number above lo for which holds is true. It must be true for hi and all above.
func first(lo, hi float64, holds func(x float64) bool) float64 {
	for hi-lo > 1 {
		if middle := math.Floor((lo + hi) / 2); holds(middle) {
			hi = middle
		} else {
			lo = middle
		}
	}
	return hi
}

// upTo returns Pr[e ≤ x].
func (g *Group) upTo(x float64) float64 {
	if g.exact != nil {
		return g.exact.upTo(x)
	}
	return normalUpTo(x, g.sigma)
}

// below returns Pr[e < x].
func (g *Group) below(x float64) float64 {
	if g.exact != nil {
		return g.exact.below(x)
	}
	return normalUpTo(x, g.sigma)
}

func normalUpTo(x, sigma float64) float64 {
	if sigma == 0 {
		return 1
	}
	return math.Erfc(-x/(sigma*math.Sqrt2)) / 2
}

// possible returns some of the N ≥ 1 that neither tail of the law of N̂, given that the group is shown, excludes with a
// probability below tail.
func (g *Group) possible(tail float64) (sizes []float64) {
	shown := func(n float64) float64 { return 1 - g.upTo(g.least-n) }
	tooSmall := func(n float64) bool { return 1-g.below(g.size-n) <= tail*shown(n) }
	tooLarge := func(n float64) bool { return g.upTo(g.size-n)-g.upTo(g.least-n) <= tail*shown(n) }
	most := math.Ceil(g.size + 40*g.sigma + 2)
	from := first(0, most, func(n float64) bool { return !tooSmall(n) })
	to := max(from, first(from, most, tooLarge)-1)
	if surely := func(n float64) bool { return 1-shown(n) <= ignored }; surely(to) {
		to = first(from-1, to, surely) - 1
		sizes = append(sizes, math.Inf(1))
	}
	for n, step := from, max(1, math.Ceil((to-from)/mostSizes)); n <= to; n += step {
		sizes = append(sizes, n)
	}
	return sizes
}

// part is the clients in some cells of a group.
type part struct {
	*Group
	estimate float64
	cells    []int
	law      pair
}

func (g *Group) part(cells []int) *part {
	t, p := g.table, &part{Group: g, estimate: g.table.estimate(cells), cells: cells}
	if g.exact != nil {
		in := make(map[int]bool, len(cells))
		for _, j := range cells {
			in[j] = true
		}
		rest := slices.DeleteFunc(slices.Clone(g.cells), func(j int) bool { return in[j] })
		p.law = exactPair{t.sum(cells), t.sum(rest)}
		return p
	}
	variance := func(all, more float64) float64 {
		return t.bins.Weighted(t.weights(g.cells, all, cells, more)).Variance()
	}
	inside, all, difference := variance(0, 1), variance(1, 0), variance(-1, 1)
	p.law = normalPair{part: inside, all: all, covariance: (inside + all - difference) / 2, step: 1}
	return p
}

// tooLow reports whether s is below the part's share: Â − s·N̂ would be this large too rarely, for each possible N.
func (p *part) tooLow(s float64) bool {
	return p.always(s, func(lo, _ float64) bool { return lo > 0 },
		func(all, above, _ float64) bool { return above <= p.tail*all })
}

// tooHigh reports whether s is above the part's share.
func (p *part) tooHigh(s float64) bool {
	return p.always(s, func(_, hi float64) bool { return hi < 0 },
		func(all, _, below float64) bool { return below <= p.tail*all })
}

// always reports whether a test rejects s for each possible N, by the interval of Â − s·N̂ or by its tails.
func (p *part) always(s float64, interval func(lo, hi float64) bool, tails func(all, above, below float64) bool) bool {
	for _, n := range p.sizes {
		var rejects bool
		if math.IsInf(n, 1) && p.exact == nil && len(p.table.counts) <= mostWeighed {
			rejects = interval(p.table.interval(p.table.weights(p.Group.cells, -s, p.cells, 1), 1-2*p.tail))
		} else {
			rejects = tails(p.law.tails(s, p.estimate-s*p.size, p.least-n))
		}
		if !rejects {
			return false
		}
	}
	return true
}
