package protocols

import "math"

// Cell is the error distribution of a count that is estimated by randomized response. Of n clients, ν hold the counted
// value. Each holder sends it with probability a = Own, and each other client with probability b = Other. With N the
// number of clients that send it,
//
//	N ~ Bin(ν, a) + Bin(n-ν, b),   a > b                    (1)
//	ν ≈ (N - nb) / (a-b),   Var = (ν·a(1-a) + (n-ν)·b(1-b)) / (a-b)²   (2)
//
// The confidence interval inverts the test of [B00] of the distribution (1). Let t_ν(s) be the smaller of Pr_ν[N ≥ s]
// and Pr_ν[N ≤ s]. The interval contains every ν for which the numbers s with t_ν(s) ≤ t_ν(seen) have a probability
// above 1-confidence. So it contains the true ν with at least the confidence; the excess is at most the probability of
// one number. It lies within the interval of Clopper and Pearson, which allows half of 1-confidence on either side. If
// N has enough likely values that the two hardly differ, Interval returns that of Clopper and Pearson. The interval
// may extend below 0 and above n: there the distribution of N is assumed to shift without changing shape.
//
// [B00]: H. Blaker, Confidence curves and improved exact confidence intervals for discrete distributions, Canadian
// Journal of Statistics 28, 2000
type Cell struct {
	Seen       uint64  // N, the number of clients that sent the counted value.
	Users      uint64  // n, the number of clients. At least 1.
	Own, Other float64 // a and b: the probabilities that a holder and another client send it, in (0, 1), a > b.
}

// Estimate returns the unbiased estimate of ν, the number of holders: formula (2) of [Cell].
func (c Cell) Estimate() float64 {
	return (float64(c.Seen) - float64(c.Users)*c.Other) / (c.Own - c.Other)
}

// Variance implements [ErrorLaw.Variance] by formula (2) of [Cell], which is linear in ν. ν is the estimate, or the
// nearer end of 0..n if that is outside.
func (c Cell) Variance() float64 {
	at := c.cumulants(c.nearest())
	return at.variance / ((c.Own - c.Other) * (c.Own - c.Other))
}

// cumulants are the mean, variance, third and fourth cumulant of N, the number of clients that send the value.
type cumulants struct{ mean, variance, third, fourth float64 }

func (c Cell) cumulants(nu float64) cumulants {
	rest := float64(c.Users) - nu
	own, other := c.Own*(1-c.Own), c.Other*(1-c.Other)
	return cumulants{
		mean:     nu*c.Own + rest*c.Other,
		variance: nu*own + rest*other,
		third:    nu*own*(1-2*c.Own) + rest*other*(1-2*c.Other),
		fourth:   nu*own*(1-6*own) + rest*other*(1-6*other),
	}
}

// Interval implements [ErrorLaw.Interval].
func (c Cell) Interval(confidence float64) (lo, hi float64) {
	tail := (1 - confidence) / 2
	lo, hi = c.low(tail), c.high(tail)
	if c.cumulants(c.nearest()).variance > many {
		return lo, hi
	}
	return c.inward(lo, 2*tail, -1), c.inward(hi, 2*tail, 1)
}

// nearest returns the estimate of ν, clamped to [0, n].
func (c Cell) nearest() float64 { return min(max(c.Estimate(), 0), float64(c.Users)) }

// inward moves an end of the interval of Clopper and Pearson inward, to the interval that [Cell] describes. side is -1
// for the lower end and 1 for the upper. near is the probability that N is at seen or beyond it, away from side; it
// grows as ν moves inward. far(y) is the probability that N is at y or beyond on the end's side; it falls. At the
// original end, near is half of miss = 1-confidence. Let y be the innermost number with far(y) ≤ near. The new interval
// contains ν as soon as near + far(y) exceeds miss, or at the latest when far of the number next to y is no more than
// near either.
func (c Cell) inward(end, miss, side float64) float64 {
	near := func(nu float64) float64 { return c.beyond(float64(c.Seen), nu, -side) }
	far := func(y, nu float64) float64 { return c.beyond(y, nu, side) }
	from := min(max(end, 0), float64(c.Users))
	if (from-end)*side > 0 { // the whole interval lies outside 0..n
		return end
	}
	reached := near(from)
	if reached > miss { // the end is plausible itself: with almost no noise, N almost certainly equals seen
		return end
	}
	k, y := c.cumulants(from), 0.0
	for y = math.Round(k.mean + side*Quantile(1-2*min(reached, 0.5))*math.Sqrt(k.variance)); far(y, from) > reached; {
		y += side
	}
	for far(y-side, from) <= reached {
		y -= side
	}
	if from != end && reached+far(y, from) > miss {
		return end
	}
	inner := c.nearest()
	to := crossing(func(nu float64) float64 { return near(nu) - far(y-side, nu) }, from, inner)
	if to == inner && near(to) < far(y-side, to) && near(to)+far(y, to) <= miss {
		return inner - side/(2*(c.Own-c.Other)) // the interval contains no ν in 0..n
	}
	return crossing(func(nu float64) float64 { return near(nu) + far(y, nu) - miss }, from, to)
}

