package augmented

import (
	"github.com/doona-dp/doona/accountant/relaynoise"
	"github.com/doona-dp/doona/protocols"
)

// Weighted implements [protocols.Bins.Weighted], for a histogram: the law of the weighted dummies of the cells, D
// draws each, and of local randomization.
//
// Without a total in the task's noise the numbers of dummies Z_j are independent, so the variance is D·Σ
// w_j²·Var[Z_j]. With a total T they are exchangeable and their sum is constant: Var[Z_j] = σ² and Cov[Z_i, Z_j] =
// −σ²/(K−1). With w̄ the mean weight,
//
//	Var[Σ w_j·Z_j] = σ²·K/(K−1) · Σ (w_j − w̄)²                                                    (3)
//
// So a sum of cells varies less than independent cells would, and the difference of two varies more. The excess
// kurtosis e of Z_j becomes e/D·Σ w_j⁴/(Σ w_j²)². With a total the weights are w_j − w̄, and there is a factor
// K/(K−1): this is exact for two cells and tends to the independent case.
func (a *aggregate) Weighted(weights []float64) protocols.ErrorLaw {
	cells, draws, counts := a.m.laws().Cells, float64(a.draws), a.Total()
	estimate := 0.0
	for j, c := range counts {
		estimate += weights[j] * c
	}
	middle, k := 0.0, float64(len(cells))
	if a.m.task.Noise.Total != nil {
		for _, w := range weights {
			middle += w / k
		}
	}
	variance, fourth := 0.0, 0.0
	for j, w := range weights {
		w -= middle
		v, excess := a.m.moments(cells[j])
		variance += draws * w * w * v
		fourth += draws * w * w * w * w * v * v * excess
	}
	law := a.normal(variance, fourth)
	law.Estimate = estimate
	if a.m.gamma() > 0 {
		law.Plugged += a.m.krr.WeightedVariance(weights, counts, float64(a.Reports()))
	}
	return law
}

// normal returns the law of the dummies' Σ w_j·Z_j, from Σ (w_j − w̄)²·Var[Z_j] and Σ (w_j − w̄)⁴·Var[Z_j]²·e_j.
// Without a total, w̄ is 0.
func (a *aggregate) normal(variance, fourth float64) (law protocols.Normal) {
	growth, left := 1.0, 1-a.m.gamma()
	if a.m.task.Noise.Total != nil {
		k := float64(len(a.counts))
		growth = k / (k - 1) // (3)
	}
	if variance > 0 {
		law.Excess = fourth / (variance * variance) * growth
	}
	law.Plugged = variance * growth / (left * left)
	return law
}

// Below implements [protocols.Bins.Below]. The laws are those of [aggregate.Weighted] for the first cells. Sums grow
// cell by cell, because K separate laws would take K² steps. Beyond half of the cells the laws are n minus the other
// cells' counts. Without a total this has less noise; with one it has equal noise.
func (a *aggregate) Below() []protocols.ErrorLaw {
	counts, n := a.Total(), float64(a.Reports())
	sums := make([]part, len(counts)+1)
	for j, cell := range a.m.laws().Cells {
		v, excess := a.m.moments(cell)
		draws := float64(a.draws)
		sums[j+1] = sums[j].plus(part{1, counts[j], draws * v, draws * v * v * excess}, 1)
	}
	all := sums[len(counts)]
	out := make([]protocols.ErrorLaw, len(counts)-1)
	for j := range out {
		in := sums[j+1]
		if rest := all.plus(in, -1); 2*(j+1) <= len(counts) {
			out[j] = a.whole(in, rest, 0, 1)
		} else {
			out[j] = a.whole(rest, in, n, -1)
		}
	}
	return out
}

// part holds sums over some of the cells: the number of cells, their counts, and the variances and fourth cumulants
// of their dummies.
type part struct{ cells, count, variance, fourth float64 }

func (p part) plus(q part, sign float64) part {
	return part{p.cells + sign*q.cells, p.count + sign*q.count, p.variance + sign*q.variance, p.fourth + sign*q.fourth}
}

// whole returns the law of from + sign·x, where x is the count of the cells in part in; rest holds the other cells.
// The result is a number of clients, and its estimate moves in steps.
func (a *aggregate) whole(in, rest part, from, sign float64) protocols.ErrorLaw {
	middle := 0.0
	if a.m.task.Noise.Total != nil {
		middle = in.cells / (in.cells + rest.cells)
	}
	inside, outside := (1-middle)*(1-middle), middle*middle
	law := a.normal(inside*in.variance+outside*rest.variance, inside*inside*in.fourth+outside*outside*rest.fourth)
	law.Estimate, law.Step = from+sign*in.count, 1/(1-a.m.gamma())
	if a.m.gamma() > 0 {
		law.Plugged += a.m.krr.CellsVariance(in.cells, in.count, rest.count, float64(a.Reports()))
	}
	return law
}

// moments returns the variance and the excess kurtosis of a law of this mechanism. It caches them.
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
