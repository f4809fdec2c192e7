package protocols

import "math"

// levelSum is the error distribution of an estimated sum Σx over n clients with x in [0, 1]. Each client rounds x
// stochastically to a level y ∈ {0, …, k} and reports y by randomized response with blanket probability γ. It does so
// with probability 1/s, and otherwise reports nothing about this sum. With C = Σ(y/k-½) over the reports,
//
//	Σx ≈ n/2 + s·C/(1-γ)                                                          (1)
//
// The interval inverts the distribution of C, because C is not nearly normal if few clients report the blanket or few
// report at all. It contains every θ for which neither Pr_θ[C ≥ c] nor Pr_θ[C ≤ c] is below half of 1-confidence; c is
// the observed C. Pr_θ is the larger probability of two groups of clients whose values sum up to θ: see [worstClients].
// docs/proofs/bands.md derives both. If s is 1 or reports are few, the probability is exact, by inverting C's
// characteristic function. Otherwise it is the saddlepoint approximation of Lugannani and Rice, for lattices [D87]. θ
// may lie below 0 or above n: there the distribution of C is assumed to shift without changing shape.
//
// [D87]: H. E. Daniels, Tail probability approximations, International Statistical Review 55, 1987
type levelSum struct {
	Estimate, Width float64 // The estimate in the query's units, and the width of the range.
	K               uint64  // k, the highest level.
	Gamma           float64 // γ, the blanket probability.
	Clients         float64 // n, a whole number of at least 1.
	Size            float64 // s, at least 1.
	Seen            float64 // C.
	Squares         float64 // Q of [RoundedLevels.Parts], estimated.
	Plugged         float64 // Variance of the estimate, estimated from the data.
}

// Variance implements [ErrorLaw.Variance].
func (e levelSum) Variance() float64 { return e.Plugged }

// Interval implements [ErrorLaw.Interval]. If clients are sampled, the data show few of the values that add much. A
// Poisson variable of which N was seen has a mean of at most N + z·√(N+z²). So the interval adds z²(s-1)/4 to Q.
func (e levelSum) Interval(confidence float64) (lo, hi float64) {
	z := Quantile(min(confidence, 1-2*least))
	e.Squares = min(e.Squares+z*z*(e.Size-1)/4, e.Clients/4)
	if e.Size > 1 && e.Clients < fewReports*e.Size {
		e.K = min(e.K, coarsest)
	}
	estimate := e.Clients/2 + e.Size*e.Seen/(1-e.Gamma)
	lo = estimate - e.low(z)
	e.Seen = -e.Seen // Exchanges the ends of the range.
	hi = e.Clients - e.low(z) - estimate
	return e.Estimate - e.Width*lo, e.Estimate + e.Width*hi
}

// low returns the least θ for which Pr_θ[C ≥ c] exceeds Pr[Z ≥ z] of a standard normal Z.
func (e levelSum) low(z float64) float64 {
	estimate := e.Clients/2 + e.Size*e.Seen/(1-e.Gamma)
	variance := e.worst(min(max(estimate, 0), e.Clients), false).variance(e)
	return lowest(e.reached, estimate, math.Sqrt(variance)*e.Size/(1-e.Gamma), z)
}

// lowest returns the least θ for which reached(θ) exceeds Pr[Z ≥ z] of a standard normal Z, or the estimate if that is
// lower. The estimate has about this standard deviation. On the scale of normal quantiles the probability is almost a
// straight line, so the false position method needs few steps.
func lowest(reached func(theta float64) float64, estimate, deviation, z float64) float64 {
	f := func(theta float64) float64 {
		return Quantile(2*min(max(reached(theta), least/2), 1-least)-1) + z
	}
	to := estimate
	fto := f(to)
	if fto <= 0 {
		return to
	}
	step := 1.2*z*deviation + 1e-6
	from := to - step
	ffrom := f(from)
	for ; ffrom > 0; ffrom = f(from) {
		to, fto, step = from, ffrom, 1.6*step
		from -= step
	}
	b := bracket{from: from, to: to, low: ffrom, high: fto}
	for b.to-b.from > 1e-5*(deviation+1) {
		margin := (b.to - b.from) / 64
		x := min(max(b.falsePosition(), b.from+margin), b.to-margin)
		fx := f(x)
		if math.Abs(fx) < 1e-6 {
			return x
		}
		b.narrow(x, fx)
	}
	return b.from
}

// reached returns Pr_θ[C ≥ c], the larger of the two groups' probabilities.
func (e levelSum) reached(theta float64) float64 {
	inside := min(max(theta, 0), e.Clients)
	e.Seen -= (1 - e.Gamma) * (theta - inside) / e.Size
	one, other := e.worst(inside, false), e.worst(inside, true)
	p := one.reached(e)
	if one != other {
		p = max(p, other.reached(e))
	}
	return p
}

