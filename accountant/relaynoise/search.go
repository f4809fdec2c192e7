package relaynoise

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/task"
)

// Target is the (ε, δ) that a search for a law must meet: the total over all epochs.
type Target struct {
	Epsilon, Delta float64 // Of all epochs together; ε in (0, 64], δ in (0, 1).
	Epochs         uint64  // ≥ 1.

	// Gaussian leaves out Laplace tables. Beside other laws they cost more than a Gaussian table that meets the same
	// target: composed with enough others, a law costs as much as its losses vary.
	Gaussian bool
}

func (c Target) check() error {
	switch {
	case !(c.Epsilon > 0 && c.Epsilon <= 64):
		return invalid.Field("epsilon", decimal.Format(c.Epsilon, -1), "above 0, at most 64")
	case !(c.Delta > 0 && c.Delta < 1):
		return invalid.Field("delta", decimal.Format(c.Delta, -1), "between 0 and 1")
	case c.Epochs < 1 || c.Epochs > 1<<20:
		return invalid.Field("epochs", strconv.FormatUint(c.Epochs, 10), "1 to 2^20")
	}
	return nil
}

// Total returns the δ of all epochs at the target's ε, by composition ([compose.Delta]).
func (c Target) Total(curve *Curve) float64 {
	switch {
	case c.Epochs == 1:
		return curve.Delta(c.Epsilon)
	case curve.gauss != nil && curve.gamma == 0:
		return curve.gauss.delta(c.Epochs, c.Epsilon)
	}
	return compose.Delta([]compose.Observation{curve.Observation(c.Epochs)}, c.Epsilon, c.Delta)
}

// keeps reports whether a noise has a certificate that meets the target.
func (c Target) keeps(n *task.Noise) bool {
	if c.Epochs == 1 && c.Delta < rounding || n.Total == nil && n.Tilt == nil && c.exceededByOne(n.Tables[0]) {
		return false
	}
	curve, err := New(n)
	return err == nil && c.Total(curve) <= c.Delta
}

// exceededByOne reports whether the dummies of one cell alone, in one epoch, exceed the target. They are a function of
// what a batch reveals of independent cells, so δ(ε) = Σ (f(u−1) − e^ε·f(u))₊ is a lower bound of the curve (2). It
// takes as many steps as the table has weights, where the curve takes their square.
func (c Target) exceededByOne(table []uint64) bool {
	weights, e := floats(table), math.Exp(c.Epsilon)
	sum, delta := 0.0, weights[len(table)-1] // The largest number plus the client's message is impossible without it.
	for u, weight := range weights {
		if sum += weight; u > 0 {
			delta += max(0, weights[u-1]-e*weight)
		}
	}
	return delta > c.Delta*sum*(1+1e-9)
}

// one is the weight of the most likely number of dummies in a table. With it, other weights are rounded by at most 2⁻⁵²
// of the largest, and a table's sum stays below 2⁶³.
const one = 1 << 52

// weights returns the table for 0 to most dummies, given the logarithm of each weight relative to the largest. Weights
// are rounded up, so none is 0.
func weights(most int, log func(z int) float64) []uint64 {
	table := make([]uint64, most+1)
	for z := range table {
		table[z] = uint64(math.Ceil(math.Exp(log(z)) * one))
	}
	return table
}

// Laplace returns the table for 0 to most dummies that rises by factors e^rise up to c and then falls by factors
// e^−fall. rise and fall must be above 0.
func Laplace(rise, fall float64, c, most int) []uint64 {
	return weights(most, func(z int) float64 { return min(rise*float64(z-c), -fall*float64(z-c)) })
}

// Gaussian returns the table of a discrete Gaussian with the given parameter σ > 0 around c, from 0 to 2c.
func Gaussian(sigma float64, c int) []uint64 {
	return weights(2*c, func(z int) float64 { d := float64(z-c) / sigma; return -d * d / 2 })
}

// Independent returns a law of independent cells that meets the target, with a mean of at most most dummies per cell;
// most = 0 means no limit. With a limit, the law has the least standard deviation. Without one, it has the fewest
// dummies among laws whose standard deviation is within a hundredth of the least. Independent tries Laplace laws, which
// are best for one epoch, and Gaussian laws, which are best for many.
func Independent(cells uint64, target Target, most float64) (*task.Noise, error) {
	if err := target.check(); err != nil {
		return nil, err
	}
	tables := target.gaussians()
	if !target.Gaussian {
		tables = append(target.laplaces(), tables...)
	}
	var laws []Law
	least, near, limit := math.Inf(1), 1.0, most*(1+1e-9)
	if most == 0 {
		near, limit = 1.02, math.Inf(1)
	}
	for _, table := range tables {
		law := newLaw(0, floats(table))
		if laws = append(laws, law); law.Mean() <= limit {
			least = min(least, law.Variance())
		}
	}
	best := -1
	for i, law := range laws {
		fits := law.Variance() <= least*near && law.Mean() <= limit
		if fits && (best < 0 || law.Mean() < laws[best].Mean()) {
			best = i
		}
	}
	if best < 0 {
		return nil, tooFew(most)
	}
	return &task.Noise{Kind: task.NoiseCells, Cells: cells, Tables: tables[best : best+1]}, nil
}

