// Package design holds the noise of protocol correlated, which hides the messages of n_min clients. It contains the
// certificate that the noise suffices, and the search for the least noise. The files follow sections of [GKMPS21]:
//
//	lattice.go      the noise atoms and the right inverse of their matrix (section 4.4)
//	noise.go        the distribution of one atom's noise, and moments of its privacy loss (section 4.3)
//	table.go        the same with a bound on the size of jumps, which the paper does not have
//	certificate.go  the claim of a design, for every pair of inputs (section 4.2, instead of Theorem 8)
//	slots.go        how many messages one client sends, and so how rarely they do not fit its slots
//	search.go       the design of fewest messages; it proves nothing, and clients do not link it
//
// docs/proofs/correlated.md has the proof as one text. A certificate accepts a design from any source: from a task's
// parameters when a client checks it, or from the search when an owner creates it.
//
// [GKMPS21]: https://arxiv.org/abs/2109.13158
package design

import "math"

// Design describes the noise of the protocol. A certificate proves a privacy claim from it.
type Design struct {
	Top    uint64  // Δ, the largest input.
	Sparse bool    // Values are 1-sparse vectors: a substitution may move a value to another coordinate.
	Star   float64 // ε*/Δ: the central noise is NB(1, e^{-star}) messages +1 and independently as many -1.
	Pair   Noise   // Noise of the atom {-1,+1}.
	Levels []Noise // For each level, the noise of every atom of that level.
	Zero   Noise   // Noise of the atom {0}. There is none if R = 0.
	coarse bool    // Set during a search: large tables are scaled down, so the design proves nothing.
}

// The proof of a claim.
//
// Let C be the square inverse (L1) of lattice.go. With it, the shuffled messages are a bijection of three things: the
// sum S = Σx + z⁺ - z⁻; y₀ = c[{-1,+1}] + z⁻ + z₀; and y_s = c[s] + z_s for every other atom s. That is [GKMPS21]
// (Theorem 8), as an equality. Take inputs i and j of the target, with d = c_i - c_j and t = i - j. The privacy loss is
// then a sum of independent losses: ln P(z)/P(z+d_s) of each y_s, and one of (S, y₀). For the latter, let a = z⁺ - z⁻,
// of law ∝ p^|a| with p = e^{-star}. The conditional law of z⁻ is that of max(0,-a) + g, g of law ∝ p^{2g}. So, given
// a, the loss is
//
//	star·(|a+t| - |a|)  and that of z₀ + g against a shift by d₀ + max(0, -a) - max(0, -a-t)     (P1)
//
// g is the same on both sides, so it can be dropped: adding it is post-processing.
//
// For a set T of values of the z's, c(θ) = θ^θ/(1+θ)^(1+θ) and every θ > 0, since (1-e^{-x})₊ ≤ c(θ)·e^{θx},
//
//	δ_ij(ε) ≤ Pr[z ∉ T] + c(θ)·e^{-θε}·E[e^{θ·loss} 1{z ∈ T}]                        (P2)
//
// and ln E splits into the sum of the moments (M1) of noise.go over the atoms. Each moment F is convex in d and at most
// 0 at d = 0. Two inequalities follow: for the two nodes (L2) of lattice.go that share depth ℓ, and for the two that i
// and j may have in one atom,
//
//	F(m) + F(2^ℓ-m) ≤ F(2^ℓ) + F(0),   F(m-m') ≤ max(F(m), F(-m')) for m, m' ≥ 0         (P3)
//
// Between evaluated shifts, F lies below its chords. So the right side of (P2) has a bound that is a sum of one term of
// i and one of j, except for (S, y₀), whose term depends only on t and d₀. This covers every pair of inputs, by classes
// of neighbouring inputs if there are many.

// Bound returns an upper bound on δ(eps): the right side of (P2) above, maximised over all ordered pairs of inputs. The
// set T leaves out a probability of about miss for every atom with a negative shift.
func (d *Design) Bound(eps, theta, miss float64) float64 {
	return d.Chernoff(theta, miss).Delta(eps)
}