// beyond returns Pr_ν[N ≤ y] if side is -1, and Pr_ν[N ≥ y] if it is 1.
func (c Cell) beyond(y, nu, side float64) float64 {
	if side < 0 {
		return c.below(y, nu)
	}
	return 1 - c.below(y-1, nu)
}

// crossing returns the x between from and to where f reaches 0; f(from) must be at most 0. It returns to if f stays
// below 0. It uses the false position method.
func crossing(f func(x float64) float64, from, to float64) float64 {
	b := bracket{from: from, to: to, low: f(from), high: f(to)}
	if b.high <= 0 || b.low >= 0 {
		if b.low >= 0 {
			return from
		}
		return to
	}
	for range 100 {
		x := b.falsePosition()
		fx := f(x)
		if math.Abs(fx) < 1e-9 || math.Abs(b.to-b.from) < 1e-9*(1+math.Abs(b.to)) {
			return x
		}
		b.narrow(x, fx)
	}
	return b.from
}

// bracket is the state of the false position method, in the Illinois variant, for the zero of a function between from
// and to.
type bracket struct {
	from, to  float64
	low, high float64 // The function at from, below 0, and at to, above 0. Halved where an end stays twice.
	last      float64 // The function at the last point.
}

// falsePosition returns the next point: the zero of the line through both ends.
func (b *bracket) falsePosition() float64 { return (b.from*b.high - b.to*b.low) / (b.high - b.low) }

// narrow replaces one end by the point x, where the function is fx.
func (b *bracket) narrow(x, fx float64) {
	if fx < 0 {
		b.from, b.low = x, fx
		if b.last < 0 {
			b.high /= 2
		}
	} else {
		b.to, b.high = x, fx
		if b.last > 0 {
			b.low /= 2
		}
	}
	b.last = fx
}

// low returns the lower end by Clopper and Pearson: the least ν for which Pr[N ≥ seen] is at least tail.
func (c Cell) low(tail float64) float64 {
	seen, n := float64(c.Seen), float64(c.Users)
	reached := func(nu float64) float64 { return 1 - c.below(seen-1, nu) }
	switch {
	case reached(0) > tail:
		least := c.quantile(0, 1-tail) + 1 // Pr[N ≥ least] ≤ tail.
		return min(seen-least+1, 0) / (c.Own - c.Other)
	case reached(n) <= tail:
		least := c.quantile(n, 1-tail) + 1
		return n + max(seen-least+1, 0)/(c.Own-c.Other)
	}
	return c.solve(reached, tail, -1)
}

// high returns the upper end by Clopper and Pearson: the largest ν for which Pr[N ≤ seen] is at least tail.
func (c Cell) high(tail float64) float64 {
	seen, n := float64(c.Seen), float64(c.Users)
	reached := func(nu float64) float64 { return c.below(seen, nu) }
	switch {
	case reached(n) > tail:
		most := c.quantile(n, tail) - 1 // Pr[N ≤ most] < tail.
		return n + max(seen-most-1, 0)/(c.Own-c.Other)
	case reached(0) <= tail:
		most := c.quantile(0, tail) - 1
		return min(seen-most-1, 0) / (c.Own - c.Other)
	}
	return c.solve(reached, tail, 1)
}

// quantile returns the least y with Pr_ν[N ≤ y] ≥ p. p must differ from 0 and 1 by at least [least].
func (c Cell) quantile(nu, p float64) float64 {
	k := c.cumulants(nu)
	span := 40*math.Sqrt(k.variance) + 40
	lo, hi := max(math.Floor(k.mean-span), -1), min(math.Ceil(k.mean+span), float64(c.Users))
	for hi-lo > 1 {
		if mid := math.Floor((lo + hi) / 2); c.below(mid, nu) >= p {
			hi = mid
		} else {
			lo = mid
		}
	}
	return hi
}

