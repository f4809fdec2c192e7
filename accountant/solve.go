package accountant

import "math"

// solveTolerance is the relative width at which a search stops.
const solveTolerance = 1e-12

// smallest returns an x in [0, hi] with f(x) ≤ target, at most a relative 1e-11 above the
// smallest such x. f must be non-increasing with f(hi) ≤ target. Below hi·e^-40 only 0 is tried.
func smallest(f func(float64) float64, target, hi float64) float64 {
	excess := func(s float64) float64 { return excessOf(f(math.Exp(s)), target) }
	top := math.Log(hi)
	if math.Exp(top) < hi { // f(e^top) ≤ target must hold in floating point too
		top += 4 * ulp * (1 + math.Abs(top))
	}
	width := 0.5
	for excess(top-width) <= 0 {
		if top -= width; math.Log(hi)-top > 40 {
			if f(0) <= target {
				return 0
			}
			return math.Exp(top)
		}
		width *= 2
	}
	return math.Min(hi, math.Exp(crossing(excess, top-width, top)))
}

// excessOf returns ln(value/target), kept finite.
func excessOf(value, target float64) float64 {
	return math.Max(-2000, math.Min(2000, math.Log(value/target)))
}

// crossing returns the upper end of an interval of width at most solveTolerance around the
// point where f falls to 0 or below, given f(lo) > 0 ≥ f(hi).
//
// It is the ITP method of Oliveira and Takahashi (2020): as fast as the secant method on
// smooth functions and at most two steps slower than bisection on any.
func crossing(f func(float64) float64, lo, hi float64) float64 {
	flo, fhi := f(lo), f(hi)
	tol := solveTolerance / 2
	budget := math.Ldexp(tol, int(math.Max(0, math.Ceil(math.Log2((hi-lo)/(2*tol)))))+2)
	for hi-lo > 2*tol {
		mid := lo + (hi-lo)/2
		secant := (flo*hi - fhi*lo) / (flo - fhi)
		x := project(truncate(secant, mid, 0.2*(hi-lo)*(hi-lo), tol), mid, math.Max(0, budget-(hi-lo)/2))
		if !(x > lo && x < hi) {
			x = mid
		}
		if x == lo || x == hi { // no float64 lies between lo and hi
			break
		}
		if fx := f(x); fx > 0 {
			lo, flo = x, fx
		} else {
			hi, fhi = x, fx
		}
		budget /= 2
	}
	return hi
}

// truncate moves x toward mid by step, at least tol, but not past it.
func truncate(x, mid, step, tol float64) float64 {
	step = math.Max(step, tol)
	if math.Abs(mid-x) <= step {
		return mid
	}
	return x + math.Copysign(step, mid-x)
}

// project returns the point nearest x within radius of mid.
func project(x, mid, radius float64) float64 {
	if math.Abs(x-mid) <= radius {
		return x
	}
	return mid - math.Copysign(radius, mid-x)
}