// Chernoff is the bound (P2) on δ at one θ, for every ε ≥ 0. It is the maximum of missed + (1+e^ε)·far + e^{log−θε}
// over some pairs of inputs.
type Chernoff struct {
	theta float64
	pairs []pairBound
}

// pairBound is what a pair of inputs contributes to the bound (P2): the probabilities of rare events, and the logarithm
// of the remaining term at ε = 0.
type pairBound struct {
	rare
	log float64
}

// rare is what rare events of the atoms add to the bound (P2). missed is Pr[z ∉ T]. far is the statistical distance
// between the actual noise and the noise that the proof assumes. Noise at a distance ρ changes δ(ε) by at most
// (1+e^ε)·ρ.
type rare struct{ missed, far float64 }

func (r rare) plus(o rare) rare { return rare{r.missed + o.missed, r.far + o.far} }

// largest returns, field by field, the larger value.
func (r rare) largest(o rare) rare { return rare{max(r.missed, o.missed), max(r.far, o.far)} }

// Chernoff returns the bound (P2) on δ at one θ, for all ε.
func (d *Design) Chernoff(theta, miss float64) Chernoff {
	return Chernoff{theta, newCertificate(d, theta, miss).worst()}
}

// Delta returns the bound on δ at eps, rounded up.
func (b Chernoff) Delta(eps float64) (most float64) {
	for _, p := range b.pairs {
		most = max(most, p.missed+(1+math.Exp(eps))*p.far+math.Exp(p.log-b.theta*eps))
	}
	return most * (1 + 1e-9)
}

// chord is the piecewise linear function through points (x, y) with ascending x. Beyond the points it is constant.
type chord struct{ x, y []float64 }

func (c *chord) add(x, y float64) { c.x, c.y = append(c.x, x), append(c.y, y) }

func (c *chord) highest() (y float64) {
	y = c.y[0]
	for _, v := range c.y {
		y = max(y, v)
	}
	return y
}

func (c *chord) last() float64 { return c.x[len(c.x)-1] }

func (c *chord) at(x float64) float64 {
	if x <= c.x[0] {
		return c.y[0]
	}
	for k := 1; k < len(c.x); k++ {
		if x <= c.x[k] {
			f := (x - c.x[k-1]) / (c.x[k] - c.x[k-1])
			return c.y[k-1] + f*(c.y[k]-c.y[k-1])
		}
	}
	return c.y[len(c.y)-1]
}

// certificate holds the moments (M1) of a design's atoms at one θ, and its rare events.
type certificate struct {
	*Design
	theta  float64
	pair   chord      // Moment (M1) of {-1,+1} by shift, at least 0.
	levels [][2]chord // By level: moment (M1) of an atom by |shift|, for shifts ≥ 0 and ≤ 0, at least 0.
	missed []rare     // By level: rare events of an atom, for shifts ≤ 0.
	always [2]rare    // [0]: rare events at shifts ≥ 0, the largest over levels. [1]: those of {-1,+1}.
	zeros  [2]side    // What an input 0 contributes, before and after the substitution.
}

func newCertificate(d *Design, theta, miss float64) *certificate {
	c := &certificate{Design: d, theta: theta}
	reach := int64(d.Top)
	pair := d.law(d.Pair, reach, miss)
	for eighth := int64(-8); eighth <= 8; eighth++ {
		shift := reach * eighth / 8
		if eighth == -8 || c.pair.last() != float64(shift) {
			c.pair.add(float64(shift), max(pair.moment(theta, shift, true), 0))
		}
	}
	c.always[1] = rare{pair.missed(true), d.Pair.excess()}
	if d.Zero.R > 0 {
		law := newLaw(d.Zero, 1, miss)
		c.zeros[0] = side{max(law.moment(theta, 1, false), 0), rare{law.missed(false), d.Zero.excess()}}
		c.zeros[1] = side{max(law.moment(theta, -1, true), 0), rare{law.missed(true), d.Zero.excess()}}
	}
	for l, n := range d.Levels {
		law := d.law(n, 1<<l, miss)
		var both [2]chord
		for k, sign := range []int64{1, -1} {
			both[k].add(0, 0)
			for _, shift := range []int64{1 << l / 4, 1 << l / 2, 1 << l} {
				if shift > 0 {
					both[k].add(float64(shift), max(law.moment(theta, sign*shift, sign < 0), 0))
				}
			}
		}
		c.levels = append(c.levels, both)
		c.missed = append(c.missed, rare{law.missed(true), n.excess()})
		c.always[0] = c.always[0].largest(rare{law.missed(false), n.excess()})
	}
	return c
}

