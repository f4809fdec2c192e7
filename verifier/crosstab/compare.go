package crosstab

import "math"

// Comparison says whether a share differs between two groups, such as the arms of an experiment. It is about the
// populations of which the clients are a random sample: chance counts as well as noise.
type Comparison struct {
	Figure         // The difference of both shares, with an interval.
	P      float64 `json:"p"` // Probability of so large a difference, either way, if both shares are equal.
	// Clients in each group that would show this difference in 80 of 100 experiments; nil if there is none to show.
	NeededPer *float64 `json:"needed_per"`
}

// leastCompared is the least number of clients in each part, and outside of it in its group, for a [Comparison]. With
// fewer, the difference is not nearly normal.
const leastCompared = 20

// power is the normal quantile of 80 %.
const power = .8416212335729143

// Compare compares the shares of two parts, whose groups have no cell in common. ok is false if a group is not shown
// ([Table.Group]), or if a part or the rest of its group has too few clients.
//
// A share p̂ = Â/N̂ of N clients has the error (A − pN)/N by chance and (e_A − p·e_N)/N by noise. The variance of a
// difference is the sum over both groups of
//
//	p(1−p)/N + Var[e_A − p·e_N]/N²
//
// with p̂ and N̂ for p and N. The test takes the share of both groups together for p, because it tests whether they are
// equal.
func (t *Table) Compare(one, two Part, confidence float64) (*Comparison, bool) {
	var sizes, parts [2]float64
	groups := [2]Part{one, two}
	for i, p := range groups {
		if _, ok := t.Group(p.Group, confidence); !ok {
			return nil, false
		}
		sizes[i], parts[i] = t.estimate(p.Group), t.estimate(p.Cells)
		if !(parts[i] >= leastCompared && sizes[i]-parts[i] >= leastCompared) {
			return nil, false
		}
	}
	variance := func(i int, p float64) float64 {
		noise := t.bins.Weighted(t.weights(groups[i].Group, -p, groups[i].Cells, 1)).Variance()
		return p*(1-p)/sizes[i] + noise/(sizes[i]*sizes[i])
	}
	shares := [2]float64{parts[0] / sizes[0], parts[1] / sizes[1]}
	pooled := (parts[0] + parts[1]) / (sizes[0] + sizes[1])
	difference := shares[0] - shares[1]
	apart, equal := variance(0, shares[0])+variance(1, shares[1]), variance(0, pooled)+variance(1, pooled)
	z := math.Sqrt2 * math.Erfinv(confidence)
	reach := z * math.Sqrt(apart)
	return &Comparison{
		Figure:    Figure{difference, [2]float64{max(difference-reach, -1), min(difference+reach, 1)}},
		P:         math.Erfc(math.Abs(difference) / math.Sqrt(2*equal)),
		NeededPer: needed(shares, pooled, z, [2]float64{variance(0, shares[0]), variance(1, shares[1])}, sizes),
	}, true
}

// needed returns the clients per group with which the test finds the difference of two shares with a probability of
// 80 %, or nil if 2⁵⁰ are too few. The noise stays as it is, whatever the number of clients: v_i − p(1−p)/N_i is its
// part at N_i clients.
func needed(shares [2]float64, pooled, z float64, variances, sizes [2]float64) *float64 {
	chance, noise := 0.0, 0.0 // The variance at n clients is chance/n + noise/n².
	for i, p := range shares {
		chance += p * (1 - p)
		noise += (variances[i] - p*(1-p)/sizes[i]) * sizes[i] * sizes[i]
	}
	atZero := 2 * pooled * (1 - pooled)
	d := math.Abs(shares[0] - shares[1])
	short := func(n float64) bool {
		extra := noise / (n * n)
		return d < z*math.Sqrt(atZero/n+extra)+power*math.Sqrt(chance/n+extra)
	}
	most := math.Exp2(50)
	if short(most) {
		return nil
	}
	lo, hi := 1.0, most
	for hi/lo > 1.0001 {
		if n := math.Sqrt(lo * hi); short(n) {
			lo = n
		} else {
			hi = n
		}
	}
	n := math.Ceil(hi)
	return &n
}
