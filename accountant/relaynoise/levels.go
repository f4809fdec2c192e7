package relaynoise

import (
	"cmp"
	"math"
	"strconv"

	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/task"
)

// Levels returns a tilted law that meets the target for a sum of values in levels 0..k. Cell j holds messages of level
// j and has weight j. theta, in (0, ε of one epoch), is the part of ε that hides the sum: the sum of one relay's
// dummies has a variance of about 2(k/theta)². The rest of ε hides the levels and determines the number of dummies.
// With x_j = θ·min(j, k−j)/k, the table of cell j rises by factors e^{.65(ε−θ)+x_j} up to its peak and then falls by
// factors e^{−.35(ε−θ)−x_j}. So the largest finite loss ([Curve.Ratio]) is at most ε, because x_a + x_b + θ·|a−b|/k ≤
// θ.
func Levels(k uint64, theta float64, target Target) (*task.Noise, error) {
	if err := target.check(); err != nil {
		return nil, err
	}
	if k < 1 || k >= maxTiltedCells {
		return nil, invalid.Field("k", strconv.FormatUint(k, 10), "1 to "+strconv.Itoa(maxTiltedCells-1))
	}
	eps, cut := target.perEpoch()
	if !(theta > 0 && theta < eps) {
		return nil, invalid.Field("theta", decimal.Format(theta, -1), "between 0 and "+decimal.Format(eps, 6)+
			", the epsilon of one epoch")
	}
	aim, reserve := cut, 1e-6*float64(k)
	for range 8 {
		n := levels(int(k), theta, eps*(1-reserve), aim)
		curve, err := New(n)
		switch {
		case err != nil:
			return nil, err
		case curve.ratio > eps:
			reserve *= 4
		case curve.tail > cut:
			aim *= .98 * cut / curve.tail
		default:
			return n, nil
		}
	}
	return nil, tooFew(0)
}

// tiltedCut is the part of a target's δ that may go to infinite losses if there are several epochs.
const tiltedCut = .3

// perEpoch returns the ε and the δ of infinite losses (cut) that a tilted law may cost in one epoch.
func (c Target) perEpoch() (eps, cut float64) {
	if c.Epochs == 1 {
		return c.Epsilon, c.Delta
	}
	cut = tiltedCut * c.Delta / float64(c.Epochs)
	return c.oneEpoch(func(eps float64) bool { return c.Total(&Curve{ratio: eps, tail: cut}) <= c.Delta }), cut
}

// Sum returns a tilted law, and its number of levels k, for a sum of values in [0, 1]. Each batch has users reports,
// and each of relays relays adds dummies. The sum's root mean squared error is
//
//	√(relays·2/θ² + users/(4k²)),
//
// The first term is the noise, the second the rounding to levels for the worst values. Sum picks the k and θ with the
// smallest error that need at most most dummies per relay and batch. If most is 0, it picks those with the fewest
// dummies whose error is at most a fifth above the least possible, √(2·relays)/ε; if there are none, it picks the
// smallest error. Sum skips laws whose certificate takes a client too long to check, and all laws with as many or more
// dummies.
func Sum(users uint64, relays int, target Target, most float64) (k uint64, n *task.Noise, err error) {
	if err := target.check(); err != nil {
		return 0, nil, err
	}
	limit := most
	for {
		levels, theta, dummies := target.levelsFor(users, relays, most == 0, limit)
		if levels == 0 {
			return 0, nil, cmp.Or(err, error(tooFew(most)))
		}
		if n, err = Levels(levels, theta, target); err == nil {
			return levels, n, nil
		}
		limit = .9 * dummies
	}
}