func tooFew(most float64) error {
	return invalid.Field("dummies", decimal.Format(most, -1), "more, or a larger epsilon or delta")
}

// FixedTotal returns a law that meets the target and adds the same total number of dummies to every batch. With few
// cells, the errors of the cells then nearly cancel. FixedTotal tries a Laplace table, which is best for few epochs,
// and for several epochs also Gaussian ones. It returns the law with the least standard deviation of a cell.
func FixedTotal(cells uint64, target Target) (*task.Noise, error) {
	if err := target.check(); err != nil {
		return nil, err
	}
	if cells < 2 || cells > maxFixedCells {
		return nil, invalid.Field("cells", strconv.FormatUint(cells, 10), "2 to "+strconv.Itoa(maxFixedCells))
	}
	var found *task.Noise
	if !target.Gaussian {
		found = target.fixedLaplace(cells)
	}
	if n := target.fixedGaussian(cells); n != nil && (found == nil || variance(n) < variance(found)) {
		found = n
	}
	if found == nil {
		return nil, invalid.Field("cells", strconv.FormatUint(cells, 10), "fewer, or a larger epsilon or delta")
	}
	return found, nil
}

// fixedGaussian returns the fixed total of Gaussian tables, or nil if none meets the target. For one epoch it is nil,
// because a Laplace table is better, unless the target leaves out Laplace tables.
func (c Target) fixedGaussian(cells uint64) *task.Noise {
	law := func(table []uint64) *task.Noise { return fixed(cells, table, len(table)/2) }
	for _, part := range []float64{.1, .03, .01} {
		if c.Epochs == 1 && !c.Gaussian {
			break
		}
		if table := c.gaussian(part, maxPairTable, law); table != nil {
			return law(table)
		}
	}
	return nil
}

// fixed returns the noise of cells with one table and a total of at dummies per cell.
func fixed(cells uint64, table []uint64, at int) *task.Noise {
	total := cells * uint64(at)
	return &task.Noise{Kind: task.NoiseCells, Cells: cells, Tables: [][]uint64{table}, Total: &total}
}

// variance returns the variance of the first cell of a noise with a fixed total that [New] accepts.
func variance(n *task.Noise) float64 {
	l := &Laws{}
	l.fixedTotal(n)
	return l.Cells[0].Variance()
}

// fixedLaplace returns the fixed total of Laplace tables with the largest ε per epoch that meets the target, and the
// fewest dummies for it, or nil. The tables end at 3·at, which loses nothing: the total is fixed.
func (c Target) fixedLaplace(cells uint64) *task.Noise {
	law := func(eps float64, at int) *task.Noise { return fixed(cells, Laplace(eps/2, eps/2, at, 3*at), at) }
	enough := func(eps float64, from int) (at int) { // The first of from, 2·from, … that meets the target; 0: none.
		for at = from; at <= maxPairTable; at *= 2 {
			if c.keeps(law(eps, at)) {
				return at
			}
		}
		return 0
	}
	eps, last := c.Epsilon*(1-1e-9), 4
	if c.Epochs > 1 {
		found := false // For a larger ε per epoch, no fewer dummies are enough.
		eps = c.oneEpoch(func(eps float64) bool {
			at := enough(eps, last)
			last, found = max(last, at), found || at > 0
			return at > 0
		})
		if !found {
			return nil
		}
	}
	at := enough(eps, 4)
	if at == 0 {
		return nil
	}
	return law(eps, least(at/2, at, func(at int) bool { return c.keeps(law(eps, at)) }))
}

// maxFixedCells is the largest number of cells for a fixed total. For more cells, checking the certificate takes too
// long for the little that it gains.
const maxFixedCells = 64

// maxPairTable is the largest number of weights of a table for which [New] enumerates two cells. maxLongTable is the
// largest for which it composes two copies of one cell's pair ([oneCell]).
const (
	maxPairTable = 1 << 10
	maxLongTable = 1 << 12
)

