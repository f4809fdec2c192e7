package compose

import "math"

// Outcomes collects the outcomes of a pair (P, Q) on a grid of losses, in one pass and in any order. The zero value
// is not usable: see [NewOutcomes].
type Outcomes struct {
	step   float64
	middle int       // mass[middle] has loss 0.
	alphas []float64 // e^{loss} by index of mass.
	mass   []float64
	beyond float64
}

// NewOutcomes returns a grid of 2·steps steps from −top to top, top in (0, 100].
func NewOutcomes(top float64, steps int) *Outcomes {
	o := &Outcomes{step: top / float64(steps), middle: steps}
	o.mass, o.alphas = make([]float64, 2*steps+1), make([]float64, 2*steps+1)
	for i := range o.alphas {
		o.alphas[i] = math.Exp(float64(i-steps) * o.step)
	}
	return o
}

// Add records an outcome with probability p under P and q under Q. It splits the outcome between the two losses of the
// grid around ln(p/q), keeping both probabilities. Divergences are convex in α = e^ε, so the split outcome's divergence
// is a chord that lies above the true one. A loss above top counts as infinite; a loss below −top counts as −top.
func (o *Outcomes) Add(p, q float64) {
	last := len(o.mass) - 1
	switch {
	case p <= 0:
	case p > q*o.alphas[last]:
		o.beyond += p
	case p <= q*o.alphas[0]:
		o.mass[0] += p
	default:
		i := min(max(int(math.Floor(math.Log(p/q)/o.step))+o.middle, 0), last-1)
		for i > 0 && p < q*o.alphas[i] {
			i--
		}
		for i < last-1 && p > q*o.alphas[i+1] {
			i++
		}
		upper := (p - o.alphas[i]*q) / (o.alphas[i+1] - o.alphas[i])
		o.mass[i] += o.alphas[i] * max(0, q-upper)
		o.mass[i+1] += o.alphas[i+1] * max(0, upper)
	}
}

// Pair returns the pair that dominates the added outcomes. If P's probabilities add up to less than 1, the remainder
// gets the largest loss. The differences in Add are rounded, but [Delta] and [Composition.Delta] raise their results by
// more than that error.
func (o *Outcomes) Pair() *Pair {
	p := &Pair{step: o.step, first: -o.middle, mass: append([]float64(nil), o.mass...), infinity: o.beyond}
	p.normalize()
	return p
}

// regrid returns a pair that dominates p, on a grid with another step. A loss above top becomes infinite.
func (p *Pair) regrid(step, top float64) *Pair {
	steps := int(math.Ceil(top/step)) + 1
	o := NewOutcomes(float64(steps)*step, steps)
	o.beyond = p.infinity
	for i, mass := range p.mass {
		o.Add(mass, mass*math.Exp(-p.loss(i)))
	}
	return o.Pair()
}

// total returns the sum of P's masses.
func (p *Pair) total() float64 {
	sum := p.infinity
	for _, mass := range p.mass {
		sum += mass
	}
	return sum
}

// top returns a loss t such that losses above t, and losses below −t, each have a probability of at most tail.
func (p *Pair) top(tail float64) float64 {
	above, below := 0.0, 0.0
	high, low := len(p.mass)-1, 0
	for ; high > 0 && above+p.mass[high] <= tail; high-- {
		above += p.mass[high]
	}
	for ; low < high && below+p.mass[low] <= tail; low++ {
		below += p.mass[low]
	}
	return math.Max(p.step, math.Max(p.loss(high), -p.loss(low)))
}
