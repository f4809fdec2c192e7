package relaynoise

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/task"
)

// Levels returns a tilted law for sums of values in levels 0..k that keeps the claim, with cells 0..k and
// weights 0..k. theta in (0, ε) of one epoch is the part of ε that hides the sum: the variance of the sum of
// what a relay adds is about 2(k/theta)². The rest hides the levels, and what it costs are dummies.
//
// With x_j = θ·min(j, k−j)/k, cell j rises by e^{.65(ε−θ)+x_j} and falls by e^{−.35(ε−θ)−x_j}, so that the
// ratio of [Curve.Ratio] is at most ε: x_a + x_b + θ·|a−b|/k ≤ θ.
func Levels(k uint64, theta float64, claim Claim) (*task.Noise, error) {
	if err := claim.check(); err != nil {
		return nil, err
	}
	if k < 1 || k >= maxTiltedCells {
		return nil, invalid.Field("k", strconv.FormatUint(k, 10), "1 to "+strconv.Itoa(maxTiltedCells-1))
	}
	eps, cut := claim.Epsilon, claim.Delta
	if claim.Epochs > 1 {
		cut = tiltedCut * claim.Delta / float64(claim.Epochs)
		eps = claim.oneEpoch(func(eps float64) bool {
			return claim.Total(&Curve{ratio: eps, tail: cut}) <= claim.Delta
		})
	}
	if !(theta > 0 && theta < eps) {
		return nil, invalid.Field("theta", decimal.Format(theta, -1), "between 0 and "+decimal.Format(eps, 6)+
			", the epsilon of one epoch")
	}
	aim, spare := cut, 1e-6*float64(k)
	for range 8 {
		n := levels(int(k), theta, eps*(1-spare), aim)
		curve, err := New(n)
		switch {
		case err != nil:
			return nil, err
		case curve.ratio > eps:
			spare *= 4
		case curve.tail > cut:
			aim *= .98 * cut / curve.tail
		default:
			return n, nil
		}
	}
	return nil, tooFew(0)
}

// tiltedCut is the part of a claim over many epochs that is spent on infinite losses.
const tiltedCut = .3

// levels builds the law whose cells are empty with a probability of about aim.
func levels(k int, theta, eps, aim float64) *task.Noise {
	n := &task.Noise{Kind: task.NoiseCells, Cells: uint64(k + 1), Tilt: &task.Tilt{}}
	centre := 0.0
	for j := range k + 1 {
		n.Tilt.Weights = append(n.Tilt.Weights, uint64(j))
		n.Which = append(n.Which, task.Run{Count: 1, Table: uint64(min(j, k-j))})
		if j <= k-j {
			n.Tables = append(n.Tables, level(theta*float64(j)/float64(k), eps-theta, aim))
		}
		m := &Moments{}
		m.add(floats(n.Tables[min(j, k-j)]))
		centre += float64(j) * m.Mean[0]
	}
	n.Tilt.Centre = uint64(math.Round(centre))
	slope := theta / float64(k)
	n.Tilt.Factors = weights(int(math.Log(1e4/aim)/slope), func(d int) float64 { return -slope * float64(d) })
	n.Which = joined(n.Which)
	return n
}

// level returns the table of a cell whose share x of the tilt adds to both slopes.
func level(x, rest, aim float64) []uint64 {
	rise, fall := .65*rest+x, .35*rest+x
	peak := 1 / (1/-math.Expm1(-rise) + 1/-math.Expm1(-fall) - 1)
	at := int(math.Ceil(math.Log(max(1, peak/(.97*aim))) / rise))
	return Laplace(rise, fall, at, at+1+int(math.Log(max(1, 50*peak/aim))/fall))
}

// joined returns runs whose neighbours have different tables, or none if there is one table.
func joined(runs []task.Run) (out []task.Run) {
	for _, run := range runs {
		if last := len(out) - 1; last >= 0 && out[last].Table == run.Table {
			out[last].Count += run.Count
		} else {
			out = append(out, run)
		}
	}
	if len(out) == 1 {
		return nil
	}
	return out
}