// law returns the probability distribution of a noise, for shifts up to reach. For coarse designs it returns a scaled
// one.
func (d *Design) law(n Noise, reach int64, miss float64) law {
	scale := int64(1)
	for d.coarse && n.Jump > 0 && reach/scale > 8 && int64(n.Jump)/scale > 32 {
		scale *= 2
	}
	if scale == 1 {
		return newLaw(n, reach, miss)
	}
	small := Noise{R: n.R, S: n.S * float64(scale), Jump: n.Jump / uint64(scale)}
	return scaledLaw{newLaw(small, (reach+scale-1)/scale, miss), scale}
}

// scaledLaw approximates, in a search, the distribution of a noise that is about scale times as wide.
type scaledLaw struct {
	law
	scale int64
}

func (s scaledLaw) moment(theta float64, d int64, cut bool) float64 {
	return s.law.moment(theta, (d+s.scale/2)/s.scale, cut)
}

// side is what an input adds to the bound (P2), either before or after the substitution: to ln E, by the atoms of value
// 2 or more, and to the rare events.
type side struct {
	moment float64
	rare
}

// side returns what an input i contributes to the bound (P2), before (which = 0) or after (1) the substitution.
func (c *certificate) side(i uint64, which int) (sum side) {
	for depth := 0; i>>depth >= 1; depth++ {
		low, high := nodes(i, depth)
		negative := (depth + which) % 2 // 1 if the shift is below 0.
		for _, n := range [2]node{low, high} {
			if n.value < 2 || n.times == 0 {
				continue
			}
			l, _ := level(c.Top, n.value, depth%2 == 1)
			sum.moment += c.levels[l][negative].at(float64(n.times))
			if negative == 1 {
				sum.rare = sum.plus(c.missed[l])
			} else {
				sum.rare = sum.plus(c.always[0])
			}
		}
		if low.value == 1 {
			break
		}
	}
	return sum
}

// class is a range lo..hi of inputs, with the ranges of the numbers that a bound needs of them.
type class struct {
	lo, hi     int64
	sides      [2]side  // Largest contribution of an input, before and after the substitution.
	pair, rest [2]int64 // Smallest and largest c_i[{-1,+1}]; smallest and largest c_i[{-1,+1}] + i.
}

// maxClasses is the largest number of classes, apart from those of 0 and 1. Up to about this Δ each input is a class of
// its own.
const maxClasses = 64

func (c *certificate) classes() []class {
	width := (c.Top + maxClasses - 1) / maxClasses
	all := []class{{sides: c.zeros}, {lo: 1, hi: 1, rest: [2]int64{1, 1}}}
	for lo := uint64(2); lo <= c.Top; lo += width {
		hi := min(lo+width-1, c.Top)
		k := class{lo: int64(lo), hi: int64(hi), pair: [2]int64{math.MaxInt64, math.MinInt64}}
		k.rest = k.pair
		for i := lo; i <= hi; i++ {
			for which := range k.sides {
				s := c.side(i, which)
				k.sides[which].moment = max(k.sides[which].moment, s.moment)
				k.sides[which].rare = k.sides[which].largest(s.rare)
			}
			p := pairShift(i)
			k.pair = [2]int64{min(k.pair[0], p), max(k.pair[1], p)}
			k.rest = [2]int64{min(k.rest[0], p+int64(i)), max(k.rest[1], p+int64(i))}
		}
		all = append(all, k)
	}
	return all
}

// logScale returns ln c(θ) of the bound (P2), θ·ln θ − (1+θ)·ln(1+θ), in a form that loses no digits.
func logScale(theta float64) float64 { return -math.Log1p(theta) - theta*math.Log1p(1/theta) }

