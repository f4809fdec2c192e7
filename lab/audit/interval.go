package audit

import "math"

// ClopperPearson returns lower and upper bounds of an event's probability, given its hits in a number of trials. Each
// bound is wrong with probability at most alpha (exact confidence limits of the binomial law, [CP34]).
//
// [CP34]: https://doi.org/10.1093/biomet/26.4.404
func ClopperPearson(hits, trials int, alpha float64) (lower, upper float64) {
	k, n := float64(hits), float64(trials)
	lower, upper = 0, 1
	if hits > 0 {
		lower = betaQuantile(alpha, k, n-k+1)
	}
	if hits < trials {
		upper = 1 - betaQuantile(alpha, n-k, k+1)
	}
	return lower, upper
}

// betaQuantile returns the x at which the regularized incomplete beta function I_x(a, b) equals p, rounded down
// slightly.
func betaQuantile(p, a, b float64) float64 {
	lo, hi := 0.0, 1.0
	for hi-lo > 1e-15 && hi-lo > 1e-10*hi {
		mid := (lo + hi) / 2
		if beta(mid, a, b) > p {
			hi = mid
		} else {
			lo = mid
		}
	}
	return lo
}

// beta returns the regularized incomplete beta function I_x(a, b), by its continued fraction [DLMF, 8.17.22].
//
// [DLMF]: https://dlmf.nist.gov/8.17
func beta(x, a, b float64) float64 {
	if x <= 0 || x >= 1 {
		return min(max(x, 0), 1)
	}
	if x > (a+1)/(a+b+2) {
		return 1 - beta(1-x, b, a)
	}
	la, _ := math.Lgamma(a)
	lb, _ := math.Lgamma(b)
	lab, _ := math.Lgamma(a + b)
	front := math.Exp(lab-la-lb+a*math.Log(x)+b*math.Log1p(-x)) / a
	return front * fraction(x, a, b)
}

// fraction evaluates the continued fraction of [beta] by Lentz's algorithm.
func fraction(x, a, b float64) float64 {
	const tiny = 1e-300
	away := func(v float64) float64 {
		if math.Abs(v) < tiny {
			return tiny
		}
		return v
	}
	c, d := 1.0, 1/away(1-(a+b)*x/(a+1))
	f := d
	for m := 1.0; m < 10_000; m++ {
		even := m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m))
		d, c = 1/away(1+even*d), away(1+even/c)
		f *= d * c
		odd := -(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1))
		d, c = 1/away(1+odd*d), away(1+odd/c)
		f *= d * c
		if math.Abs(d*c-1) < 1e-14 {
			break
		}
	}
	return f
}
