package accountant

import "math"

// ulp is the unit roundoff of float64: one operation errs by at most this factor.
const ulp = 0x1p-53

// binomial returns Pr[Bin(n, p) = x] for integers 0 ≤ x ≤ n, q being 1−p.
//
// It uses Loader's saddle-point form, "Fast and accurate computation of binomial probabilities" (2000), which takes
// no difference of large logarithms:
//
//	√(n/(2π·x·(n−x)))·exp(s(n)−s(x)−s(n−x) − D(x, np) − D(n−x, nq))
//
// s is the error of Stirling's formula and D(x, m) = x·ln(x/m) + m − x. The relative error is a few ulp times the
// larger of 1 and the exponent.
func binomial(x, n, p, q float64) float64 {
	switch {
	case x < 0 || x > n:
		return 0
	case x == 0:
		return math.Exp(n * log1m(p, q))
	case x == n:
		return math.Exp(n * log1m(q, p))
	}
	e := stirlingError(n) - stirlingError(x) - stirlingError(n-x) - deviance(x, n*p) - deviance(n-x, n*q)
	return math.Sqrt(n/(2*math.Pi*x*(n-x))) * math.Exp(e)
}

// log1m returns ln(1−p), given p and q = 1−p. It computes from whichever of the two carries more digits.
func log1m(p, q float64) float64 {
	if p < 0.5 {
		return math.Log1p(-p)
	}
	return math.Log(q)
}

// stirlingError returns ln(n!) − ln(√(2πn)·(n/e)^n) for an integer n ≥ 1.
func stirlingError(n float64) float64 {
	if n < 16 {
		return stirlingErrors[int(n)]
	}
	m := n * n // the asymptotic series; the first term left out is below 1e-17 for n ≥ 16
	return (1.0/12 - (1.0/360-(1.0/1260-(1.0/1680-(1.0/1188-691.0/360360/m)/m)/m)/m)/m) / n
}

// stirlingErrors are the values for n = 0…15; entry 0 is unused.
var stirlingErrors = [16]float64{
	0,
	0.0810614667953272582196702, 0.0413406959554092940938221, 0.02767792568499833914878929,
	0.02079067210376509311152277, 0.01664469118982119216319487, 0.01387612882307074799874573,
	0.01189670994589177009505572, 0.010411265261972096497478567, 0.009255462182712732917728637,
	0.008330563433362871256469318, 0.007573675487951840794972024, 0.006942840107209529865664152,
	0.006408994188004207068439631, 0.005951370112758847735624416, 0.005554733551962801371038690,
}

// deviance returns D(x, m) = x·ln(x/m) + m − x ≥ 0 for x, m > 0, without cancellation. If x and m are close it sums,
// with v = (x−m)/(x+m),
//
//	(x−m)·v + 2x·Σ_{j≥1} v^(2j+1)/(2j+1)
func deviance(x, m float64) float64 {
	if math.Abs(x-m) >= 0.1*(x+m) {
		return x*math.Log(x/m) + m - x
	}
	v := (x - m) / (x + m)
	sum, term := (x-m)*v, 2*x*v
	v *= v
	for j := 3.0; ; j += 2 {
		term *= v
		next := sum + term/j
		if next == sum {
			return sum
		}
		sum = next
	}
}