// solve returns the ν in [0, n] at which the function probability, a tail probability, equals tail. The probability
// rises with ν if side is -1 and falls if side is 1. On the scale of normal quantiles it is almost a straight line. So
// the false position method (Illinois variant), started from the normal interval's end, needs few steps.
func (c Cell) solve(probability func(nu float64) float64, tail, side float64) float64 {
	reach := Quantile(1 - 2*tail)
	f := func(nu float64) float64 { // rises with ν
		p := min(max(probability(nu), least), 1-least)
		return -side * (Quantile(2*p-1) + reach)
	}
	lo, hi := 0.0, float64(c.Users)
	flo, fhi := f(lo), f(hi)
	x, last := c.Estimate()+side*reach*math.Sqrt(c.Variance()), 0.0
	for range 100 {
		if !(x > lo && x < hi) {
			x = (lo*fhi - hi*flo) / (fhi - flo)
		}
		fx := f(x)
		if math.Abs(fx) < 1e-9 || hi-lo < 1e-9*(1+hi) {
			return x
		}
		if fx < 0 {
			lo, flo = x, fx
		} else {
			hi, fhi = x, fx
		}
		if fx*last > 0 && fx < 0 {
			fhi /= 2
		} else if fx*last > 0 {
			flo /= 2
		}
		last, x = fx, (lo*fhi-hi*flo)/(fhi-flo)
	}
	return x
}

// least is the smallest tail probability that the method below can distinguish from 0.
const least = 1e-13

// below returns Pr_ν[N ≤ y] for a whole y. If ν is not whole, it assumes one client that sends the value with a
// probability between Other and Own. N's distribution, formula (1) of [Cell], then still moves up as ν grows.
func (c Cell) below(y, nu float64) float64 {
	k := c.cumulants(nu)
	if k.variance > many {
		return k.nearNormal(y)
	}
	sd := math.Sqrt(k.variance)
	first := max(math.Floor(k.mean-12*sd-12), 0)
	points := 2*math.Ceil(12*sd+20) + 1
	switch {
	case y < first:
		return 0
	case y >= first+points:
		return 1
	}
	return min(max(c.inverted(first, y, points, nu), 0), 1)
}

// inverted returns Pr[first ≤ N ≤ y] by inverting N's characteristic function φ at M points, M = points, odd. With θ =
// 2πj/M:
//
//	1/M · Σ_j φ(θ)·Σ_{x=first..y} e^{-iθx} = 1/M · Σ_j |φ|·cos(arg φ - θ(first+y)/2) · sin(θw/2)/sin(θ/2)
//
// w = y-first+1. The result is off by the probability of numbers that lie M or more away.
func (c Cell) inverted(first, y, points, nu float64) float64 {
	width := y - first + 1
	whole, part := math.Modf(nu)
	rest := float64(c.Users) - whole
	between := part*c.Own + (1-part)*c.Other
	if part > 0 {
		rest--
	}
	sum := width
	for j := 1.0; 2*j < points; j++ {
		half := math.Pi * j / points
		sin, cos := math.Sincos(half)
		own, ownTurn := logFactor(c.Own, sin, cos)
		other, otherTurn := logFactor(c.Other, sin, cos)
		log, turn := whole*own+rest*other, whole*ownTurn+rest*otherTurn-half*(first+y)
		if part > 0 {
			one, oneTurn := logFactor(between, sin, cos)
			log, turn = log+one, turn+oneTurn
		}
		size := math.Exp(log)
		if size < vanished {
			break
		}
		sum += 2 * size * math.Cos(turn) * math.Sin(width*half) / sin
	}
	return sum / points
}

// logFactor returns the logarithm of the modulus of 1-p + p·e^{iθ}, and its argument. It takes the sine and cosine of
// θ/2 ∈ [0, π/2).
func logFactor(p, sin, cos float64) (log, argument float64) {
	return math.Log1p(-4*p*(1-p)*sin*sin) / 2, math.Atan2(2*p*sin*cos, 1-2*p*sin*sin)
}

// many is the variance of N above which Cell replaces the exact distribution by the normal one, corrected for the third
// and fourth cumulants.
const many = 400

// nearNormal returns Pr[N ≤ y] by the inverse Cornish-Fisher expansion of the second order, with the continuity
// correction for whole numbers.
func (k cumulants) nearNormal(y float64) float64 {
	sd := math.Sqrt(k.variance)
	x, skew, excess := (y+0.5-k.mean)/sd, k.third/(k.variance*sd), k.fourth/(k.variance*k.variance)
	z := x - skew*(x*x-1)/6 + skew*skew*(4*x*x*x-7*x)/36 - excess*(x*x*x-3*x)/24
	return math.Erfc(-z/math.Sqrt2) / 2
}