// worstClients are a number of clients with at most two different values. Of all values in [0, 1] with a given sum and
// a given sum of squares, these give C the largest cumulant generating function on one side of 0: one of the two
// values is an end of the range. For k = 1 all clients have the same value, since only the sum of the values decides
// how clients round.
type worstClients struct {
	clients, value [2]float64 // How many whole clients have which value.
	rounding       float64    // Variance of the rounding that the values do not explain, in levels.
}

// worst returns the clients whose values sum up to theta. If high is set, one of their values is 1, otherwise 0.
func (e levelSum) worst(theta float64, high bool) worstClients {
	n, k := e.Clients, float64(e.K)
	mean := theta / n
	if e.K == 1 {
		return worstClients{clients: [2]float64{n, 0}, value: [2]float64{mean, 0}}
	}
	var c worstClients
	if high {
		c = e.atLowEnd(n - theta)
		c.value[0], c.value[1] = 1-c.value[0], 1-c.value[1]
	} else {
		c = e.atLowEnd(theta)
	}
	fraction := min(0.5, k*min(mean, 1-mean))
	c.rounding = n * fraction * (1 - fraction)
	if e.Size == 1 {
		for j, n := range c.clients {
			_, f := c.rounded(e, j)
			c.rounding -= n * f * (1 - f)
		}
		c.rounding = max(c.rounding, 0)
	}
	return c
}

// atLowEnd returns clients of whom some have the value 0, and the others the value that gives all the sum theta and the
// sum of squares Q; or the nearest possible Q.
func (e levelSum) atLowEnd(theta float64) worstClients {
	if theta <= 0 {
		return worstClients{clients: [2]float64{e.Clients, 0}}
	}
	second := min(max(e.Squares+theta-e.Clients/4, theta*theta/e.Clients), theta) // Σx²
	own := min(max(math.Ceil(theta*theta/second-1e-9), 1), e.Clients)
	return worstClients{clients: [2]float64{own, e.Clients - own}, value: [2]float64{min(theta/own, 1), 0}}
}

// variance returns the variance of C.
func (c worstClients) variance(e levelSum) float64 {
	k, g, s := float64(e.K), e.Gamma, e.Size
	if e.K == 1 {
		q := (1-g)*c.value[0] + g/2
		return e.Clients / s * (0.25 - (q-0.5)*(q-0.5)/s)
	}
	sum := c.rounding / (k * k) * (1 - g) * (1 - g) / (s * s)
	for j, x := range c.value {
		_, f := c.rounded(e, j)
		v, rounding := x-0.5, f*(1-f)/(k*k)
		sum += c.clients[j] / s * ((1-g)*(v*v+rounding) + g*blanketVariance(e.K) - (1-g)*(1-g)*v*v/s)
	}
	return sum
}

// fewReports is the expected number of reports below which their distribution is exact, on a lattice of at most
// coarsest levels.
const (
	fewReports = 50
	coarsest   = 8
)

// reached returns Pr[C ≥ c].
func (c worstClients) reached(e levelSum) float64 {
	if e.Size == 1 || e.Clients < fewReports*e.Size {
		return c.inverted(e)
	}
	return c.saddle(e)
}

// characteristic is the characteristic function of C in steps at an angle: its absolute value is e^log, and its
// argument is angle·floor + argument, with floor of [worstClients.floor].
type characteristic struct{ log, argument float64 }

// steps returns the number of steps in a level: 2 if clients may report nothing while levels lie half way between whole
// numbers from the middle, else 1.
func (e levelSum) steps() float64 {
	if e.Size > 1 && e.K%2 == 1 {
		return 2
	}
	return 1
}

// at returns the characteristic function of C. Let ⌊xk⌋ be a client's level rounded down, f the rest of xk, and p =
// ⌊xk⌋-k/2. For levels as steps, the client's function is
//
//	1 - 1/s + ((1-γ)·e^{iθp}·(1-f+f·e^{iθ}) + γ·B(θ))/s,   B(θ) = sin(Kθ/2)/(K·sin(θ/2))
//
// For s = 1 the factor e^{iθp} is left out, and is in floor.
func (c worstClients) at(e levelSum, angle float64) (out characteristic) {
	k, symbols, steps := float64(e.K), float64(e.K+1), e.steps()
	sin, cos := math.Sincos(angle * steps)
	blanket := e.Gamma * math.Sin(symbols*angle*steps/2) / (symbols * math.Sin(angle*steps/2))
	rest := 1 - e.Gamma
	if e.K == 1 {
		blanket, rest = 0, 1
	}
	for j, n := range c.clients {
		if n == 0 {
			continue
		}
		whole, f := c.rounded(e, j)
		s, co := math.Sincos(angle * steps * (whole - k/2))
		re, im := rest*(1-f+f*cos), rest*f*sin
		if e.Size == 1 {
			re, im = re+blanket*co, im-blanket*s
		} else {
			re, im = 1+(re*co-im*s+blanket-1)/e.Size, (re*s+im*co)/e.Size
		}
		out.log += n * math.Log(re*re+im*im) / 2
		out.argument += n * math.Atan2(im, re)
	}
	out.log -= c.rounding * e.shrunk() * (1 - math.Cos(angle)) * steps * steps
	return out
}

