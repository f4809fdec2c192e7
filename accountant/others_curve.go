package accountant

import "math"

// OthersCurve returns upper bounds on δ of rule [Others] at ascending ε, in one pass over the possible values of the
// other users. The bounds are never below [KRRDelta], and some 0.1 % in ε above it. Arguments are those of [KRRDelta].
// docs/proofs/two-valued.md has the proof.
func OthersCurve(gamma float64, users uint64, eps []float64) ([]float64, error) {
	if err := checkKRR(Others, 2, users); err != nil {
		return nil, err
	}
	if err := checkGamma(gamma); err != nil {
		return nil, err
	}
	inside := 0 // Beyond ε₀, δ is 0.
	for inside < len(eps) && eps[inside] < KRREpsilon0(2, gamma) {
		inside++
	}
	f, n := gamma/2, float64(users-1)
	c := &countLaw{f: f, curve: make([]float64, len(eps))}
	deviation := math.Sqrt(n * f * (1 - f))
	for u := 0.0; u <= n && inside > 0; {
		v := math.Min(n, u+othersCurveWidth(n, u, deviation)-1)
		c.raise(n-math.Min(n, v+othersWidth(n, v)-1), u, eps[:inside])
		u = v + 1
	}
	for i := range c.curve[:inside] {
		c.curve[i] = math.Min(1, c.curve[i]+tiny)
	}
	return c.curve, nil
}

// othersCurveWidth returns how many values of c the interval from c = n−u downward covers (see othersDelta): n/1000, or
// up to four times that if the count has a large standard deviation. Far from the corner u = 0, it covers up to u/200
// more: δ is smaller there, because the count's distribution is skewed the other way.
func othersCurveWidth(n, u, deviation float64) float64 {
	share := math.Min(4, math.Max(1, deviation/150)) / 1000
	return math.Max(1, math.Floor(n*share+math.Min(u/(8*deviation+1), n/200)))
}

// OthersAtCorner returns δ(ε) for two values if all other users hold the value whose count the adversary thresholds
// (the corner c = N of rule [Others]). It is only slightly below the rule's δ, so it is an estimate and not an upper
// bound. Arguments are those of [OthersCurve].
func OthersAtCorner(gamma float64, users uint64, eps float64) float64 {
	if eps >= KRREpsilon0(2, gamma) {
		return 0
	}
	return newTwoValued(gamma/2, eps).delta(float64(users-1), 0)
}

// countLaw is the distribution of D − ones, where D is the number of ones that the other users report. It covers a
// window outside of which the probability is below 2·e^−60.
type countLaw struct {
	f     float64
	curve []float64 // Largest δ so far, for each ε.

	low    float64   // Least value in the window.
	ratios []float64 // Pr[x]/Pr[x−1] for x from low+1 on.
	tails  []float64 // Pr[≥ x] for x from low on, and 0.
	err    float64   // Relative error of tails.
	mirror []float64 // Buffer for the ratios computed from the high end.
}

// raise raises the curve to δ_c, formula (1) of othersDelta, wherever δ_c of these ones and zeros is larger.
func (c *countLaw) raise(ones, zeros float64, eps []float64) {
	c.make(ones, zeros)
	const outside = 8.75651076269652e-27 // e^−60
	at := 0
	for i, e := range eps {
		a, b := twoValuedEdge(c.f, e)
		for at < len(c.ratios) && c.ratios[at]*b > a { // Skip terms that are not positive.
			at++
		}
		above, below := a*c.tails[at], b*c.tails[at+1]
		c.curve[i] = math.Max(c.curve[i], above-below+c.err*(above+below)+outside)
	}
}

