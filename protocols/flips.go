package protocols

import "math"

// flippedLevels is the error distribution of an estimated sum Σx over n clients with x in [0, 1]. Each client rounds x
// stochastically to a level in {0, …, k}. It writes the level as k bits, of which only the level's bit is one, and none
// for level 0. It flips each bit with probability f, and reports the numbers of the bits that are then one. With S the
// sum of all reported numbers,
//
//	Σx ≈ (S - n·f·k(k+1)/2) / (k(1-2f))
//
// The interval inverts the distribution of S, because S is not nearly normal if few bits are flipped. It contains every
// θ for which neither Pr_θ[S ≥ s] nor Pr_θ[S ≤ s] is below half of 1-confidence; s is the observed S. Pr_θ is the
// larger probability of two groups of clients whose values sum up to θ: all have the same value, or all have the ends
// of the range. docs/proofs/bands.md derives both. If the sum has few likely values, the probability is exact, by
// inverting S's characteristic function. Otherwise it is the saddlepoint approximation of Lugannani and Rice. θ may lie
// below 0 or above n: there the distribution of S is assumed to shift without changing shape.
type flippedLevels struct {
	Estimate, Width float64 // The estimate in the query's units, and the width of the range.
	K               uint64  // k, the highest level.
	Flip            float64 // f, in (0, ½).
	Clients         float64 // n, a whole number of at least 1.
	Seen            float64 // S.
	Plugged         float64 // Variance of the estimate.
}

// Variance implements [ErrorLaw.Variance].
func (e flippedLevels) Variance() float64 { return e.Plugged }

// Interval implements [ErrorLaw.Interval].
func (e flippedLevels) Interval(confidence float64) (lo, hi float64) {
	z := Quantile(min(confidence, 1-2*least))
	k, flips := float64(e.K), e.flips()
	estimate := (e.Seen - e.Clients*e.Flip*k*(k+1)/2) / (k * (1 - 2*e.Flip))
	deviation := flips.deviation / (k * (1 - 2*e.Flip))
	lo = lowest(func(theta float64) float64 { return e.tail(flips, theta, 1) }, estimate, deviation, z)
	estimate = e.Clients - estimate
	hi = lowest(func(theta float64) float64 { return e.tail(flips, e.Clients-theta, -1) }, estimate, deviation, z)
	estimate = e.Clients - estimate
	return e.Estimate + e.Width*(lo-estimate), e.Estimate + e.Width*(e.Clients-hi-estimate)
}

// tail returns the larger probability of the two groups: Pr_θ[S ≥ s] if side is 1, or Pr_θ[S ≤ s] if it is -1.
func (e flippedLevels) tail(flips *flipLaw, theta, side float64) (worst float64) {
	inside := min(max(theta, 0), e.Clients)
	seen := e.Seen - (1-2*e.Flip)*float64(e.K)*(theta-inside)
	if side > 0 {
		seen = math.Ceil(seen - 1e-6)
	} else {
		seen = math.Floor(seen+1e-6) + 1
	}
	for _, h := range [2]holders{e.equal(inside), e.atEnds(inside)} {
		p := flips.reached(h, seen)
		if side < 0 {
			p = 1 - p
		}
		worst = max(worst, p)
	}
	return worst
}

// holders are up to two groups of clients, besides others with the lowest value.
type holders struct {
	groups   [2]holderGroup
	rounding float64 // Variance of the rounding that the values do not explain, in levels.
}

// holderGroup is a number of clients with the same value. It rounds to level+1 with probability up, else to level.
type holderGroup struct{ clients, level, up float64 }

// equal returns clients with the same value, which sum up to theta.
func (e flippedLevels) equal(theta float64) holders {
	return e.holders(theta, holderGroup{clients: e.Clients}.with(theta/e.Clients, e.K))
}

