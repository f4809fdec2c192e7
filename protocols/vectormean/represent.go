package vectormean

import "math"

// maxSteps bounds the search for a representation. At the default kashin, 11/5, more than 40 steps
// were never needed (TestKashinConstant).
const maxSteps = 100

// margin is by how much the box aimed at is smaller than the one that must hold, so that the search
// ends after finitely many steps.
const margin = 0.98

// represent returns coefficients a with Uᵀa = x and |a_j| ≤ bound, up to rounding, and the number of
// steps it took. Where it finds none, maxSteps steps and the best seen are what it returns.
//
// Any a with Uᵀa = x represents x, the one of least norm being Ux; that of least maximum is a
// non-linear function of x. The affine space {a: Uᵀa = x} and the box of the bound meet for every x
// of norm at most 1 where bound ≥ K/√N, K the Kashin constant of the frame, and a point of both is
// found by Douglas-Rachford splitting ([LM79]; [BCL02] for two sets): projections onto the box, by
// clipping, and onto the space, a + U(x − Uᵀa), of reflected points. Every candidate lies in the
// space exactly. The iteration of [LV10] (clip, and represent again what clipping took away)
// alternates between the same two sets without reflection, takes several times as many steps, and
// stops short of what this reaches (docs/proofs/vectormean.md).
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
