// Package compose accounts for several releases about the same users: T epochs of a task, or
// several tasks.
//
// A pair of distributions (P, Q) dominates a mechanism when its hockey-stick divergence is at
// least the mechanism's for every pair of neighbouring inputs and every order e^ε, ε < 0
// included. Products of dominating pairs dominate compositions, adaptive ones too [ZDW22]
// (Thm 10). With the privacy loss ℓ = ln(P/Q) and its law under P,
//
//	δ(ε) = Σ_ℓ P(ℓ)·(1 − e^{ε−ℓ})₊ + P(∞)                                (1)
//
// and the losses of a product add up: the law of the sum is a convolution, done by FFT.
//
// [FromCurve] builds a dominating pair from a proven bound δ(ε), ε ≥ 0, that holds for both
// orders of every two neighbours; every bound of package accountant does. A privacy
// amplification random variable is not a privacy loss, and a curve's half ε ≥ 0 alone is not a
// pair: convolving either is unsound, and this package offers neither. [Basic] and [Advanced]
// are the textbook theorems, for comparison.
//
// All results are rounded up; see [Composition.Delta] for by how much.
//
// [ZDW22]: https://arxiv.org/abs/2106.08567
//
// [DR14]: https://www.cis.upenn.edu/~aaroth/Papers/privacybook.pdf
package compose

import (
	"fmt"
	"math"

	"github.com/doona-dp/doona/accountant"
)

// Pair is a dominating pair: the law under P of a privacy loss on a grid. Immutable.
type Pair struct {
	step     float64   // grid step
	first    int       // mass[i] has the loss (first+i)·step
	mass     []float64 // P's masses; with infinity they sum to 1
	infinity float64   // P's mass where Q has none
}

// FromCurve returns a pair that dominates every mechanism that is (ε, delta(ε))-DP for all
// ε ≥ 0 with its losses on a grid of size steps up to top. delta must bound both orders of
// every two neighbours; its values at 0, h, 2h, …, top with h = top/steps are what is used.
//
// Let f(α) be the mechanism's divergence of order α = e^ε. f is convex with f(0) = 1, and
// f(α) ≤ 1 − α + α·δ(−ln α) for α < 1, which is the other order's bound. So f is at most the
// lower convex hull F of these values at the grid points, their mirror images and α = 0:
// at the hull's corners f ≤ F, and in between a convex function lies below the chord. Beyond
// top, f ≤ δ(top). And F is itself the divergence of a pair: with the corner α_j's change of
// slope q_j, F(α) = Σ q_j(α_j−α)₊ + δ(top), that is Q(ℓ = ln α_j) = q_j, P = α_j·q_j and
// P(∞) = δ(top). No rounding of losses is needed, as the corners are on the grid.
func FromCurve(delta func(eps float64) (float64, error), top float64, steps int) (*Pair, error) {
	if !(top > 0 && top <= 100) || steps < 2 || steps > 1<<20 {
		return nil, fmt.Errorf("couldn't build a pair: want 0 < top ≤ 100 and 2 to 2^20 steps, got %v and %d", top, steps)
	}
	h := top / float64(steps)
	points := make([]point, 2*steps+2) // α = 0, e^{−top}, …, e^{top}
	points[0] = point{0, 1}
	for i := range steps + 1 {
		d, err := delta(float64(i) * h)
		if err != nil {
			return nil, err
		}
		alpha := math.Exp(float64(i) * h)
		points[steps+1+i] = point{alpha, math.Min(1, d)}
		points[steps+1-i] = point{1 / alpha, 1 - 1/alpha + math.Min(1, d)/alpha}
	}
	return fromHull(points, h, steps), nil
}

// point is a value of F at α.
type point struct{ alpha, value float64 }

// fromHull returns the pair of the lower convex hull of points.
func fromHull(points []point, h float64, steps int) *Pair {
	last := points[len(points)-1]
	p := &Pair{step: h, first: -steps, mass: make([]float64, 2*steps+1), infinity: math.Max(0, last.value)}
	hull, index := points[:1:1], []int{0}
	for i, next := range points[1:] {
		for len(hull) > 1 && slope(hull[len(hull)-2], hull[len(hull)-1]) >= slope(hull[len(hull)-1], next) {
			hull, index = hull[:len(hull)-1], index[:len(index)-1]
		}
		hull, index = append(hull, next), append(index, i+1)
	}
	for i := 1; i < len(hull); i++ {
		change := -slope(hull[i-1], hull[i])
		if i+1 < len(hull) {
			change += slope(hull[i], hull[i+1])
		}
		p.mass[index[i]-1] = math.Max(0, change) * hull[i].alpha
	}
	p.normalize()
	return p
}

func slope(a, b point) float64 { return (b.value - a.value) / (b.alpha - a.alpha) }

// normalize moves what rounding left out of the total mass 1 to the largest loss, upward.
func (p *Pair) normalize() {
	total := p.infinity
	for _, m := range p.mass {
		total += m
	}
	if total < 1 {
		p.mass[len(p.mass)-1] += 1 - total
	}
}

// KRR returns a pair that dominates one release of shuffled k-ary randomized response under
// rule, with the given number of grid steps. What is left beyond the grid has mass at most tail.
func KRR(rule accountant.Rule, k uint64, gamma float64, users uint64, tail float64, steps int) (*Pair, error) {
	top, err := accountant.KRREpsilon(rule, k, gamma, users, tail)
	if err != nil {
		return nil, err
	}
	if top == 0 { // no loss at all, or none worth a grid
		top = 1e-9
	}
	return FromCurve(func(eps float64) (float64, error) {
		return accountant.KRRDelta(rule, k, gamma, users, eps)
	}, top, steps)
}

// Delta returns δ(ε) of the pair, by (1).
func (p *Pair) Delta(eps float64) float64 {
	sum := p.infinity
	for i, m := range p.mass {
		if loss := float64(p.first+i) * p.step; loss > eps {
			sum -= m * math.Expm1(eps-loss)
		}
	}
	return math.Min(1, sum)
}