// pairOf returns the noise of two independent cells with the given table. The curve of independent cells with one table
// does not depend on their number.
func pairOf(table []uint64) *task.Noise {
	return &task.Noise{Kind: task.NoiseCells, Cells: 2, Tables: [][]uint64{table}}
}

// laplaces returns Laplace tables that meet the target, for several splits of ε between the rising and the falling
// side.
func (c Target) laplaces() (tables [][]uint64) {
	shares := []float64{.5} // near the smallest variance
	for share := .35; c.Epochs == 1 && share < .85; share += .025 {
		shares = append(shares, share)
	}
	for _, share := range shares {
		eps := c.oneEpoch(func(eps float64) bool {
			_, _, ok := c.laplaceEnds(share, eps)
			return ok
		})
		if table := c.laplace(share, eps); table != nil {
			tables = append(tables, table)
		}
	}
	return tables
}

// laplace returns the Laplace table with the fewest dummies for ε = eps per epoch, or nil if none meets the target.
// share of ε goes to the rising side.
func (c Target) laplace(share, eps float64) []uint64 {
	c0, most, ok := c.laplaceEnds(share, eps)
	if !ok {
		return nil
	}
	rise, fall := share*eps, (1-share)*eps
	at := least(0, c0, func(at int) bool { return c.keeps(pairOf(Laplace(rise, fall, at, at+most))) })
	return Laplace(rise, fall, at, at+most)
}

// laplaceEnds returns the distances from the peak of a Laplace table to its ends, and whether that table meets the
// target. Each side is cut where its δ is a few hundredths of one epoch's δ.
func (c Target) laplaceEnds(share, eps float64) (c0, most int, ok bool) {
	rise, fall := share*eps, (1-share)*eps
	peak := 1 / (1/-math.Expm1(-rise) + 1/-math.Expm1(-fall) - 1)
	far := max(0, math.Log(64*peak/c.Delta*float64(c.Epochs))) + 1
	if far/rise+far/fall > maxPairTable { // New would refuse the table, which could also be too large for memory.
		return 0, 0, false
	}
	c0, most = int(far/rise), int(far/fall)
	return c0, most, c.keeps(pairOf(Laplace(rise, fall, c0, c0+most)))
}

// oneEpoch returns about the largest ε per epoch at which laws with almost no tail meet the target. If the target has
// one epoch, the result is slightly below the target's ε, because rounded weights must not exceed that ε.
func (c Target) oneEpoch(keeps func(eps float64) bool) float64 {
	lo, hi := c.Epsilon*(1-1e-9), c.Epsilon
	if c.Epochs > 1 {
		lo = c.Epsilon / float64(c.Epochs) / 2
	}
	for hi-lo > 1e-3*lo {
		if mid := (lo + hi) / 2; keeps(mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// gaussians returns Gaussian tables that meet the target for independent cells, for several places to cut the tails.
func (c Target) gaussians() (tables [][]uint64) {
	most := maxLongTable
	if c.Epochs == 1 { // Laplace tables are better, and composing long tables takes seconds.
		most = maxPairTable
	}
	for _, part := range []float64{.01, .03, .1} {
		if table := c.gaussian(part, most, pairOf); table != nil {
			tables = append(tables, table)
		}
	}
	return tables
}

// gaussian returns the narrowest Gaussian table, of at most most weights, whose law meets the target, or nil. The table
// is cut where its tail's δ is about part of one epoch's δ.
func (c Target) gaussian(part float64, most int, law func(table []uint64) *task.Noise) []uint64 {
	cut := part * c.Delta / float64(c.Epochs)
	table := func(i int) []uint64 {
		sigma := math.Exp(float64(i) / 256)
		return Gaussian(sigma, int(math.Ceil(sigma*math.Sqrt(max(1, -2*math.Log(cut*sigma))))))
	}
	const lowest, highest = -256, 2048
	last := least(lowest, highest, func(i int) bool { return len(table(i+1)) > most })
	i := least(lowest, last, func(i int) bool { return c.keeps(law(table(i))) })
	if !c.keeps(law(table(i))) {
		return nil
	}
	return table(i)
}

// least returns the smallest number from lo to hi for which holds is true, or hi if there is none. If holds is true for
// a number, it must be true for all larger ones.
func least(lo, hi int, holds func(int) bool) int {
	for lo < hi {
		if mid := (lo + hi) >> 1; holds(mid) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

func floats(table []uint64) []float64 {
	out := make([]float64, len(table))
	for z, weight := range table {
		out[z] = float64(weight)
	}
	return out
}
