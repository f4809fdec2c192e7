package relaynoise

import (
	"cmp"
	"math"
	"strconv"

	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/task"
)

// Levels returns a tilted law for sums of values in levels 0..k that meets the target, with cells 0..k and weights
// 0..k. theta, in (0, ε) of one epoch, is the part of ε that hides the sum: the variance of the sum of one relay's
// dummies is about 2(k/theta)². The rest of ε hides the levels, and determines the number of dummies.
//
// With x_j = θ·min(j, k−j)/k, cell j rises by e^{.65(ε−θ)+x_j} and falls by e^{−.35(ε−θ)−x_j}, so the ratio of
// [Curve.Ratio] is at most ε: x_a + x_b + θ·|a−b|/k ≤ θ.
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

// tiltedCut is the part of a target's δ over many epochs that is spent on infinite losses.
const tiltedCut = .3

// perEpoch returns what a tilted law of one epoch may cost.
func (c Target) perEpoch() (eps, cut float64) {
	if c.Epochs == 1 {
		return c.Epsilon, c.Delta
	}
	cut = tiltedCut * c.Delta / float64(c.Epochs)
	return c.oneEpoch(func(eps float64) bool { return c.Total(&Curve{ratio: eps, tail: cut}) <= c.Delta }), cut
}

// Sum returns the law, and its k, for a sum of values in [0, 1], for batches of a number of users to which a number
// of relays add dummies. Its root mean squared error is
//
//	√(relays·2/θ² + users/(4k²)),
//
// noise and, for the worst values, rounding to levels. Of all k and θ it takes the ones with the least error at no
// more than most dummies per relay and batch. With most = 0 it takes the ones with the fewest dummies whose error is
// within a fifth of the least possible, √(2·relays)/ε, or with the least error if none is. It skips laws whose
// certificate is more than a client can check, and with them all that have as many dummies.
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

// levelsFor returns the k and θ of [Sum] among those with at most limit dummies, 0 for no bound, and their dummies; 0
// if there are none. With fewest, it minimises dummies among those whose error is small enough.
func (c Target) levelsFor(users uint64, relays int, fewest bool, limit float64) (k uint64, best, dummies float64) {
	eps, cut := c.perEpoch()
	enough, score := 1.2*math.Sqrt(2*float64(relays))/eps, math.Inf(1)
	for levels := uint64(1); levels <= mostLevels; levels += 1 + levels/16 {
		for share := .1; share < .87; share += .05 { // Beyond, the outer levels need very wide laws.
			theta := share * eps
			found := math.Sqrt(float64(relays)*2/(theta*theta) + float64(users)/float64(4*levels*levels))
			of, width := expected(levels, theta, eps, cut)
			of *= 1.03 // The search of Levels takes slightly more.
			if limit > 0 && of > limit || width > maxSize {
				continue
			}
			if fewest && found <= enough {
				found = of / 1e9 // Ranks below every error that is too large.
			}
			if found < score {
				score, k, best, dummies = found, levels, theta, of
			}
		}
	}
	return k, best, dummies
}

// mostLevels limits the certificate of a sum to what a client checks in some tens of milliseconds.
const mostLevels = 256

// expected estimates the number of dummies of a law of levels, and the width of the spectrum that its certificate
// takes.
func expected(k uint64, theta, eps, cut float64) (dummies, width float64) {
	variance := 0.0
	for j := range k + 1 {
		rise, fall := slopesOf(theta*float64(min(j, k-j))/float64(k), eps-theta)
		before, after := 1/math.Expm1(rise), 1/math.Expm1(fall) // Means of the two geometric sides.
		dummies += peakOf(rise, fall, cut) - before + after
		variance += float64(j*j) * (before*(1+before) + after*(1+after))
	}
	return dummies, math.Log(1e4/cut)*float64(k)/theta + deviations*math.Sqrt(variance)
}

// deviations is about how many standard deviations the sum of the dummies stays within, as far as a certificate
// requires.
const deviations = 8

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
		centre += float64(j) * newLaw(0, floats(n.Tables[min(j, k-j)])).Mean()
	}
	n.Tilt.Centre = uint64(math.Round(centre))
	slope := theta / float64(k)
	n.Tilt.Factors = weights(int(math.Log(1e4/aim)/slope), func(d int) float64 { return -slope * float64(d) })
	n.Which = mergeRuns(n.Which)
	return n
}

// level returns the table of a cell whose share x of the tilt adds to both slopes.
func level(x, rest, aim float64) []uint64 {
	rise, fall := slopesOf(x, rest)
	at := int(math.Ceil(peakOf(rise, fall, .97*aim)))
	return Laplace(rise, fall, at, at+1+int(peakOf(fall, rise, aim/50)))
}

func slopesOf(x, rest float64) (rise, fall float64) { return .65*rest + x, .35*rest + x }

// peakOf returns how far from its peak a law with two slopes has the probability aim, on the side of the first slope.
func peakOf(rise, fall, aim float64) float64 {
	peak := 1 / (1/-math.Expm1(-rise) + 1/-math.Expm1(-fall) - 1)
	return math.Log(max(1, peak/aim)) / rise
}

// mergeRuns merges runs with the same table. It returns none if there is only one table.
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
