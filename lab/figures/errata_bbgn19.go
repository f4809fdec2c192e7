package figures

import (
	"fmt"
	"math"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/internal/testing/stattest"
)

func bbgn19Errata() []Erratum {
	return []Erratum{
		{
			Name: "lemma11", Where: "BBGN19, Lemma 11",
			Claim: "E[ΣL]₊ ≤ b₊/(a·m·ln(1 + ab₊/c)) · e^{−(mc/b₊²)·φ(ab₊/c)} for m i.i.d. variables with mean −a, " +
				"at most b₊, second moment at most c.",
			Truth: "The factor 1/(a·m) is wrong. Integrating Bennett's tail gives b₊/ln(1 + ab₊/c) in front. As " +
				"printed, the right side is below the left wherever a·m is large. An ε derived from it is below " +
				"the true one. The authors' code had the printed factor too until July 2020. It has the correct " +
				"one since.",
			show: showLemma11,
		},
		{
			Name: "lemma11-epsilon", Where: "BBGN19, Lemma 11 in Lemma 8, for randomized response (Lemma 12)",
			Claim: "(ε, δ)-DP with the δ that Lemmas 8, 11 and 12 give.",
			Truth: "On most of a grid of parameters the δ derived so is below the one achieved. This is so even " +
				"where the shuffled reports are compared without any inequality, and only the other users' " +
				"coins are known.",
			show: showLemma11Epsilon,
		},
		{
			Name: "lemma8", Where: "BBGN19, Lemma 8, inequality (3) as the text has it",
			Claim: "the divergence is at most (1/γⁿ)·Σ_m C(n,m)·γᵐ(1−γ)ⁿ⁻ᵐ·E[ΣL]₊.",
			Truth: "1/γⁿ is a misprint of 1/(γn). With 1/γⁿ the bound is true and empty: it exceeds 1 for any " +
				"useful number of users. With 1/(γn) it holds. It equals the divergence where the other users' " +
				"coins are known.",
			show: showLemma8,
		},
		{
			Name: "theorem1", Where: "BBGN19, Theorem 1",
			Claim: "γ = max{14k·ln(2/δ)/((n−1)ε²), 27k/((n−1)ε)} makes shuffled randomized response private.",
			Truth: "The theorem is true and loose. The smallest γ with the same guarantee is 4 to 9 times " +
				"smaller, and for two values up to 15 times.",
			show: showTheorem1,
		},
		{
			Name: "variation-ratio", Where: "variation-ratio reduction (arXiv 2304.05007) and its public code, used " +
				"for randomized response over K ≥ 3 values",
			Claim: "the pair of two multinomials with the randomizer's total variation dominates the shuffled reports.",
			Truth: "For K ≥ 3 its divergence can be below the true one, so it certifies nothing there. One case " +
				"can be computed by hand: n = 3, K = 3, γ = 0.4, ε = 1.5. Compare inputs (0,0,0) with (0,0,1), " +
				"at the outcome \"all report 0\". It has 0.7333³ − e^1.5·0.7333²·0.1333 = 0.073.",
			show: showVariationRatio,
		},
		{
			Name: "stronger-clones", Where: "\"stronger clones\" (arXiv 2208.04591), Lemma 3.5 as first " +
				"published, for randomized response over K ≥ 3 values",
			Claim: "with p = 1/(e^ε₀ + K − 1), C ~ Bin(n−1, 2p) clones dominate the shuffled reports. Half of " +
				"the clones are in either cell. The target is in one cell with probability e^ε₀·p and in the " +
				"other with p, else in neither.",
			Truth: "To simulate the reports from the pair, one must know whether the target is in neither cell, " +
				"and cannot know it. The paper's errata say that its proof errs for p < 1/(e^ε₀+1). With p = " +
				"1/(e^ε₀+1) the target is always in a cell. For randomized response the pair is then above the " +
				"truth.",
			show: showStrongerClones,
		},
		{
			Name: "fft-mean", Where: "public code that composes losses of the shuffle model by FFT " +
				"(DPBayes/numerical-shuffler-experiments, commit 75068f3): its error bound",
			Claim: "the mean E[e^{λL}] of a loss with values s and probabilities p is Σ exp(λs + p), and that of " +
				"E[e^{−λL}] is the same sum.",
			Truth: "E[e^{λL}] = Σ p·exp(λs). In the exponent, p makes each value count as if it were certain. " +
				"The sign differs between the two means. The sum is too large where values come in pairs ±s, as " +
				"they do there. So the bound is safe. In the case shown it is too large by more than the number " +
				"of values.",
			show: showFFTMean,
		},
	}
}

// excess returns E[max(ΣL, 0)] for the sum of m independent variables L, which are up with probability p, else −down.
func excess(m int, up, p, down float64) (sum float64) {
	for i := range m + 1 {
		sum += binomial(m, i, p) * math.Max(0, float64(i)*up-float64(m-i)*down)
	}
	return sum
}

