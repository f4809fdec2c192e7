package figures

import (
	"fmt"
	"math"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/internal/testing/stattest"
)

func scm21Errata() []Erratum {
	return []Erratum{
		{
			Name: "lemma45", Where: "SCM21, Lemma 4.5 (Appendix A)",
			Claim: "let s be the number of users who report a coordinate. It is at most 2E(s) except with " +
				"probability exp(−E(s)/3) ≤ exp(−n/3) < δ/3t. So γ ≥ 112kt·ln(1/δ)·ln(2t/δ)/(sε²) may be " +
				"evaluated at s = 2(n−1)t/d.",
			Truth: "The blanket of a coordinate has about γs/k reports. It hides less the smaller s is, so s " +
				"must be bounded from below. And exp(−E(s)/3) is larger than exp(−n/3), because E(s) = (n−1)t/d " +
				"is less than n. The proof needs γ at half the mean, which is 4 times the printed one. The step " +
				"fails. We found no case where the result fails by it: where γ ≤ 1, s is much larger than that.",
			show: showLemma45,
		},
		{
			Name: "one-message", Where: "SCM21, Theorem 4.1 and Lemma 4.4 for t ≥ 2",
			Claim: "t coordinates, each through randomized response, sent as one message are (ε, δ)-DP after the " +
				"shuffle.",
			Truth: "Advanced composition needs t separate mechanisms, each hidden by all users' reports. In one " +
				"message the t values of a user stay together. They identify a user whose vector is unlike the " +
				"others'.",
			show: showOneMessage,
		},
		{
			Name: "factor-d", Where: "SCM21, Theorem 4.1 and section 4.5 for t = 1",
			Claim: "γ must have a factor d, because a coordinate is hidden by the n/d users who report it.",
			Truth: "This is true and loose: nobody knows which coordinate a user reports. The loss is at most " +
				"that of plain randomized response over k+1 values among all n users, with no factor d " +
				"([proof](proofs/vectors.md)).",
			show: showFactorD,
		},
		{
			Name: "k-plus-one", Where: "SCM21, Theorem 4.1, and BBGN19, Theorem 2",
			Claim: "values are rounded to {0, …, k}, and the proof and γ are those of a domain of k values.",
			Truth: "The domain has k+1 values. For k = 1 the blanket has half the reports that the proof needs. " +
				"The γ of the theorems is still private, because it is loose enough.",
			show: showKPlusOne,
		},
		{
			Name: "twice-delta", Where: "SCM21, Corollary 4.3 with δ′ = δ/t",
			Claim: "t scalar views, each (ε′, δ/t)-DP, are together (ε, δ)-DP.",
			Truth: "The cited corollary gives (ε, rδ′ + δ), here t·δ/t + δ = 2δ. The events of the two Chernoff " +
				"bounds are still to be added.",
			show: showTwiceDelta,
		},
		{
			Name: "best-k", Where: "SCM21, Theorem 4.6",
			Claim: "k = (n−1)ε²/(4A·d·ln(1/δ)·ln(2t/δ)) minimizes 1/(4k²) + A·dk·ln(1/δ)·ln(2t/δ)/((n−1)ε²).",
			Truth: "The minimum is at the cube root of twice that.",
			show:  showBestK,
		},
		{
			Name: "per-report", Where: "SCM21, sections 4.4 and 5: \"t = 1 is optimal\"",
			Claim: "the normalized error, the squared error of a sum divided by (n/d)², is least at t = 1.",
			Truth: "With t coordinates from each user, a sum has tn/d reports. Divided by (n/d)², its error " +
				"grows as t even if nothing else changes. The error of an average is divided by (tn/d)². It " +
				"falls with t if the t reports travel apart.",
			show: showPerReport,
		},
		{
			Name: "two-orders", Where: "SCM21, section 5, Figure 2 (b)",
			Claim: "a curve n^(−7/6) fits, and as n grows tenfold the error falls by more than two orders of " +
				"magnitude.",
			Truth: "10^(7/6) is 15. Computed with the paper's γ, the error does fall by more than two orders " +
				"over such a range. The cause is its factor 1/(1−γ)², as γ falls from nearly 1. No power of n " +
				"fits.",
			show: showTwoOrders,
		},
	}
}

func showLemma45() (string, bool) {
	const n, d = 2000, 100
	below := 0.
	for s := range 11 {
		below += binomial(n-1, s, 1./d)
	}
	chernoff, claimed := -(50000.-1)/100/3, -50000./3
	const t, k, eps, delta = 2., 1., .95, 1e-6
	least := 56 * k * t * math.Log(1/delta) * math.Log(2*t/delta) / (eps * eps) // least E(s), which is at γ = 1
	tail, allowed := -least/8, math.Log(delta/(3*t))
	return fmt.Sprintf("At n = %d, d = %d and t = 1, s is at most half its mean, 10, with probability %.2g. At "+
			"n = 50,000 exp(−E(s)/3) is e^%.0f, and exp(−n/3) is e^%.0f. But γ ≤ 1 at t = 2, k = 1 and (0.95, 10⁻⁶) "+
			"needs E(s) ≥ %.0f. There s is at most half of that with probability at most e^%.0f, against δ/3t = "+
			"e^%.0f.",
			n, d, below, chernoff, claimed, least, tail, allowed), below > 1e-3 && chernoff > claimed &&
			tail < allowed
}

