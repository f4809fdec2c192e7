package stattest

import "math"

// Point is a value of a curve.
type Point struct{ Epsilon, Delta float64 }

// Proven returns what values of a curve at some ε, from 0 on and ascending, prove at every ε: the largest curve of a
// symmetric pair that is nowhere above them. A curve is convex in α = e^ε, its own mirror image
// δ(−ε) = 1 − e^−ε + e^−ε·δ(ε), 1 at α = 0, and it falls; so this is the lower convex hull of the values, their mirror
// images, the point (0, 1), and the last value for ever.
func Proven(values []Point) func(eps float64) float64 {
	type point struct{ alpha, delta float64 }
	all := []point{{0, 1}}
	for i := len(values) - 1; i >= 0; i-- {
		back := math.Exp(-values[i].Epsilon)
		all = append(all, point{back, -math.Expm1(-values[i].Epsilon) + back*values[i].Delta})
	}
	for _, v := range values {
		all = append(all, point{math.Exp(v.Epsilon), v.Delta})
	}
	all = append(all, point{math.Exp(60), values[len(values)-1].Delta})
	var hull []point
	for _, p := range all {
		for n := len(hull); n > 1 && (hull[n-1].delta-hull[n-2].delta)*(p.alpha-hull[n-1].alpha) >=
			(p.delta-hull[n-1].delta)*(hull[n-1].alpha-hull[n-2].alpha); n-- {
			hull = hull[:n-1]
		}
		hull = append(hull, p)
	}
	return func(eps float64) float64 {
		i, alpha := 1, math.Exp(eps)
		for i < len(hull)-1 && hull[i].alpha < alpha {
			i++
		}
		a, b := hull[i-1], hull[i]
		return a.delta + (b.delta-a.delta)*(alpha-a.alpha)/(b.alpha-a.alpha)
	}
}