// bennett returns the bound of Lemma 11 (Bennett's inequality) without its factor 1/(a·m).
func bennett(m, up, a, c float64) float64 {
	u := a * up / c
	return up / math.Log1p(u) * math.Exp(-m*c/(up*up)*((1+u)*math.Log1p(u)-u))
}

func showLemma11() (string, bool) {
	const m, up, p, down = 400, 1., .45, 1.
	a, c := down*(1-p)-up*p, up*up*p+down*down*(1-p)
	truth, right := excess(m, up, p, down), bennett(m, up, a, c)
	printed := right / (a * m)
	return fmt.Sprintf("Take m = %d variables of ±1, +1 with probability %g. E[ΣL]₊, computed exactly, is %.3g. "+
		"The printed bound is %.3g. Without the factor it is %.3g.",
		m, p, truth, printed, right), printed < truth && truth <= right
}

// printedBennett returns δ by Lemmas 8, 11 and 12 of BBGN19 as printed, except that it replaces Lemma 8's misprinted
// factor 1/γⁿ by 1/(γn).
func printedBennett(eps0 float64, k, n, eps float64) (sum float64) {
	gamma, e, drift := k/(math.Expm1(eps0)+k), math.Exp(eps), math.Expm1(eps)
	top := (1-gamma)*k - gamma*drift
	c := gamma*(2-gamma)*drift*drift + (1-gamma)*(1-gamma)*k*(1+e*e)
	mean, deviation := n*gamma, math.Sqrt(n*gamma*(1-gamma))
	for m := max(1, math.Floor(mean-10*deviation)); m <= min(n, mean+10*deviation); m++ {
		sum += binomial(int(n), int(m), gamma) * bennett(m, top, drift, c) / (drift * m)
	}
	return sum / (gamma * n)
}

func showLemma11Epsilon() (string, bool) {
	below, cells, least, where := 0, 0, math.Inf(1), ""
	for _, k := range []uint64{10, 100} {
		for _, eps0 := range []float64{.5, 1, 2, 4} {
			for _, n := range []uint64{1e3, 1e4, 1e5} {
				a := accountant.Amplification{Mechanism: accountant.KRR, Bound: accountant.ExactBits, Epsilon0: eps0,
					K: k, Users: n}
				eps, raw, err := a.Epsilon(1e-6)
				if err != nil || raw > eps0 {
					continue
				}
				truth, _, err := a.Delta(eps)
				if err != nil {
					return err.Error(), false
				}
				cells++
				printed := printedBennett(eps0, float64(k), float64(n), eps)
				if printed < truth/(1+1e-6) {
					below++
				}
				if printed/truth < least {
					least, where = printed/truth, fmt.Sprintf("K = %d, ε₀ = %g, n = %d", k, eps0, n)
				}
			}
		}
	}
	return fmt.Sprintf("δ as printed is below the one achieved in %d of %d cells of a grid. In the worst cell "+
		"(%s) it is %.3g times the one achieved.",
		below, cells, where, least), below > cells/2
}

func showLemma8() (string, bool) {
	const k, gamma, n, eps = 3, .5, 4, .5
	truth := stattest.Worst(reports(k, gamma), n, eps)
	exact, err := accountant.KRRDelta(accountant.Exact, k, gamma, n, eps)
	if err != nil {
		return err.Error(), false
	}
	hundred, err := accountant.KRRDelta(accountant.Exact, 10, .2, 100, eps)
	if err != nil {
		return err.Error(), false
	}
	printed := math.Log10(hundred) + math.Log10(.2*100) - 100*math.Log10(.2)
	return fmt.Sprintf("At K = %d, γ = %g, n = %d and ε = %g the bound with 1/(γn) is %.4f. The truth over all "+
		"inputs is %.4f. At n = 100, K = 10 and γ = 0.2 the bound is %.3g. With 1/γⁿ it would be 10^%.0f.",
		k, gamma, n, eps, exact, truth, hundred, printed), truth <= exact && exact < 1.2*truth && printed > 0
}

func showTheorem1() (string, bool) {
	least, most, two := math.Inf(1), 0., 0.
	for _, n := range []float64{1e5, 1e7} {
		for _, eps := range []float64{.1, 1} {
			for _, delta := range []float64{1e-6, 1e-8} {
				printed := gammaOf(accountant.Theorem1, 10, n, eps, delta)
				if ratio := printed / gammaOf(accountant.Exact, 10, n, eps, delta); !math.IsNaN(ratio) {
					least, most = min(least, ratio), max(most, ratio)
				}
				printed = gammaOf(accountant.Theorem1, 2, n, eps, delta)
				two = max(two, printed/gammaOf(accountant.Others, 2, n, eps, delta))
			}
		}
	}
	return fmt.Sprintf("On a grid of n, ε and δ it is %.1f to %.1f times the exact γ for 10 values. For 2 "+
		"values it is up to %.1f times the exact γ.",
		least, most, two), least > 4 && most < 9 && two < 16
}

