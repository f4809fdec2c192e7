package figures

import (
	"fmt"
	"math"

	"github.com/doona-dp/doona/internal/testing/stattest"
)

func gkmps21Errata() []Erratum {
	return []Erratum{
		{
			Name: "theorem10", Where: "GKMPS21, Theorem 10",
			Claim: "NB(r, p) with p = e^{−0.2ε/Δ}, r = 3(1 + ln(1/δ)) as noise is (ε, δ)-DP for Δ-summation.",
			Truth: "The theorem is true, and loose by some 15 orders of magnitude in δ. Noise with p ≈ " +
				"e^{−0.5ε/Δ} needs a fifth of the messages.",
			show: showTheorem10,
		},
		{
			Name: "natural-logarithm", Where: "public code of GKMPS21's protocol, for the vector t of Theorem 12",
			Claim: "t_v = ⌈Γ/|v|⌉ with Γ = Δ(⌈ln Δ⌉ + 1) dominates every column of the right inverse.",
			Truth: "The logarithm's base is 2. With the natural one a column exceeds the vector, Σ|c_v|/t_v > " +
				"1, for most Δ from 17 on and every Δ from 66 on. Corollary 11 then says nothing about the " +
				"noise.",
			show: showNaturalLogarithm,
		},
		{
			Name: "rappor-calibration", Where: "experiments with fragmented RAPPOR, GKMPS21's Figure 1 among them",
			Claim: "the flip probability f is calibrated for the case that all other users hold other values: " +
				"n·f ≈ 42.6 for (1, 10⁻⁶).",
			Truth: "δ is the worst case over the others' values. The worst case is that all hold the client's " +
				"value, because the flips of ones have the lighter tail. δ is then almost 5 times larger, and " +
				"n·f ≈ 50 is needed.",
			show: showRappor,
		},
		{
			Name: "counted-covers", Where: "multi-message protocols that send nothing for 0, GKMPS21's Algorithm 1 " +
				"among them, where empty slots are filled with dummies",
			Claim: "covers that no relay can tell from messages make up for values that send no message.",
			Truth: "The verifier opens covers and counts them. Suppose a client sends a message for x ≠ 0 and a " +
				"cover for x = 0, and noise is added. Then the number of covers is the exact number of zeros, " +
				"and δ = 1. There are two remedies: fill a fixed number of slots, or send 0 as a message with " +
				"noise of its own.",
			show: showCovers,
		},
	}
}

// shiftDelta returns the hockey-stick divergence (δ at eps) between the negative binomial law NB(r, e^{−s}) and the
// same law shifted by shift. It returns the larger of both directions.
func shiftDelta(r, s float64, shift int, eps float64) float64 {
	reach := int((r+40)/s) * 4
	pmf := make([]float64, reach+shift+1)
	for k := range reach + 1 {
		pmf[k] = negativeBinomial(float64(k), r, s)
	}
	up, down := 0., 0.
	for k := range pmf {
		moved := 0.
		if k >= shift {
			moved = pmf[k-shift]
		}
		up += math.Max(0, moved-math.Exp(eps)*pmf[k])
		down += math.Max(0, pmf[k]-math.Exp(eps)*moved)
	}
	return max(up, down)
}

// negativeBinomial returns Pr[NB(r, e^{−s}) = k].
func negativeBinomial(k, r, s float64) float64 {
	a, _ := math.Lgamma(k + r)
	b, _ := math.Lgamma(k + 1)
	c, _ := math.Lgamma(r)
	return math.Exp(a - b - c + r*math.Log(-math.Expm1(-s)) - s*k)
}

func showTheorem10() (string, bool) {
	const eps, delta, shift = 1., 1e-6, 4
	r, s := 3*(1+math.Log(1/delta)), .2*eps/shift
	printed := shiftDelta(r, s, shift, eps)
	best, bestR, bestS := math.Inf(1), 0., 0.
	for _, factor := range []float64{.3, .4, .5, .6, .7} {
		rate, lo, hi := factor*eps/shift, 1., r
		for range 30 {
			if mid := (lo + hi) / 2; shiftDelta(mid, rate, shift, eps) > delta {
				lo = mid
			} else {
				hi = mid
			}
		}
		if mean := hi / math.Expm1(rate); shiftDelta(hi, rate, shift, eps) <= delta && mean < best {
			best, bestR, bestS = mean, hi, factor
		}
	}
	mean := r / math.Expm1(s)
	return fmt.Sprintf("At Δ = %d, ε = 1 and δ = 10⁻⁶ the divergence is %.2g. r = %.1f and p = e^{−%g/Δ} have "+
		"at most 10⁻⁶. Their mean is %.0f instead of %.0f, %.1f times fewer messages.",
		shift, printed, bestR, bestS, best, mean, mean/best), printed < 1e-19 && mean/best > 4
}