// rounded returns the level below the value of the group's clients j and the probability of the level above. For k = 1
// it includes the blanket.
func (c worstClients) rounded(e levelSum, j int) (whole, f float64) {
	if e.K == 1 {
		return 0, (1-e.Gamma)*c.value[0] + e.Gamma/2
	}
	return math.Modf(c.value[j] * float64(e.K))
}

// shrunk returns the square of what a level counts in C if it is in the estimate: 1 for s = 1, where clients round
// before randomized response.
func (e levelSum) shrunk() float64 {
	if e.Size == 1 {
		return 1
	}
	return (1 - e.Gamma) * (1 - e.Gamma) / (e.Size * e.Size)
}

// floor returns the sum of p of [worstClients.at] over all clients, in steps, for s = 1.
func (c worstClients) floor(e levelSum) (floor float64) {
	if e.Size > 1 {
		return 0
	}
	for j, n := range c.clients {
		whole, _ := c.rounded(e, j)
		floor += n * (whole - float64(e.K)/2)
	}
	return floor
}

// bound returns an upper bound on the logarithm of the characteristic function's absolute value at this angle and all
// larger ones up to π, for s = 1.
func (c worstClients) bound(e levelSum, angle float64) float64 {
	cos, log := math.Cos(angle), 0.0
	blanket, rest := e.Gamma*min(1, 1/(float64(e.K+1)*math.Sin(angle/2))), 1-e.Gamma
	if e.K == 1 {
		blanket, rest = 0, 1
	}
	for j, n := range c.clients {
		_, f := c.rounded(e, j)
		log += n * math.Log(rest*math.Sqrt(max(0, 1-2*f*(1-f)*(1-cos)))+blanket)
	}
	return log - c.rounding*(1-cos)
}

// inverted returns Pr[C ≥ c], by inverting C's characteristic function φ at M points, M = points, odd. C is on a
// lattice of steps. With θ = 2πj/M and w steps from c on:
//
//	1/M · Σ_j φ(θ)·Σ_{x=c..c+w-1} e^{-iθx} = 1/M · Σ_j |φ|·cos(arg φ - θ(c+(w-1)/2)) · sin(θw/2)/sin(θ/2)
//
// The result is off by the probability of sums that lie far from the mean: 12 standard deviations and 8 times the range
// of one client.
func (c worstClients) inverted(e levelSum) float64 {
	k, steps, floor, mean := float64(e.K), e.steps(), c.floor(e), 0.0
	for j, x := range c.value {
		mean += c.clients[j] * (x - 0.5) * k * steps * (1 - e.Gamma) / e.Size
	}
	reach := (12*math.Sqrt(c.variance(e))+8)*k*steps + 12
	seen := floor + math.Ceil(e.Seen*k*steps-floor-1e-6)
	top := seen + math.Floor(mean+reach-seen)
	switch {
	case seen > top:
		return 0
	case seen < mean-reach:
		return 1
	}
	width, points := top-seen+1, 2*math.Ceil(reach)+1
	sum := width
	for j := 1.0; 2*j < points; j++ {
		angle := 2 * math.Pi * j / points
		phi := c.at(e, angle)
		if phi.log < logVanished {
			if e.Size == 1 && c.bound(e, angle) < logVanished {
				break
			}
			continue
		}
		phase := phi.argument + angle*(floor-(seen+top)/2)
		sum += 2 * math.Exp(phi.log) * math.Cos(phase) * math.Sin(angle*width/2) / math.Sin(angle/2)
	}
	return min(max(sum/points, 0), 1)
}

// logVanished is the logarithm below which a characteristic function is treated as 0.
const logVanished = -42

// saddle returns Pr[C ≥ c] by the saddlepoint approximation.
func (c worstClients) saddle(e levelSum) float64 {
	step := 0.5 / float64(e.K)
	if e.K == 1 || c.value[0] == 1 && c.value[1] == 0 || c.value[0] == 0 && c.value[1] == 1 {
		step = 0.5
	}
	return saddlepoint(func(lambda float64) cumulant { return c.generating(e, lambda) }, e.Seen, step)
}