func showOneMessage() (string, bool) {
	e := scm21{n: 1e6, d: 20, k: 1, t: 20, eps: .95, delta: 1e-6}
	gamma := e.paperGamma()
	seen, hidden := math.Pow(1-gamma/2, e.t), (e.n-1)*math.Pow(gamma/2, e.t)+math.Pow(gamma/2, e.t)
	delta := seen - math.Exp(e.eps)*hidden
	return fmt.Sprintf("At n = 10⁶, d = t = 20, k = 1 and (0.95, 10⁻⁶), γ = %.3f. Let all others hold zeros, "+
		"and one user ones or zeros. With ones, some message has 20 ones with probability at least %.4f; with "+
		"zeros, at most %.1g. So δ ≥ %.4f.",
		gamma, seen, hidden, delta), delta > .038
}

func showFactorD() (string, bool) {
	e := scm21{n: 1e6, d: 10, k: 4, t: 1, eps: .5, delta: 1e-6}
	printed, exact := e.paperGamma(), gammaOf(accountant.Exact, 5, 1e6, .5, 1e-6)
	const gamma, users, eps = .5, 4, .7
	var laws []stattest.Law // law of one report (l, y) for each vector of two bits; l is a random coordinate
	for x := range 4 {
		l := stattest.Law{}
		for kind := range 4 {
			h := make([]byte, 4)
			h[kind] = 1
			p := gamma / 4
			if x>>(kind/2)&1 == kind%2 {
				p += (1 - gamma) / 2
			}
			l[string(h)] += p
		}
		laws = append(laws, l)
	}
	truth := stattest.Worst(laws, users, eps)
	plain, err := accountant.KRRDelta(accountant.Exact, 2, gamma, users, eps)
	if err != nil {
		return err.Error(), false
	}
	return fmt.Sprintf("At n = 10⁶, d = 10, k = 4 and (0.5, 10⁻⁶), the paper's γ is %.4f. The exact one is "+
		"%.5f, %.0f times less. Enumeration for n = %d, d = 2, k = 1, γ = %g and ε = %g gives δ = %.4f, and "+
		"%.4f for one coordinate alone.",
		printed, exact, printed/exact, users, gamma, eps, truth, plain), truth <= plain && printed/exact > 40
}

func showKPlusOne() (string, bool) {
	e := scm21{n: 1e6, d: 1, k: 1, t: 1, eps: .5, delta: 1e-6}
	gamma := e.paperGamma()
	need, has := 14*math.Log(2/e.delta)/(e.eps*e.eps), gamma*(e.n-1)/2
	delta, err := accountant.KRRDelta(accountant.Exact, 2, gamma, 1e6, e.eps)
	if err != nil {
		return err.Error(), false
	}
	return fmt.Sprintf("At n = 10⁶, d = k = 1 and (0.5, 10⁻⁶), the proof needs c = %.0f random reports of a "+
		"value. γ gives %.0f. δ is still only %.1g.",
		need, has, delta), has < .51*need && delta < 1e-6
}

func showTwiceDelta() (string, bool) {
	const t, delta = 4, 1e-6
	spent := t*(delta/t) + delta
	return fmt.Sprintf("At t = %d and δ = 10⁻⁶, r·δ′ + δ = %.1g.", t, spent), spent > 1.9*delta
}

func showBestK() (string, bool) {
	const n, d, eps, delta, a = 1e8, 100., .95, 1e-6, 28.
	slope := a * d * math.Log(1/delta) * math.Log(2/delta) / ((n - 1) * eps * eps)
	sum := func(k float64) float64 { return 1/(4*k*k) + slope*k }
	printed, root := 1/(4*slope), math.Cbrt(1/(2*slope))
	return fmt.Sprintf("Take n = 10⁸, d = 100 and (0.95, 10⁻⁶). At the printed k = %.1f the sum is %.3g. At the "+
			"cube root, %.2f, it is %.3g.",
			printed, sum(printed), root, sum(root)), sum(printed) > 2*sum(root) && sum(root) <= sum(root*1.01) &&
			sum(root) <= sum(root*.99)
}

func showPerReport() (string, bool) {
	at := func(t float64) (paper, perReport float64) {
		e := scm21{n: 1e6, d: 100, k: 3, t: t, eps: .95, delta: 1e-6}
		gamma, err := e.ourGamma()
		if err != nil {
			return math.NaN(), math.NaN()
		}
		paper = t * e.d * e.d / e.n * worstVariance(gamma, 3) / ((1 - gamma) * (1 - gamma))
		return paper, paper / (t * t)
	}
	one, oneEach := at(1)
	four, fourEach := at(4)
	return fmt.Sprintf("Take n = 10⁶, d = 100, k = 3 and (0.95, 10⁻⁶), with reports that travel apart and γ "+
		"composed. From t = 1 to 4 the paper's measure grows from %.2g to %.2g. The error of the average falls "+
		"from %.2g to %.2g.",
		one, four, oneEach, fourEach), four > one && fourEach < oneEach
}

func showTwoOrders() (string, bool) {
	at := func(n float64) float64 {
		e := scm21{n: n, d: 100, k: 3, t: 1, eps: .95, delta: .5}
		gamma := e.paperGamma()
		return e.d * e.d / n * worstVariance(gamma, 3) / ((1 - gamma) * (1 - gamma))
	}
	ratio := at(1e4) / at(1e5)
	return fmt.Sprintf("Take d = 100, k = 3 and (0.95, 0.5). From n = 10⁴ to 10⁵ the error of the worst values "+
		"falls by a factor of %.0f. n^(−7/6) falls by a factor of %.0f.",
		ratio, math.Pow(10, 7./6)), ratio > 100
}