// halvingColumn adds the non-zero entries of a column of the paper's right inverse to column: the column for value i,
// times a factor. Keys are the paper's atoms: v for s_v, −v for s_{−v}, and −1 for the atom {−1, +1}.
func halvingColumn(i int, sign int, times float64, column map[int]float64) {
	if i == 1 {
		if sign < 0 {
			column[-1] += times
		}
		return
	}
	column[sign*i] += times
	halvingColumn((i+1)/2, -sign, -times, column)
	halvingColumn(i/2, -sign, -times, column)
}

// domination returns the largest Σ|c_v|/t_v over the columns c of the values 2 to top, and the value with that column.
// The vector t of Theorem 12 dominates a column if its sum is at most 1. log is the logarithm used in t.
func domination(top int, log func(float64) float64) (most float64, at int) {
	gamma := float64(top) * (math.Ceil(log(float64(top))) + 1)
	for i := 2; i <= top; i++ {
		column, sum := map[int]float64{}, 0.
		halvingColumn(i, 1, 1, column)
		for v, c := range column {
			t := math.Ceil(gamma / math.Abs(float64(v)))
			sum += math.Abs(c) / t
		}
		if sum > most+1e-12 {
			most, at = sum, i
		}
	}
	return most, at
}

func showNaturalLogarithm() (string, bool) {
	var fails []int
	for top := 2; top <= 128; top++ {
		if two, _ := domination(top, math.Log2); two > 1+1e-12 {
			return fmt.Sprintf("base 2 fails at Δ = %d", top), false
		}
		if natural, _ := domination(top, math.Log); natural > 1+1e-12 {
			fails = append(fails, top)
		}
	}
	natural, i := domination(256, math.Log)
	two, _ := domination(256, math.Log2)
	return fmt.Sprintf("Of Δ = 2, …, 128 the natural logarithm fails for %d, the first %v. Base 2 fails for "+
		"none. At Δ = 256 Σ|c_v|/t_v is %.3f for the value %d. With base 2 it is at most %.3f.",
		len(fails), fails[:min(4, len(fails))], natural, i, two), len(fails) > 90 && natural > 1 && two <= 1
}

func showRappor() (string, bool) {
	const n = 1e6
	f := rapporUsual(n, 1, 1e-6)
	same := twoBits(1, n, f, true)
	lo, hi := f, 2*f
	for range 30 {
		if mid := (lo + hi) / 2; twoBits(1, n, mid, true) > 1e-6 {
			lo = mid
		} else {
			hi = mid
		}
	}
	return fmt.Sprintf("At n = 10⁶ the usual calibration has n·f = %.1f. Where all others hold the client's "+
		"value, δ is %.2g, and n·f = %.1f is needed.",
		n*f, same, n*hi), math.Abs(n*f-42.6) < .1 && same > 4.5e-6 && math.Abs(n*hi-50) < .1
}

func showCovers() (string, bool) {
	// Each client holds a bit and sends a message if it is 1, else a cover. It adds one noise message with probability
	// ½, 8 times. The first byte counts messages, the second byte counts covers.
	noise := stattest.Law{"\x00\x00": 1}
	for range 8 {
		noise = noise.Add(stattest.Law{"\x00\x00": .5, "\x01\x00": .5})
	}
	one, zero := noise.Add(stattest.Law{"\x01\x00": 1}), noise.Add(stattest.Law{"\x00\x01": 1})
	others := one.Add(zero)
	covers := stattest.HockeyStick(others.Add(one), others.Add(zero), 10)
	alone := stattest.HockeyStick(noise.Add(noise).Add(noise).Add(stattest.Law{"\x01\x00": 1}),
		noise.Add(noise).Add(noise), 1)
	return fmt.Sprintf("Take 3 clients with 8 coins of noise each. With covers δ(10) = %.3g. Without them δ(1) "+
			"= %.2g.", covers,
			alone),
		covers > 1-1e-9 && alone < .01
}
