// Package compose accounts for several observations of the same users together: several messages of one report, T
// epochs of a task, or several tasks. Its results are upper bounds.
//
// An observation is a pair of distributions (P, Q): what a verifier sees if the client's value is x, and if it is x′.
// Its curve, the maximum over both directions, is
//
//	δ(ε) = max{ Σ(P − e^ε·Q)₊, Σ(Q − e^ε·P)₊ },   ε ≥ 0                              (1)
//
// A pair (A, B) dominates another if its curve lies on or above the other's at every real ε. The product of dominating
// pairs dominates the product of the pairs, even if observations are chosen adaptively ([ZDW22], Theorem 10). So the
// curve of the product of this package's pairs bounds the curve of all observations. For ε < 0 a curve follows from the
// other direction, δ(−ε) = 1 − e^−ε + e^−ε·δ(ε). (1) is symmetric, so its values at ε ≥ 0 suffice. Convolving privacy
// amplification random variables ([BBGN19]) is unsound: they are not privacy losses.
//
// Discretization. Between the points α_i = e^{ih} of a grid, (1) is replaced by its chord in α, which lies above it
// because it is convex ("connect the dots", [DGKKM22]). The result is the curve of the pair with masses
//
//	q_i = s_i − s_{i−1},  p_i = α_i·q_i,  p_{−i} = q_i,  s_i = (δ_{i+1} − δ_i)/(α_{i+1} − α_i)   (2)
//
// on privacy losses ih, and mass δ_G on an infinite loss beyond the last point.
//
// Convolution. With Λ(θ) = ln E_P[e^{θS}], the sum S of the losses is convolved under the tilted measure
// e^{θs−Λ(θ)}dP, by a Fourier transform. The bulk of that measure determines the answer:
//
//	δ(ε) = E_P[(1 − e^{ε−S})₊] = E_θ[f(S)],  f(s) = e^{Λ−θs}(1 − e^{ε−s})₊ ≤ F = e^{Λ−θε}·θ^θ/(1+θ)^{1+θ}   (3)
//
// [Delta] convolves many different observations, in a window around the tilted mean. Sums outside of the window wrap
// around, which can only raise the result. What they should contribute is at most F times their tilted probability,
// which Chernoff's bound gives; [Delta] adds it. [Delta] also adds F times the rounding error of the transform.
// [Repeat] convolves copies of one pair on a grid that holds every sum, down to any δ. [Basic] and [Advanced] are the
// textbook theorems, for comparison.
//
// [DGKKM22]: https://arxiv.org/abs/2207.04380
// [ZDW22]: https://arxiv.org/abs/2106.08567
//
// [DR14]: https://www.cis.upenn.edu/~aaroth/Papers/privacybook.pdf
package compose

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
)

// Pair is a dominating pair: the law under P of a privacy loss on a grid. Immutable.
type Pair struct {
	step     float64   // grid step
	first    int       // mass[i] has the loss (first+i)·step
	mass     []float64 // P's masses; with infinity they sum to 1
	infinity float64   // P's mass on outcomes impossible under Q
}

// FromCurve returns a pair that dominates every mechanism that is (ε, delta(ε))-DP for all ε ≥ 0. Its losses are on a
// grid of steps points up to top. delta must bound the divergence of every two neighbouring inputs in both directions.
// It is evaluated at 0, h, 2h, …, top with h = top/steps.
//
// Let f(α) be the mechanism's divergence of order α = e^ε. f is convex with f(0) = 1, and f(α) ≤ 1 − α + α·δ(−ln α) for
// α < 1, which is the bound of the other direction. So f is at most the lower convex hull F of these values at the grid
// points, their mirror images and α = 0: at the hull's corners f ≤ F, and between them f is convex and lies below the
// chord. Beyond top, f ≤ δ(top). F is itself the divergence of a pair. With q_j the change of slope at the corner α_j,
// F(α) = Σ q_j(α_j−α)₊ + δ(top). That is (2) with Q(ℓ = ln α_j) = q_j, P = α_j·q_j and P(∞) = δ(top). Losses need no
// rounding, because the corners are on the grid.
func FromCurve(delta func(eps float64) (float64, error), top float64, steps int) (*Pair, error) {
	if !(top > 0 && top <= 100) || steps < 2 || steps > 1<<20 {
		return nil, invalid.Field("grid", strconv.Itoa(steps)+" steps up to the top "+decimal.Format(top, -1),
			"2 to 2^20 steps, and a top in (0, 100]")
	}
	h := top / float64(steps)
	var failed error
	p := fromCorners(hull(func(eps float64) float64 {
		d, err := delta(eps)
		if failed == nil {
			failed = err
		}
		return d
	}, h, steps, 1), h)
	if failed != nil {
		return nil, failed
	}
	p.normalize()
	return p, nil
}