// atEnds returns clients that all have an end of the range but at most one, and whose values sum up to theta.
func (e flippedLevels) atEnds(theta float64) holders {
	whole, rest := math.Modf(theta)
	return e.holders(theta, holderGroup{clients: whole}.with(1, e.K),
		holderGroup{clients: math.Ceil(rest)}.with(rest, e.K))
}

// with returns the group's clients with a value.
func (g holderGroup) with(value float64, k uint64) holderGroup {
	g.level, g.up = math.Modf(value * float64(k))
	return g
}

// holders adds the rounding that is possible at most: for values of mean x̄, the fraction f of a level has a mean of
// f(1-f) of at most e(1-e), e = min(½, k·min(x̄, 1-x̄)).
func (e flippedLevels) holders(theta float64, groups ...holderGroup) (h holders) {
	fraction := min(0.5, float64(e.K)*min(theta, e.Clients-theta)/e.Clients)
	h.rounding = e.Clients * fraction * (1 - fraction)
	for _, g := range groups {
		h.rounding -= g.clients * g.up * (1 - g.up)
	}
	h.rounding = max(0, h.rounding)
	copy(h.groups[:], groups)
	return h
}

// flipLaw is the distribution of the sum of the numbers of all flipped bits, if all clients have level 0.
type flipLaw struct {
	e         flippedLevels
	deviation float64 // Standard deviation of S, with rounding at its worst.
	points    float64 // Number M of points on the circle, odd; 0: too many.
	values    []flipPoint
}

// flipPoint is the characteristic function of S at an angle: its absolute value is e^log.
type flipPoint struct{ angle, log, argument float64 }

// mostFlipSteps is the largest number of points times bits for which the characteristic function is evaluated.
const mostFlipSteps = 1 << 21

// flips returns the distribution for level 0. It keeps the angles at which the characteristic function has not
// vanished: a holder's factor has the absolute value 1, or less with rounding.
func (e flippedLevels) flips() *flipLaw {
	k, f := float64(e.K), e.Flip
	l := &flipLaw{e: e}
	l.deviation = math.Sqrt(e.Clients * (f*(1-f)*k*(k+1)*(2*k+1)/6 + 0.25))
	l.points = 2*math.Ceil(12*l.deviation+8*k+12) + 1
	if l.points*k > mostFlipSteps {
		l.points = 0
		return l
	}
	for j := 0.0; 2*j < l.points; j++ {
		p := flipPoint{angle: 2 * math.Pi * j / l.points}
		for bit := 1.0; bit <= k; bit++ {
			log, turn := bitFactor(f, bit*p.angle)
			p.log += e.Clients * log
			p.argument += e.Clients * turn
		}
		if p.log >= logVanished {
			l.values = append(l.values, p)
		}
	}
	return l
}

// bitFactor returns the logarithm of the modulus of 1-p + p·e^{iθ}, and its argument.
func bitFactor(p, angle float64) (log, argument float64) {
	sin, cos := math.Sincos(angle)
	return math.Log1p(-2*p*(1-p)*(1-cos)) / 2, math.Atan2(p*sin, 1-p+p*cos)
}

// reached returns Pr[S ≥ seen] if h holds their values, and the others the lowest.
func (l *flipLaw) reached(h holders, seen float64) float64 {
	if l.points == 0 {
		return l.saddle(h, seen)
	}
	k, f := float64(l.e.K), l.e.Flip
	mean := l.e.Clients * f * k * (k + 1) / 2
	for _, g := range h.groups {
		mean += (1 - 2*f) * g.clients * (g.level + g.up)
	}
	reach := (l.points - 1) / 2
	top := seen + math.Floor(mean+reach-seen)
	switch {
	case seen > top:
		return 0
	case seen < mean-reach:
		return 1
	}
	width := top - seen + 1
	sum := width
	for _, p := range l.values[1:] {
		log, phase := p.log-h.rounding*(1-math.Cos(p.angle)), p.argument-p.angle*(seen+top)/2
		for _, g := range h.groups {
			one, turn := l.held(g, p.angle)
			log, phase = log+g.clients*one, phase+g.clients*turn
		}
		sum += 2 * math.Exp(log) * math.Cos(phase) * math.Sin(p.angle*width/2) / math.Sin(p.angle/2)
	}
	return min(max(sum/l.points, 0), 1)
}

