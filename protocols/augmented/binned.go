package augmented

import (
	"github.com/doona-dp/doona/accountant/relaynoise"
	"github.com/doona-dp/doona/protocols"
)

// Weighted implements [protocols.Bins.Weighted] for a histogram. The error comes from the weighted dummies of the
// cells, with D draws each, and from local randomization.
//
// If the task's noise has no total, the numbers of dummies Z_j are independent, so the variance is D·Σ w_j²·Var[Z_j].
// If it has a total T, they are exchangeable and their sum is constant. Then Var[Z_j] = σ² and Cov[Z_i, Z_j] =
// −σ²/(K−1). With w̄ the mean weight,
//
//	Var[Σ w_j·Z_j] = σ²·K/(K−1) · Σ (w_j − w̄)²                                                    (3)
//
// With a rest cell d, the other cells are independent, and d gets what they leave. Then
//
//	Var[Σ w_j·Z_j] = Σ_{j≠d} (w_j − w_d)²·σ²                                                        (4)
//
// Without one, a sum of cells with a total varies less than that of independent cells, and the difference of two cells
// varies more. The excess kurtosis of the weighted sum is e/D·Σ w_j⁴/(Σ w_j²)², with e that of Z_j. With a total the
// weights are w_j − w̄, and there is a factor K/(K−1); this is exact for two cells and tends to the independent case.
func (a *aggregate) Weighted(weights []float64) protocols.ErrorLaw {
	cells, draws, counts := a.m.laws().Cells, float64(a.draws), a.Total()
	estimate := 0.0
	for j, c := range counts {
		estimate += weights[j] * c
	}
	middle, k := 0.0, float64(len(cells))
	if rest := a.m.task.Noise.Rest; rest != nil {
		middle = weights[*rest]
	} else if a.m.task.Noise.Total != nil {
		for _, w := range weights {
			middle += w / k
		}
	}
	variance, fourth := 0.0, 0.0
	var v, excess float64
	for j, w := range weights {
		w -= middle
		if j == 0 || &cells[j].Mass[0] != &cells[j-1].Mass[0] {
			v, excess = a.m.moments(cells[j])
		}
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

// normal returns the error distribution of the dummies' Σ w_j·Z_j. It takes variance = Σ (w_j − w̄)²·Var[Z_j] and
// fourth = Σ (w_j − w̄)⁴·Var[Z_j]²·e_j. w̄ is the rest cell's weight or the mean weight if the noise has a total, else
// 0.
func (a *aggregate) normal(variance, fourth float64) (law protocols.Normal) {
	growth, left := 1.0, 1-a.m.gamma()
	if a.m.exchangeable() {
		k := float64(len(a.counts))
		growth = k / (k - 1) // by (3) of Weighted
	}
	if variance > 0 {
		law.Excess = fourth / (variance * variance) * growth
	}
	law.Plugged = variance * growth / (left * left)
	return law
}

// Below implements [protocols.Bins.Below]. It returns what [aggregate.Weighted] would for weights 1 of the first cells
// and 0 of the others. It sums up cell by cell, because K separate calls would take K² steps. Beyond half of the cells
// it returns n minus the other cells' count. If the noise has no total, that is less noisy; with a total it is equally
// noisy. With a rest cell, it counts the cells without that one.
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
		own := 2*(j+1) <= len(counts)
		if d := a.m.task.Noise.Rest; d != nil {
			own = uint64(j) < *d
		}
		if rest := all.plus(in, -1); own {
			out[j] = a.whole(in, rest, 0, 1)
		} else {
			out[j] = a.whole(rest, in, n, -1)
		}
	}
	return out
}

// part holds sums over some of the cells: their number, their estimated counts, and the variances and fourth cumulants
// of their dummies.
type part struct{ cells, count, variance, fourth float64 }

func (p part) plus(q part, sign float64) part {
	return part{p.cells + sign*q.cells, p.count + sign*q.count, p.variance + sign*q.variance, p.fourth + sign*q.fourth}
}

// whole returns the error distribution of from + sign·x. x is the number of clients in the cells of in; rest holds the
// other cells. The estimate moves in steps of 1/(1-γ), one client.
func (a *aggregate) whole(in, rest part, from, sign float64) protocols.ErrorLaw {
	middle := 0.0
	if a.m.exchangeable() {
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

// exchangeable reports whether the numbers of dummies of all cells have a constant sum and are alike.
func (m *Mechanism) exchangeable() bool { return m.task.Noise.Total != nil && m.task.Noise.Rest == nil }

// moments returns the variance and the excess kurtosis of one of the mechanism's dummy distributions. It caches them.
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
