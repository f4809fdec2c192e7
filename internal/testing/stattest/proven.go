package stattest

import "math"

// Point is one point of a privacy curve δ(ε).
type Point struct{ Epsilon, Delta float64 }

// Proven returns the strongest bound on δ at every ε that some points of a curve prove. The points begin at ε = 0 and
// ascend. A curve of a symmetric pair is falling and convex in α = e^ε and is 1 at α = 0. It also satisfies δ(−ε) = 1 −
// e^−ε + e^−ε·δ(ε), which mirrors every point. So the bound is the lower convex hull of the points, their mirror images
// and (0, 1). Beyond the last point, the bound is the last value.
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