// make computes the ratios of successive probabilities by a three-term recurrence ([countLaw.climb]), and from them the
// tails.
func (c *countLaw) make(ones, zeros float64) {
	f := c.f
	mean, variance := (zeros-ones)*f, (ones+zeros)*f*(1-f)
	reach := 20 + math.Sqrt(400+120*variance) // x²/(2(σ²+x/3)) = 60
	c.low = math.Max(-ones, math.Floor(mean-reach))
	high := math.Min(zeros, math.Ceil(mean+reach))
	turn := f * f * (zeros - ones) / ((1-f)*(1-f) + f*f)
	middle := math.Min(high, math.Max(c.low, math.Floor(turn)+1))
	var errs, more float64
	c.ratios, errs = c.climb(c.ratios[:0], ones, zeros, c.low, middle)
	c.mirror, more = c.climb(c.mirror[:0], zeros, ones, -high, -middle)
	for i := len(c.mirror) - 1; i >= 0; i-- {
		c.ratios = append(c.ratios, 1/c.mirror[i])
	}
	points := len(c.ratios) + 1
	c.err = 1e-13 + 2*ulp*(errs+more+4*float64(points))
	c.sum(points, int(math.Round(math.Min(high, math.Max(c.low, mean))-c.low)))
}

// sum computes tails from the ratios. It starts with weight 1 at the point from, and normalizes at the end.
func (c *countLaw) sum(points, from int) {
	if cap(c.tails) < points+1 {
		c.tails = make([]float64, points+1)
	}
	c.tails = c.tails[:points+1]
	c.tails[from], c.tails[points] = 1, 0
	for i := from + 1; i < points; i++ {
		c.tails[i] = c.tails[i-1] * c.ratios[i-1]
	}
	for i := from - 1; i >= 0; i-- {
		c.tails[i] = c.tails[i+1] / c.ratios[i]
	}
	for i := points - 1; i >= 0; i-- {
		c.tails[i] += c.tails[i+1]
	}
	for i, all := 0, c.tails[0]; i < points; i++ {
		c.tails[i] /= all
	}
}

// climb appends r_x = Pr[x]/Pr[x−1] for x from low+1 to high, and returns the sum of their errors in ulps. From
// (1−f+fz)(f+(1−f)z)·G′(z) of the generating function G, with q = 1−f, three successive terms satisfy
//
//	r_{x+1} = ((q²+f²)(x*−x) + fq(zeros−x+1)/r_x) / (fq(ones+x+1)),  x* = f²(zeros−ones)/(q²+f²)      (3)
//
// For high ≤ x*+1 all parts are positive, so each step multiplies an error of r_x by the share that its term has in the
// sum. If low is the end of the distribution's support, the first ratio is known. Otherwise low is below the mode, and
// 1/r is between 0 and 1. If the recurrence starts far enough below low, all start values from 0 to 1 lead to the same
// 1/r at low.
func (c *countLaw) climb(out []float64, ones, zeros, low, high float64) (ratios []float64, errs float64) {
	if high <= low {
		return out, 0
	}
	f, q := c.f, 1-c.f
	squares, fq := q*q+f*f, f*q
	turn := f * f * (zeros - ones) / squares
	step := func(x, inverse float64) (ratio, share float64) {
		before := fq * (zeros - x + 1) * inverse
		all := squares*(turn-x) + before
		return all / (fq * (ones + x + 1)), before / all
	}
	inverse, e := c.start(ones, low, step)
	for x := low; x < high; x++ {
		r, share := step(x, inverse)
		e = share*e + 8
		out, errs = append(out, r), errs+e
		inverse = 1 / r
	}
	return out, errs
}

// start returns 1/r at low, and its error in ulps. It runs the recurrence from points further below, once from each end
// of the range [0, 1] of 1/r, until both agree.
func (c *countLaw) start(ones, low float64, step func(x, inverse float64) (ratio, share float64)) (inverse,
	e float64) {
	for before := 64.0; ; before *= 2 {
		x := math.Max(-ones, low-before)
		least, most, e := 0.0, 1.0, 0.0
		if x == -ones {
			most = 0
		}
		for ; x < low; x++ {
			high, one := step(x, least)
			less, other := step(x, most)
			least, most = 1/high, 1/less
			if least > most {
				least, most = most, least
			}
			e = math.Max(one, other)*e + 8
		}
		if most-least <= 0x1p-45*most || x == -ones {
			return most, e + 0x1p8
		}
	}
}
