package relaynoise

import (
	"cmp"
	"math"
	"slices"
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
	n, _, err := levelsAndSpectrum(k, theta, target)
	return n, err
}

// levelsAndSpectrum is [Levels]. It also returns the spectrum of the law.
func levelsAndSpectrum(k uint64, theta float64, target Target) (*task.Noise, *spectrum, error) {
	if err := target.check(); err != nil {
		return nil, nil, err
	}
	if k < 1 || k >= maxTiltedCells {
		return nil, nil, invalid.Field("k", strconv.FormatUint(k, 10), "1 to "+strconv.Itoa(maxTiltedCells-1))
	}
	eps, cut := target.perEpoch()
	if !(theta > 0 && theta < eps) {
		return nil, nil, invalid.Field("theta", decimal.Format(theta, -1), "between 0 and "+decimal.Format(eps, 6)+
			", the epsilon of one epoch")
	}
	aim, reserve := cut, 1e-6*float64(k)
	for range 8 {
		n := levels(int(k), theta, eps*(1-reserve), aim)
		curve, s, err := newCurve(n, 1)
		switch {
		case err != nil:
			return nil, nil, err
		case curve.ratio > eps:
			reserve *= 4
		case curve.tail > cut:
			if aim *= .98 * cut / curve.tail; aim < leastAim*cut {
				return nil, nil, tooFew(0)
			}
		case s == nil: // Next to no law of levels is Gaussian.
			s, err = newSpectrum(newTilt(n))
			return n, s, err
		default:
			return n, s, nil
		}
	}
	return nil, nil, tooFew(0)
}

// leastAim is the least aim of [Levels], relative to the bound on the law's tail. With a smaller aim, rounding of sums
// alone exceeds the bound.
const leastAim = 1e-6

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
// and each of relays relays adds dummies. With V the variance of the weighted sum of one relay's dummies, the sum's root
// mean squared error is
//
//	√(relays·V/k² + users/(4k²)),
//
// The first term is the noise, the second the rounding to levels for the worst values. Sum picks the k and θ with the
// smallest error that need at most most dummies per relay and batch. If most is 0, it picks those with the fewest
// dummies whose error is at most a fifth above the least possible, √(2·relays)/ε; if there are none, it picks the
// smallest error. For several epochs, it also tries Gaussian tilts (docs/proofs/relay-noise.md, Theorem 3). Sum skips
// laws whose certificate takes a client too long to check, and all laws with as many or more dummies.
func Sum(users uint64, relays int, target Target, most float64) (k uint64, n *task.Noise, err error) {
	if err := target.check(); err != nil {
		return 0, nil, err
	}
	designs := target.designs(users, relays)
	if target.Epochs > 1 {
		k, n, err = target.gaussSum(users, relays, most)
	}
	if n != nil && hopeless(designs, candidate{k, n}, users, relays) {
		return k, n, nil
	}
	other, law, failed := target.laplaceSum(designs, users, relays, most)
	if n == nil || failed == nil && better(candidate{other, law}, candidate{k, n}, users, relays, most) {
		return other, law, failed
	}
	return k, n, err
}

// laplaceSum is [Sum] for the laws of [Levels].
func (c Target) laplaceSum(designs []design, users uint64, relays int, most float64) (uint64, *task.Noise, error) {
	usual, n, err := c.usual(designs, relays)
	if most == 0 {
		return usual.k, n, err
	}
	if n != nil {
		designs = append(designs, usual)
	}
	return c.within(designs, users, relays, most)
}

// design is a choice of k and θ for a sum, with estimates of its dummies and of its error in levels.
type design struct {
	k              uint64
	theta, dummies float64
	variance, err  float64 // V in levels² by the bound 2(k/θ)², and the error by the estimate of [expected].
}

// designs returns the choices whose certificate a client can check.
func (c Target) designs(users uint64, relays int) (out []design) {
	eps, cut := c.perEpoch()
	for k := uint64(1); k <= mostLevels; k += 1 + k/16 {
		for share := .1; share < .87; share += .05 { // Beyond, the outer levels need very wide laws.
			d := design{k: k, theta: share * eps}
			dummies, variance, width := expected(k, d.theta, eps, cut)
			if width > maxSize {
				continue
			}
			d.dummies = dummies
			d.variance = float64(relays)*2/(d.theta*d.theta) + float64(users)/float64(4*k*k)
			d.err = math.Sqrt((float64(relays)*variance + float64(users)/4) / float64(k*k))
			out = append(out, d)
		}
	}
	return out
}

