package augmented

import (
	"github.com/doona-dp/doona/accountant/relaynoise"
	"github.com/doona-dp/doona/protocols"
)

// Weighted is [protocols.Binned.Weighted], for a histogram: the dummies of the cells, D draws of each, and what local
// randomization adds.
//
// Without a total the numbers of dummies are independent, so the variance is D·Σ w_j²·Var[Z_j]. With a total T they are
// exchangeable and their sum does not vary: Var[Z_j] = σ² and Cov[Z_i, Z_j] = −σ²/(K−1), and with w̄ the mean weight
//
//	Var[Σ w_j·Z_j] = σ²·K/(K−1) · Σ (w_j − w̄)²                                                    (3)
//
// So a sum of cells varies less than independent cells would, and the difference of two varies more. The excess
// kurtosis e of Z_j becomes e/D·Σ w_j⁴/(Σ w_j²)²; with a total the weights are w_j − w̄, and times K/(K−1), which is
// exact for two cells and tends to that of independent ones.
func (a *aggregate) Weighted(weights []float64) protocols.ErrorLaw {
	cells, draws, left := a.m.laws().Cells, float64(a.draws), 1-a.m.gamma()
	counts := a.Total()
	law := protocols.Normal{}
	for j, c := range counts {
		law.Estimate += weights[j] * c
	}
	middle, growth := 0.0, 1.0
	if a.m.task.Noise.Total != nil {
		k := float64(len(cells))
		for _, w := range weights {
			middle += w / k
		}
		growth = k / (k - 1) // (3)
	}
	variance, fourth := 0.0, 0.0
	for j, w := range weights {
		w -= middle
		v, excess := a.m.moments(cells[j])
		variance += draws * w * w * v
		fourth += draws * w * w * w * w * v * v * excess
	}
	if variance > 0 {
		law.Excess = fourth / (variance * variance) * growth
	}
	law.Plugged = variance * growth / (left * left)
	if a.m.gamma() > 0 {
		law.Plugged += a.m.krr.WeightedVariance(weights, counts, float64(a.Reports()))
	}
	return law
}

// Below is [protocols.Binned.Below]. Beyond half of the cells the others' counts are taken from n, which has less noise
// where there is no total, and the same where there is one.
func (a *aggregate) Below() []protocols.ErrorLaw {
	k, n := len(a.counts), float64(a.Reports())
	out, weights := make([]protocols.ErrorLaw, k-1), make([]float64, k)
	for j := range k / 2 {
		weights[j] = 1
		out[j] = a.whole(a.Weighted(weights), 0, 1)
	}
	clear(weights)
	for j := k - 2; j >= k/2; j-- {
		weights[j+1] = 1
		out[j] = a.whole(a.Weighted(weights), n, -1)
	}
	return out
}

// whole returns the law of from + sign·x, x of a normal law: a number of clients, whose estimate moves in steps.
func (a *aggregate) whole(of protocols.ErrorLaw, from, sign float64) protocols.ErrorLaw {
	law := of.(protocols.Normal)
	law.Estimate, law.Step = from+sign*law.Estimate, 1/(1-a.m.gamma())
	return law
}

// moments returns the variance and the excess kurtosis of a law of this mechanism, found once.
func (m *Mechanism) moments(law relaynoise.Law) (variance, excess float64) {
	m.lock.Lock()
	defer m.lock.Unlock()
	if known, ok := m.shapes[&law.Mass[0]]; ok {
		return known[0], known[1]
	}
	mean, fourth := law.Mean(), 0.0
	for i, p := range law.Mass {
		d := float64(law.First+i) - mean
		variance += p * d * d
		fourth += p * d * d * d * d
	}
	if variance > 0 {
		excess = fourth/(variance*variance) - 3
	}
	if m.shapes == nil {
		m.shapes = map[*float64][2]float64{}
	}
	m.shapes[&law.Mass[0]] = [2]float64{variance, excess}
	return variance, excess
}
