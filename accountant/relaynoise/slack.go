package relaynoise

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/task"
)

// slack returns the curve of a noise with a rest cell d: the other cells draw independently from one table f, and d
// gets what they leave of the total. Two copies of the curve's pair f₁ bound every two messages. One copy bounds d
// against any other (docs/proofs/events.md, Theorem 7). With π the pair f(u), f(u+1) and o its overlap,
//
//	f₁ = π with probability 1−τ, else an infinite loss;  τ = t/((1−t)·o²),  t ≥ Pr[ΣZ ≥ total]      (11)
func slack(n *task.Noise) (*Curve, error) {
	laws, _ := tables(n)
	f := laws[0]
	if n.Cells > maxSlackCells || (n.Cells-1)*uint64(len(f)-1) > maxSlackSum {
		return nil, invalid.Field("noise.cells", strconv.FormatUint(n.Cells, 10), "at most "+strconv.Itoa(maxSlackCells)+
			", with at most "+strconv.Itoa(maxSlackSum)+" dummies of all cells but "+strconv.FormatUint(*n.Rest, 10))
	}
	cell, err := oneCell(f, 1)
	if err != nil {
		return nil, err
	}
	overlap := 0.0
	for u, p := range f {
		overlap += min(p, at(f, u+1))
	}
	over := exceeds(f, n.Cells-1, *n.Total)
	tau := over / ((1 - over) * overlap * overlap) * (1 + 1e-9)
	if !(over < .5 && tau < 1) {
		return nil, invalid.Field("noise.total", strconv.FormatUint(*n.Total, 10), "one that the cells other than "+
			strconv.FormatUint(*n.Rest, 10)+" rarely exceed")
	}
	for i := range cell.p {
		cell.p[i] *= 1 - tau
		cell.q[i] *= 1 - tau
	}
	if tau > 0 {
		cell.p, cell.q = append(cell.p, tau), append(cell.q, 0)
	}
	return &Curve{cell: cell}, nil
}

// exceeds returns an upper bound on the probability that as many independent numbers with the law f add up to total or
// more: Chernoff's bound at about its best rate. It is 0 if they cannot exceed the total: if they just reach it, every
// number is the table's last, and so the pair of one cell already has an infinite loss.
func exceeds(f []float64, numbers, total uint64) float64 {
	if total >= numbers*uint64(len(f)-1) {
		return 0
	}
	log := func(rate float64) float64 { // ln of the bound; convex in rate
		sum, last := 0.0, float64(len(f)-1)
		for z, p := range f {
			sum += p * math.Exp(rate*(float64(z)-last))
		}
		return float64(numbers)*(math.Log(sum)+rate*last) - rate*float64(total)
	}
	lo, hi := 0.0, 1.0
	for hi < 64 && log(2*hi) < log(hi) {
		hi *= 2
	}
	hi *= 2
	for range 60 { // golden section would need fewer steps; these take some 10 µs each
		third := (hi - lo) / 3
		if log(lo+third) < log(hi-third) {
			hi -= third
		} else {
			lo += third
		}
	}
	return min(1, math.Exp(min(0, log((lo+hi)/2)))*(1+1e-9*float64(numbers)))
}

// Slack returns a law with a rest cell that meets the target, with a mean of at most most dummies over all cells; most
// = 0 means no limit. The target's epochs are copies of [Curve.Law], as many as one world has letters other than rest's
// (docs/proofs/events.md). Of Laplace and Gaussian tables it takes that with the least standard deviation.
func Slack(cells, rest uint64, target Target, most float64) (*task.Noise, error) {
	if err := target.check(); err != nil {
		return nil, err
	}
	if cells < 3 || cells > maxSlackCells || rest >= cells {
		return nil, invalid.Field("cells", strconv.FormatUint(cells, 10), "3 to "+strconv.Itoa(maxSlackCells)+
			", and a rest cell among them")
	}
	law := func(table []uint64) *task.Noise { return target.withRest(cells, rest, table) }
	var found *task.Noise
	least, fewest := math.Inf(1), math.Inf(1)
	take := func(table []uint64) {
		if table == nil {
			return
		}
		n, variance := law(table), newLaw(0, floats(table)).Variance()
		fewest = min(fewest, float64(*n.Total))
		if variance < least && (most == 0 || float64(*n.Total) <= most*(1+1e-9)) {
			found, least = n, variance
		}
	}
	if !target.Gaussian {
		take(target.slackLaplace(law))
	}
	for _, part := range []float64{.01, .03, .1} {
		take(target.gaussian(part, maxLongTable, law))
	}
	switch {
	case found != nil:
		return found, nil
	case fewest < math.Inf(1):
		return nil, invalid.Field("dummies", decimal.Format(most, -1), "at least "+decimal.Format(fewest, -1)+
			", or a larger epsilon or delta")
	}
	return nil, tooFew(most)
}