// held returns by what a client's characteristic function changes if it holds the group's value instead of the lowest:
// the logarithm of the modulus of the factor, and its argument. For a level the factor is (f + (1-f)z)/(1-f + fz), z =
// e^{iθ·level}. Its modulus is 1.
func (l *flipLaw) held(g holderGroup, angle float64) (log, argument float64) {
	if g.clients == 0 {
		return 0, 0
	}
	_, one := bitFactor(1-l.e.Flip, g.level*angle)
	_, other := bitFactor(l.e.Flip, g.level*angle)
	if g.up == 0 {
		return 0, one - other
	}
	_, oneUp := bitFactor(1-l.e.Flip, (g.level+1)*angle)
	_, otherUp := bitFactor(l.e.Flip, (g.level+1)*angle)
	log, argument = bitFactor(g.up, oneUp-otherUp-(one-other))
	return log, argument + one - other
}

// saddle returns Pr[S ≥ seen] by the saddlepoint approximation, in units of k.
func (l *flipLaw) saddle(h holders, seen float64) float64 {
	k := float64(l.e.K)
	return saddlepoint(func(lambda float64) cumulant { return l.generating(h, lambda) }, seen/k, 1/k)
}

// generating returns the cumulant generating function of S/k at lambda.
func (l *flipLaw) generating(h holders, lambda float64) (out cumulant) {
	k, f := float64(l.e.K), l.e.Flip
	for bit := 1.0; bit <= k; bit++ {
		one := bernoulli(f, bit/k, lambda)
		out.value += l.e.Clients * one.value
		out.first += l.e.Clients * one.first
		out.second += l.e.Clients * one.second
	}
	for _, g := range h.groups {
		one := g.generating(f, k, lambda)
		out.value += g.clients * one.value
		out.first += g.clients * one.first
		out.second += g.clients * one.second
	}
	rounding := h.rounding / (k * k)
	out.value += lambda * lambda * rounding / 2
	out.first += lambda * rounding
	out.second += rounding
	return out
}

// generating returns what a client's cumulant generating function gains if it holds the group's value instead of the
// lowest.
func (g holderGroup) generating(f, k, lambda float64) cumulant {
	low := heldCumulant(f, g.level/k, lambda)
	if g.up == 0 {
		return low
	}
	high := heldCumulant(f, (g.level+1)/k, lambda)
	a, b := (1-g.up)*math.Exp(low.value), g.up*math.Exp(high.value)
	w := b / (a + b)
	first := (1-w)*low.first + w*high.first
	second := (1-w)*(low.second+low.first*low.first) + w*(high.second+high.first*high.first) - first*first
	return cumulant{math.Log(a + b), first, second}
}

// bernoulli returns the cumulant generating function of a variable that is step with probability p, else 0.
func bernoulli(p, step, lambda float64) cumulant {
	x := lambda * step
	up := p / (p + (1-p)*math.Exp(-x)) // The probability under the tilted law.
	value := math.Log1p(p * math.Expm1(x))
	if x > 30 {
		value = x + math.Log(p+(1-p)*math.Exp(-x))
	}
	return cumulant{value, step * up, step * step * up * (1 - up)}
}

// heldCumulant returns what a client's cumulant generating function gains if it holds a level, as a share of k, instead
// of level 0: a bit that is one with probability 1-f in place of f.
func heldCumulant(f, level, lambda float64) cumulant {
	one, other := bernoulli(1-f, level, lambda), bernoulli(f, level, lambda)
	return cumulant{one.value - other.value, one.first - other.first, one.second - other.second}
}