// corner is a point of a curve at loss at·h, where e^{at·h} = α = 1 + above.
type corner struct {
	at           int
	above, delta float64
}

func slope(a, b corner) float64 { return (b.delta - a.delta) / (b.above - a.above) }

// middle returns the slope of the chord between a corner and its mirror image (1/α, 1 − 1/α + δ/α). At α = 1 it
// returns the slope of a smooth curve that is its own mirror image.
func (c corner) middle() float64 { return -(1 - c.delta) / (2 + c.above) }

// hull returns the corners with α ≥ 1 of the lower convex hull of a curve, sampled on the grid from 0 to steps and at
// the mirror images of these points. The corners with α < 1 are mirror images of those returned. A point above the
// chord between the first corner and its mirror image is no corner. So a curve that is loose near 0 has its first
// corner further out, and the masses still add up to 1. Beyond steps/6, hull samples only one point in every, counted
// back from steps. The values may be any upper bounds: the true curve is convex in α, so it lies below their hull too.
// NaN, and values above 1, are read as 1.
func hull(curve func(eps float64) float64, h float64, steps, every int) (corners []corner) {
	for i := 0; i <= steps; i++ {
		if i > steps/6 && (steps-i)%every != 0 {
			continue
		}
		c := corner{i, math.Expm1(float64(i) * h), max(0, curve(float64(i)*h))}
		if !(c.delta <= 1) {
			c.delta = 1
		}
		for n := len(corners); n > 1 && slope(corners[n-2], corners[n-1]) >= slope(corners[n-1], c); n-- {
			corners = corners[:n-1]
		}
		if n := len(corners); n > 0 {
			c.delta = math.Min(c.delta, corners[n-1].delta) // curves never rise
		}
		corners = append(corners, c)
	}
	for len(corners) > 1 && corners[0].middle() >= slope(corners[0], corners[1]) {
		corners = corners[1:]
	}
	return corners
}

// fromCorners returns the pair with the masses (2) (see the package comment) of a hull. The pair is symmetric, because
// the curve covers both directions.
func fromCorners(corners []corner, h float64) *Pair {
	last := corners[len(corners)-1]
	p := &Pair{step: h, first: -last.at, mass: make([]float64, 2*last.at+1), infinity: last.delta}
	before := corners[0].middle()
	for j, c := range corners {
		after := 0.0
		if j+1 < len(corners) {
			after = slope(c, corners[j+1])
		}
		q := max(0, after-before)
		p.mass[last.at+c.at] += (1 + c.above) * q // (2); at loss 0 both lines add to one mass
		p.mass[last.at-c.at] += q
		before = after
	}
	return p
}

// loss returns the privacy loss of mass[i].
func (p *Pair) loss(i int) float64 { return float64(p.first+i) * p.step }

// normalize adds the mass that rounding lost, 1 minus the total, to the largest loss. That only raises divergences.
func (p *Pair) normalize() {
	total := p.infinity
	for _, m := range p.mass {
		total += m
	}
	if total < 1 {
		p.mass[len(p.mass)-1] += 1 - total
	}
}

// KRR returns a pair that dominates one release of shuffled k-ary randomized response under rule, with the given
// number of grid steps. The mass beyond the grid is at most tail.
func KRR(rule accountant.Rule, k uint64, gamma float64, users uint64, tail float64, steps int) (*Pair, error) {
	top, err := accountant.KRREpsilon(rule, k, gamma, users, tail)
	if err != nil {
		return nil, err
	}
	if top == 0 { // the loss is zero or negligible; a grid needs a top above 0
		top = 1e-9
	}
	return FromCurve(func(eps float64) (float64, error) {
		return accountant.KRRDelta(rule, k, gamma, users, eps)
	}, top, steps)
}

// Delta returns δ(ε) of the pair, Σ_ℓ P(ℓ)·(1 − e^{ε−ℓ})₊ + P(∞).
func (p *Pair) Delta(eps float64) float64 {
	sum := p.infinity
	for i, m := range p.mass {
		if loss := p.loss(i); loss > eps {
			sum -= m * math.Expm1(eps-loss)
		}
	}
	return math.Min(1, sum)
}