// levelsFor returns the k and θ (best) that [Sum] picks among those with at most limit dummies, and their number of
// dummies. limit 0 means no limit. It returns k = 0 if there are none. If fewest is true, it minimizes dummies among
// those whose error is small enough.
func (c Target) levelsFor(users uint64, relays int, fewest bool, limit float64) (k uint64, best, dummies float64) {
	eps, cut := c.perEpoch()
	enough, score := 1.2*math.Sqrt(2*float64(relays))/eps, math.Inf(1)
	for levels := uint64(1); levels <= mostLevels; levels += 1 + levels/16 {
		for share := .1; share < .87; share += .05 { // beyond .87 the outer levels need very wide tables
			theta := share * eps
			found := math.Sqrt(float64(relays)*2/(theta*theta) + float64(users)/float64(4*levels*levels))
			of, width := expected(levels, theta, eps, cut)
			of *= 1.03 // the search in Levels adds slightly more dummies
			if limit > 0 && of > limit || width > maxSize {
				continue
			}
			if fewest && found <= enough {
				found = of / 1e9 // scores less than every error that is too large, so it is preferred
			}
			if found < score {
				score, k, best, dummies = found, levels, theta, of
			}
		}
	}
	return k, best, dummies
}

// mostLevels is the largest k of a sum. Clients check such a certificate in some tens of milliseconds.
const mostLevels = 256

// expected estimates the number of dummies of a law of levels, and the size N of the [spectrum] that its certificate
// needs.
func expected(k uint64, theta, eps, cut float64) (dummies, width float64) {
	variance := 0.0
	for j := range k + 1 {
		rise, fall := slopesOf(theta*float64(min(j, k-j))/float64(k), eps-theta)
		before, after := 1/math.Expm1(rise), 1/math.Expm1(fall) // mean distances from the peak, on either side
		dummies += peakOf(rise, fall, cut) - before + after
		variance += float64(j*j) * (before*(1+before) + after*(1+after))
	}
	return dummies, math.Log(1e4/cut)*float64(k)/theta + deviations*math.Sqrt(variance)
}

// deviations is about the number of standard deviations that a certificate must cover on either side of the mean of the
// dummies' sum.
const deviations = 8

// levels returns the law of [Levels] in which each cell has no dummies with a probability of about aim.
func levels(k int, theta, eps, aim float64) *task.Noise {
	n := &task.Noise{Kind: task.NoiseCells, Cells: uint64(k + 1), Tilt: &task.Tilt{}}
	centre := 0.0
	for j := range k + 1 {
		n.Tilt.Weights = append(n.Tilt.Weights, uint64(j))
		n.Which = append(n.Which, task.Run{Count: 1, Table: uint64(min(j, k-j))})
		if j <= k-j {
			n.Tables = append(n.Tables, level(theta*float64(j)/float64(k), eps-theta, aim))
		}
		centre += float64(j) * newLaw(0, floats(n.Tables[min(j, k-j)])).Mean()
	}
	n.Tilt.Centre = uint64(math.Round(centre))
	slope := theta / float64(k)
	n.Tilt.Factors = weights(int(math.Log(1e4/aim)/slope), func(d int) float64 { return -slope * float64(d) })
	n.Which = mergeRuns(n.Which)
	return n
}

// level returns the table of a cell. x is the part of θ that is added to both slopes of the cell; rest is ε−θ.
func level(x, rest, aim float64) []uint64 {
	rise, fall := slopesOf(x, rest)
	at := int(math.Ceil(peakOf(rise, fall, .97*aim)))
	return Laplace(rise, fall, at, at+1+int(peakOf(fall, rise, aim/50)))
}

func slopesOf(x, rest float64) (rise, fall float64) { return .65*rest + x, .35*rest + x }

// peakOf returns the distance from the peak at which a law with two slopes has the probability aim, on the rising side.
func peakOf(rise, fall, aim float64) float64 {
	peak := 1 / (1/-math.Expm1(-rise) + 1/-math.Expm1(-fall) - 1)
	return math.Log(max(1, peak/aim)) / rise
}

// mergeRuns merges adjacent runs with the same table. It returns nil if all cells have one table.
func mergeRuns(runs []task.Run) (out []task.Run) {
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