// maxSlackCells is the largest number of cells for which a task with a rest cell stays within some hundred thousand
// dummies.
const maxSlackCells = 1 << 12

// maxSlackSum is the largest sum of the cells other than the rest cell whose law may be computed: in a second, and in
// some hundred megabytes. The total bounds nothing: a task may state any.
const maxSlackSum = 1 << 21

// withRest returns the noise of a table with the least total whose τ is a fiftieth of δ over all copies.
func (c Target) withRest(cells, rest uint64, table []uint64) *task.Noise {
	f := newLaw(0, floats(table))
	overlap := 0.0
	for u, p := range f.Mass {
		overlap += min(p, at(f.Mass, u+1))
	}
	enough := .02 * c.Delta / float64(2*c.Epochs) * overlap * overlap
	others := int(cells - 1)
	total := uint64(least(others*len(table)/2, others*(len(table)-1), func(total int) bool {
		return exceeds(f.Mass, cells-1, uint64(total)) <= enough/(1+enough)
	}))
	return &task.Noise{Kind: task.NoiseCells, Cells: cells, Tables: [][]uint64{table}, Total: &total, Rest: &rest}
}

// slackLaplace returns the Laplace table with the least noise for a law with a rest cell that meets the target, or nil.
func (c Target) slackLaplace(law func(table []uint64) *task.Noise) (found []uint64) {
	lo, hi := c.Epsilon/float64(4*c.Epochs), c.Epsilon
	for hi-lo > 1e-3*lo {
		eps := (lo + hi) / 2
		table := func(at int) []uint64 { return Laplace(eps, eps, at, 2*at) }
		keeps := func(at int) bool { return c.keeps(law(table(at))) }
		far := int(min(max(8, 40/eps), maxLongTable/2-1))
		if keeps(far) {
			found, lo = table(least(1, far, keeps)), eps
		} else {
			hi = eps
		}
	}
	return found
}

// withRest sets the laws of a noise with a rest cell.
func (l *Laws) withRest(n *task.Noise) {
	laws, _ := tables(n)
	f, total := laws[0], int(*n.Total)
	// By cell: the others but two leave room for it.
	below, sum := power(f, int(n.Cells-2)), 0.0
	for i, p := range below {
		sum += p
		below[i] = sum
	}
	weights := make([]float64, len(f))
	for z, p := range f {
		if left := total - z; left >= 0 {
			weights[z] = p * below[min(left, len(below)-1)]
		}
	}
	law := newLaw(0, weights)
	others := power(f, int(n.Cells-1))
	first := max(0, total-len(others)+1) // The least that the others leave.
	rest := make([]float64, total-first+1)
	for i := range rest {
		rest[i] = at(others, total-first-i)
	}
	left := newLaw(first, rest)
	for j := range n.Cells {
		if j == *n.Rest {
			l.Cells = append(l.Cells, left)
		} else {
			l.Cells = append(l.Cells, law)
		}
	}
}

// power returns the law of the sum of as many independent numbers with the law f.
func power(f []float64, times int) []float64 {
	length, size := times*(len(f)-1)+1, 1
	for size < length {
		size *= 2
	}
	x := make([]complex128, size)
	for i, p := range f {
		x[i] = complex(p, 0)
	}
	accountant.Transform(x)
	for i, base := range x {
		one := complex(1, 0)
		for left := times; left > 0; left >>= 1 {
			if left&1 == 1 {
				one *= base
			}
			base *= base
		}
		x[i] = one
	}
	accountant.Transform(x)
	out := make([]float64, length)
	for i := range out {
		out[i] = max(0, real(x[(size-i)%size])/float64(size))
	}
	return out
}
