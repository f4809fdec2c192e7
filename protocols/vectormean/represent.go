package vectormean

import "math"

// maxSteps is the largest number of steps of the search for a representation. At the default kashin, 11/5, no vector
// needed more than 40 steps (TestKashinConstant).
const maxSteps = 100

// margin is the size of the box that the search aims at, relative to the box that is required. It is below 1, so that
// the search ends after finitely many steps.
const margin = 0.98

// represent returns coefficients a with Uᵀa = x and |a_j| ≤ bound, up to rounding, and the number of steps. If it
// finds none, it returns maxSteps and the best coefficients seen.
//
// Any a with Uᵀa = x represents x. The one of least norm is Ux; the one with the least maximum is a non-linear function
// of x. The affine space {a: Uᵀa = x} and the box {a: |a_j| ≤ bound} meet for every x of norm at most 1 if bound ≥
// K/√N, K the Kashin constant of the frame. Douglas-Rachford splitting finds a point of both ([LM79]; [BCL02] for two
// sets). It projects reflected points onto the box, by clipping, and onto the space, by a + U(x − Uᵀa). Every candidate
// lies in the space exactly. The iteration of [LV10] clips, and then represents what clipping removed. It alternates
// between the same two sets without reflection, takes several times as many steps, and reaches less small coefficients
// (docs/proofs/vectormean.md).
//
// [LV10]: https://doi.org/10.1109/TIT.2010.2048458
// [LM79]: https://doi.org/10.1137/0716071
// [BCL02]: https://doi.org/10.1364/JOSAA.19.001334
func (f *frame) represent(x []float64, bound float64) (best []float64, steps int) {
	z := f.analyze(x)
	best = append(best, z...)
	least := largest(best)
	box, reflected, a := make([]float64, f.size), make([]float64, f.size), make([]float64, f.size)
	for ; least > bound && steps < maxSteps; steps++ {
		for j, v := range z {
			box[j] = min(max(v, -margin*bound), margin*bound)
			reflected[j] = 2*box[j] - v
		}
		copy(a, reflected)
		rest := f.synthesize(a)
		for l := range rest {
			rest[l] = x[l] - rest[l]
		}
		correction := f.analyze(rest)
		for j := range z {
			a[j] = reflected[j] + correction[j]
			z[j] += a[j] - box[j]
		}
		if m := largest(a); m < least {
			least = m
			copy(best, a)
		}
	}
	return best, steps
}

func largest(v []float64) (m float64) {
	for _, x := range v {
		m = max(m, math.Abs(x))
	}
	return m
}
