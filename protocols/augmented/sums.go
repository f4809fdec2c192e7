package augmented

import (
	"sync"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/protocols"
)

// leastExchangeable is the smallest number of cells with a fixed total that [aggregate.sum] takes for independent. By
// formula (3) of [aggregate.Weighted], a sum of them then has at most 1/49 more variance.
const leastExchangeable = 50

// mostSumPoints is the largest support of a sum of cells of which the distribution is computed.
const mostSumPoints = 1 << 15

// newSums implements [protocols.Capabilities.Sum]. The results share a cache.
func newSums() func(a protocols.Aggregate, bins []int) (float64, []float64) {
	known := &sums{known: map[*float64]map[int][]float64{}}
	return func(a protocols.Aggregate, bins []int) (float64, []float64) { return a.(*aggregate).sum(bins, known) }
}

// sum implements [protocols.Capabilities.Sum]. Local randomization makes cells depend on each other. With a rest cell,
// the other cells are independent.
func (a *aggregate) sum(cells []int, known *sums) (float64, []float64) {
	noise := a.m.task.Noise
	if a.m.gamma() > 0 || a.m.exchangeable() && len(a.counts) < leastExchangeable {
		return 0, nil
	}
	first, length := 0.0, 1.0
	times := map[*float64]draws{}
	for _, j := range cells {
		if noise.Rest != nil && uint64(j) == *noise.Rest {
			return 0, nil
		}
		law := a.m.laws().Cells[j]
		of := times[&law.Mass[0]]
		times[&law.Mass[0]] = draws{law.Mass, of.times + int(a.draws)}
		first += float64(a.draws) * (float64(law.First) - law.Mean())
		length += float64(a.draws) * float64(len(law.Mass)-1)
	}
	if length > mostSumPoints {
		return 0, nil
	}
	masses := []float64{1}
	for _, d := range times {
		masses = convolved(masses, known.of(d))
	}
	return first, masses
}

// draws is a number of independent draws of a variable with these probabilities.
type draws struct {
	masses []float64
	times  int
}

// sums caches the probabilities of sums of draws, because most groups of a table have equally many cells. It is safe
// for concurrent use.
type sums struct {
	lock  sync.Mutex
	known map[*float64]map[int][]float64 // By the place of the law's first probability, and the number of draws.
}

// mostSums is the largest number of sums of a law that are cached.
const mostSums = 1 << 8

// of returns the probabilities of the sum of draws.
func (s *sums) of(d draws) []float64 {
	s.lock.Lock()
	defer s.lock.Unlock()
	known := s.known[&d.masses[0]]
	if masses, ok := known[d.times]; ok {
		return masses
	}
	if known == nil || len(known) >= mostSums {
		known = map[int][]float64{}
		s.known[&d.masses[0]] = known
	}
	known[d.times] = power(d.masses, d.times)
	return known[d.times]
}

// convolved returns the probabilities of the sum of two independent variables.
func convolved(a, b []float64) []float64 {
	if len(a) == 1 {
		return b
	}
	size := 1
	for size < len(a)+len(b)-1 {
		size *= 2
	}
	x, y := make([]complex128, size), make([]complex128, size)
	for i, p := range a {
		x[i] = complex(p, 0)
	}
	for i, p := range b {
		y[i] = complex(p, 0)
	}
	accountant.Transform(x)
	accountant.Transform(y)
	for i := range x {
		x[i] *= y[i]
	}
	accountant.Transform(x)
	out := make([]float64, len(a)+len(b)-1)
	for i := range out {
		out[i] = max(0, real(x[(size-i)%size])/float64(size))
	}
	return out
}
