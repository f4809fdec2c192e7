package figures

import (
	"math"

	"github.com/doona-dp/doona/internal/testing/stattest"
)

// This file computes exact probabilities of small mechanisms, without the accountant. The errata use them to check
// papers, and so do not rely on the accountant.

// logChoose returns ln C(n, k).
func logChoose(n, k float64) float64 {
	a, _ := math.Lgamma(n + 1)
	b, _ := math.Lgamma(k + 1)
	c, _ := math.Lgamma(n - k + 1)
	return a - b - c
}

// binomial returns Pr[Bin(n, p) = k], 0 < p < 1.
func binomial(n, k int, p float64) float64 {
	if k < 0 || k > n {
		return 0
	}
	return math.Exp(logChoose(float64(n), float64(k)) + float64(k)*math.Log(p) + float64(n-k)*math.Log1p(-p))
}

// reports returns, for each of k values, the law of one report of k-ary randomized response. Keys of a law are
// histograms.
func reports(k int, gamma float64) (laws []stattest.Law) {
	for x := range k {
		l := stattest.Law{}
		l.Mix(1-gamma, stattest.OneMessage(k, x))
		for y := range k {
			l.Mix(gamma/float64(k), stattest.OneMessage(k, y))
		}
		laws = append(laws, l)
	}
	return laws
}