// variationRatio returns the hockey-stick divergence (δ at eps) of the pair of laws that the variation-ratio paper uses
// for K-ary randomized response. Of the n−1 other clients, C ~ Bin(n−1, 2γ/K) report one of the two cells that matter,
// each with probability ½. The target reports its own cell with probability hit, the other with miss, and else neither.
func variationRatio(k int, gamma float64, n int, eps float64) (delta float64) {
	hit, miss := 1-gamma+gamma/float64(k), gamma/float64(k)
	for s := range n + 1 { // s is the number of reports in the two cells; a of them are in the first cell
		with, without := binomial(n-1, s-1, 2*miss), binomial(n-1, s, 2*miss)
		for a := range s + 1 {
			first, second := with*binomial(s-1, a-1, .5), with*binomial(s-1, a, .5)
			neither := (1 - hit - miss) * without * binomial(s, a, .5)
			p, q := hit*first+miss*second+neither, miss*first+hit*second+neither
			delta += math.Max(0, p-math.Exp(eps)*q)
		}
	}
	return delta
}

func showVariationRatio() (string, bool) {
	const k, gamma, n, eps = 3, .4, 3, 1.5
	truth, pair := stattest.Worst(reports(k, gamma), n, eps), variationRatio(k, gamma, n, eps)
	hit, miss := 1-gamma+gamma/k, gamma/k
	hand := hit*hit*hit - math.Exp(eps)*hit*hit*miss
	return fmt.Sprintf("The pair gives δ = %.4f. The one outcome alone gives %.4f. The truth over all inputs is "+
			"%.4f.", pair,
			hand, truth),
		pair < hand && hand <= truth
}

// strongerClones returns the hockey-stick divergence (δ at eps) of the pair of laws in "stronger clones" for n reports.
// Of the n−1 other clients, C ~ Bin(n−1, 2p) report one of two cells, each with probability ½. The target reports its
// own cell with probability e^ε₀·p, the other with p, and else neither.
func strongerClones(p, eps0 float64, n int, eps float64) (delta float64) {
	hit := math.Exp(eps0) * p
	neither := max(0, 1-hit-p)
	for a := range n + 1 {
		for b := range n + 1 - a {
			others := func(a, b int) float64 { return binomial(n-1, a+b, 2*p) * binomial(a+b, a, .5) }
			first, second, none := others(a-1, b), others(a, b-1), neither*others(a, b)
			delta += math.Max(0, hit*first+p*second+none-math.Exp(eps)*(p*first+hit*second+none))
		}
	}
	return delta
}

func showStrongerClones() (string, bool) {
	const k, gamma, n, eps = 3, .4, 3, 1.5
	truth := stattest.Worst(reports(k, gamma), n, eps)
	eps0 := math.Log((1 - gamma + gamma/k) / (gamma / k))
	withdrawn := strongerClones(1/(math.Exp(eps0)+k-1), eps0, n, eps)
	kept := strongerClones(1/(math.Exp(eps0)+1), eps0, n, eps)
	return fmt.Sprintf("Take n = %d, K = %d, γ = %g, ε₀ = %.3f and ε = %g. The pair gives δ = %.4f. The truth "+
			"over all inputs is %.4f. With p = 1/(e^ε₀+1) the pair gives %.4f.", n, k, gamma, eps0, eps, withdrawn, truth, kept),
		withdrawn < truth/2 && truth <= kept
}

// showFFTMean computes the privacy loss of binary randomized response among n reports: the log ratio of the laws of the
// number of ones, if one user holds 1 and if that user holds 0.
func showFFTMean() (string, bool) {
	const n, gamma, lambda = 20, .5, 2.
	law := make([]float64, n+1) // law of the number of reported ones, if one user holds 1 and the others hold 0
	for ones := range n + 1 {
		law[ones] = (1-gamma/2)*binomial(n-1, ones-1, gamma/2) + gamma/2*binomial(n-1, ones, gamma/2)
	}
	mean, code := 0., 0.
	values := 0
	for ones, p := range law {
		q := binomial(n, ones, gamma/2)
		loss := math.Log(p / q)
		mean += p * math.Exp(lambda*loss)
		code += math.Exp(-lambda*loss + p)
		values++
	}
	return fmt.Sprintf("For two values, n = %d, γ = %g and λ = %g, E[e^{λL}] = %.3f. The sum over %d values is "+
		"%.1f.", n,
		gamma, lambda, mean, values, code), mean > 1 && code > float64(values)
}