// saddlepoint returns Pr[C ≥ c] by the saddlepoint approximation of Lugannani and Rice for a lattice. With the cumulant
// generating function κ, κ'(λ) = c and the distance δ between neighbouring values of C:
//
//	1 - Φ(w) + φ(w)·(1/u - 1/w),   w = ±√(2(λc - κ(λ))),   u = √κ''(λ)·(1-e^{-λδ})/δ
func saddlepoint(generating func(lambda float64) cumulant, c, step float64) float64 {
	lambda, at := solveCumulant(generating, c)
	w := math.Copysign(math.Sqrt(max(0, 2*(lambda*c-at.value))), lambda)
	if math.Abs(w) < 1e-3 {
		return math.Erfc((c-at.first-step/2)/math.Sqrt(2*at.second)+w/math.Sqrt2) / 2
	}
	u := math.Sqrt(at.second) * -math.Expm1(-lambda*step) / step
	tail := math.Erfc(w/math.Sqrt2)/2 + math.Exp(-w*w/2)/math.Sqrt(2*math.Pi)*(1/u-1/w)
	return min(max(tail, 0), 1)
}

// cumulant is the value of a cumulant generating function with its first two derivatives.
type cumulant struct{ value, first, second float64 }

// solveCumulant returns the λ with κ'(λ) = c, in ±mostLambda, by Newton's method within a bracket.
func solveCumulant(generating func(lambda float64) cumulant, c float64) (lambda float64, at cumulant) {
	const mostLambda = 400
	at = generating(0)
	lo, hi := 0.0, 0.0
	for step := 1.0; at.first < c && hi < mostLambda; step *= 2 {
		lo, hi = hi, hi+step
		at = generating(hi)
	}
	if hi == 0 {
		for step := 1.0; at.first > c && lo > -mostLambda; step *= 2 {
			hi, lo = lo, lo-step
			at = generating(lo)
		}
	}
	lambda = lo
	for range 80 {
		at = generating(lambda)
		if at.first < c {
			lo = lambda
		} else {
			hi = lambda
		}
		next := lambda + (c-at.first)/at.second
		if math.Abs(next-lambda) < 1e-10*(1+math.Abs(lambda)) || hi-lo < 1e-12 {
			break
		}
		if lambda = next; !(next > lo && next < hi) {
			lambda = (lo + hi) / 2
		}
	}
	return lambda, at
}

// generating returns the cumulant generating function of C at lambda for s > 1:
//
//	Σ_i ln(1 + (D_i-1)/s) + λ²·R/2,   D_i = (1-γ)·e^{λ(x_i-½)} + γ·B(λ),   B(λ) = sinh(Kλ/2k)/(K·sinh(λ/2k))
//
// R is the variance of rounding. For k = 1, D is q·e^{λ/2} + (1-q)·e^{-λ/2}, with q the probability of a report of 1.
func (c worstClients) generating(e levelSum, lambda float64) (out cumulant) {
	k, g := float64(e.K), e.Gamma
	rounding := c.rounding / (k * k) * (1 - g) * (1 - g) / (e.Size * e.Size)
	out = cumulant{lambda * lambda * rounding / 2, lambda * rounding, rounding}
	blanket := uniform(k, lambda)
	for j, n := range c.clients {
		if n == 0 {
			continue
		}
		v := c.value[j] - 0.5
		own := (1 - g) * math.Exp(lambda*v)
		d := cumulant{own + g*blanket.value, own*v + g*blanket.first, own*v*v + g*blanket.second}
		if e.K == 1 {
			q := (1-g)*c.value[0] + g/2
			up, down := q*math.Exp(lambda/2), (1-q)*math.Exp(-lambda/2)
			d = cumulant{up + down, (up - down) / 2, (up + down) / 4}
		}
		all := 1 + (d.value-1)/e.Size
		first := d.first / e.Size / all
		out.value += n * math.Log(all)
		out.first += n * first
		out.second += n * (d.second/e.Size/all - first*first)
	}
	return out
}

// uniform returns the moment generating function of y/k - ½ for a uniform level y, with its derivatives.
func uniform(k, lambda float64) cumulant {
	a, b := (k+1)/(2*k), 1/(2*k)
	x := math.Abs(lambda)
	if x*a < 1e-3 {
		v := (a*a - b*b) / 3
		return cumulant{1 + v*x*x/2, v * lambda, v}
	}
	value := math.Exp((a-b)*x) * math.Expm1(-2*a*x) / math.Expm1(-2*b*x) / (k + 1)
	sa, sb := math.Sinh(a*x), math.Sinh(b*x)
	slope := a/math.Tanh(a*x) - b/math.Tanh(b*x)
	bend := b*b/(sb*sb) - a*a/(sa*sa)
	return cumulant{value, math.Copysign(value*slope, lambda), value * (slope*slope + bend)}
}