// worst returns the bounds for ordered pairs of inputs, without those that no ε needs: another bound is at least as
// large at every ε.
func (c *certificate) worst() (worst []pairBound) {
	all := c.classes()
	scale := logScale(c.theta)
	gone, come := make([]float64, len(all)), make([]float64, len(all))
	for i := range all {
		gone[i], come[i] = c.central(&all[i], &all[0]), c.central(&all[0], &all[i])
	}
	most := c.pair.highest()
	for i := len(all) - 1; i >= 0; i-- {
		for j := range all {
			moment := all[i].sides[0].moment + all[j].sides[1].moment + scale
			rare := all[i].sides[0].plus(all[j].sides[1].rare).plus(c.always[1])
			if t := max(all[i].hi-all[j].lo, all[j].hi-all[i].lo); !c.Sparse &&
				isBelow(worst, pairBound{rare, moment + c.theta*c.Star*float64(t) + most}) {
				continue // By central's bound, this pair is nowhere the worst.
			}
			if i != j || all[i].lo < all[i].hi {
				worst = withBound(worst, pairBound{rare, moment + c.central(&all[i], &all[j])})
			}
			if c.Sparse { // The value moves from i in one coordinate to j in another.
				worst = withBound(worst, pairBound{rare.plus(c.always[1]), moment + gone[i] + come[j]})
			}
		}
	}
	return worst
}

// isBelow reports whether one of the bounds is at least as large as p at every ε.
func isBelow(bounds []pairBound, p pairBound) bool {
	for _, b := range bounds {
		if p.isBelow(b) {
			return true
		}
	}
	return false
}

func (p pairBound) isBelow(b pairBound) bool {
	return p.missed <= b.missed && p.far <= b.far && p.log <= b.log
}

// withBound adds a bound, and drops bounds that are then nowhere the largest.
func withBound(bounds []pairBound, p pairBound) []pairBound {
	if isBelow(bounds, p) {
		return bounds
	}
	left := bounds[:0]
	for _, b := range bounds {
		if !b.isBelow(p) {
			left = append(left, b)
		}
	}
	return append(left, p)
}

// central returns an upper bound of ln E[e^{θ·loss}] for the loss of (S, y₀), over all pairs of inputs from two
// classes, by (P1). For t > 0, let h = d₀ be the shift for a ≥ 0, and k = d₀ + t the shift for a ≤ -t. With b = -a
// between,
//
//	E = [ e^{θ·star·t + F(h)} + e^{-star·(1+θ)·t + F(k)}
//	      + (1-p)·Σ_{0<b<t} e^{-star·b + θ·star·(t-2b) + F(h+b)} ] / (1+p)
//
// where F is the moment (M1) of {-1,+1} and F(h+b) ≤ F(h) + b/t·(F(k)-F(h)). So the sum is geometric. For t < 0 the
// same holds with |t|, h = d₀ + t and k = d₀, by the reflection a → -a.
func (c *certificate) central(i, j *class) float64 {
	least, most := i.lo-j.hi, i.hi-j.lo
	hot, cold := [2]int64{i.pair[0] - j.pair[1], i.pair[1] - j.pair[0]},
		[2]int64{i.rest[0] - j.rest[1], i.rest[1] - j.rest[0]}
	if most <= 0 {
		least, most = -most, -least
		hot, cold = cold, hot
	}
	fh := max(c.pair.at(float64(hot[0])), c.pair.at(float64(hot[1])))
	fk := max(c.pair.at(float64(cold[0])), c.pair.at(float64(cold[1])))
	loss := c.theta * c.Star * float64(most)
	if least <= 0 { // t may have either sign. Every shift lies between the two; every loss is at most star·|t|.
		return c.theta*c.Star*float64(max(most, -least)) + max(fh, fk)
	}
	rate := math.Exp(-c.Star*(1+2*c.theta) + max(fk-fh, 0)/float64(least))
	between := float64(most - 1)
	if rate < 1 {
		between = rate * min(between, 1/(1-rate))
	} else {
		between *= math.Pow(rate, between)
	}
	p := math.Exp(-c.Star)
	e := 1 + (1-p)*between + math.Exp(fk-fh-c.Star*(1+c.theta)*float64(least)-loss)
	return loss + min(fh+math.Log(e/(1+p)), max(fh, fk)) // the second: an average over a is at most its largest term
}
