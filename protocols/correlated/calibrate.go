package correlated

import "math"

// tune returns the least scale of losses... (prototype)
func (d *design) cost() float64 {
	total := 2 * d.pair.mean()
	for l, n := range atomCounts(d.top) {
		total += 3 * float64(n) * d.levels[l].mean()
	}
	return total
}

// uniform returns the design in which a shift by Δ of {-1,+1} and of 2^ℓ at level ℓ are worth x₀ and x.
func uniform(top uint64, star, r0, x0, r, x float64) *design {
	d := &design{top: top, star: star, pair: noise{r: r0, s: x0 / float64(top)}}
	for l := range levels(top) {
		d.levels = append(d.levels, noise{r: r, s: x / float64(int(1)<<l)})
	}
	return d
}

var evals int

func scaled(top uint64, star, eps, delta, r0, ratio, r, theta float64) *design {
	lo, hi := -12.0, 2.0
	for range 22 {
		mid := (lo + hi) / 2
		x := math.Exp(mid)
		d := uniform(top, star, r0, x*ratio, r, x)
		evals++
		if d.bound(eps, theta, d.miss(delta)) <= delta {
			lo = mid
		} else {
			hi = mid
		}
	}
	x := math.Exp(lo)
	return uniform(top, star, r0, x*ratio, r, x)
}