// usual returns the design with the fewest dummies whose error is small enough, and its law.
func (c Target) usual(designs []design, relays int) (best design, n *task.Noise, err error) {
	eps, _ := c.perEpoch()
	enough := 1.2 * math.Sqrt(2*float64(relays)) / eps
	for limit := math.Inf(1); ; limit = .9 * best.dummies * levelsRoom {
		score := math.Inf(1)
		for _, d := range designs {
			found := math.Sqrt(d.variance)
			if d.dummies*levelsRoom > limit {
				continue
			}
			if found <= enough {
				found = d.dummies / 1e9 // Ranks below every error that is too large.
			}
			if found < score {
				score, best = found, d
			}
		}
		if math.IsInf(score, 1) {
			return design{}, nil, cmp.Or(err, error(tooFew(0)))
		}
		if n, err = Levels(best.k, best.theta, c); err == nil {
			return best, n, nil
		}
	}
}

// levelsRoom is how many times the estimated dummies the search of [Levels] takes at most, as a rule.
const levelsRoom = 1.03

// leastRatio is the least ratio of a law's dummies to their estimate.
const leastRatio = .99

// alike is the ratio of two estimates of an error below which the true errors decide.
const alike = 1.06

// within returns the design with the least error among those with at most most dummies. It goes through the designs
// by their estimated error, and computes the laws of those that may be the best.
func (c Target) within(designs []design, users uint64, relays int, most float64) (k uint64, n *task.Noise, err error) {
	slices.SortStableFunc(designs, func(a, b design) int { return cmp.Compare(a.err, b.err) })
	most *= 1 + 1e-9
	first, least := math.Inf(1), math.Inf(1)
	ratios := map[uint64]float64{} // By k: a lower bound on the ratio of dummies to their estimate.
	for _, d := range designs {
		if d.err > alike*first {
			break
		}
		if d.dummies*cmp.Or(ratios[d.k], leastRatio) > most {
			continue
		}
		law, s, failed := levelsAndSpectrum(d.k, d.theta, c)
		if failed != nil {
			err = failed
			continue
		}
		laws := s.lawsOf()
		if dummies := laws.Dummies(); dummies > most {
			ratios[d.k] = max(leastRatio, .93*dummies/d.dummies) // Of one k, ratios differ by less than 7 %.
			continue
		}
		first = min(first, d.err)
		found := (float64(relays)*laws.Sum.Variance() + float64(users)/4) / float64(d.k*d.k)
		if found < least {
			k, n, least = d.k, law, found
		}
	}
	if n == nil {
		return 0, nil, cmp.Or(err, error(tooFew(most)))
	}
	return k, n, nil
}

// mostLevels is the largest k of a sum. Clients check such a certificate in some tens of milliseconds.
const mostLevels = 256

// expected estimates the number of dummies of a law of levels, the variance of their weighted sum, and the width of
// the spectrum that its certificate takes. For the variance it takes the sum before the tilt as normal with some
// standard deviation σ. With s = θ/k the slope of the tilt, a = sσ and h = φ(a)/(1 − Φ(a)), it is then
// σ²(1 + a² − a·h).
func expected(k uint64, theta, eps, cut float64) (dummies, variance, width float64) {
	square := 0.0
	for j := range k + 1 {
		rise, fall := slopesOf(theta*float64(min(j, k-j))/float64(k), eps-theta)
		before, after := 1/math.Expm1(rise), 1/math.Expm1(fall) // mean distances from the peak, on either side
		dummies += peakOf(rise, fall, cut) - before + after
		square += float64(j*j) * (before*(1+before) + after*(1+after))
	}
	slope, sigma := theta/float64(k), math.Sqrt(square)
	return dummies, tiltedVariance(slope, sigma), math.Log(1e4/cut)/slope + deviations*sigma
}

// tiltedVariance returns the variance of a law whose density is that of a normal law times e^{−slope·|x|}.
func tiltedVariance(slope, sigma float64) float64 {
	a := slope * sigma
	if a > 30 { // Of 1 − Φ(a) few digits would be left. The law is practically Laplace.
		return 2 / (slope * slope)
	}
	hazard := math.Exp(-a*a/2) / math.Sqrt(math.Pi/2) / math.Erfc(a/math.Sqrt2)
	return sigma * sigma * (1 + a*a - a*hazard)
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
