package relaynoise

import (
	"math"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/wire/task"
)

// gaussDesign is a choice of k and of the part of μ² that hides the sum, for a Gaussian tilt. Its estimates are close:
// they ignore the cuts and the rounding of tables.
type gaussDesign struct {
	k             uint64 // Even.
	part          float64
	dummies, err  float64 // Mean dummies of one relay and batch; root mean squared error in [0, 1].
	square, width float64 // s² and the length of the factors.
	tables        []gaussTable
}

// gaussTable is the Gaussian of the cells j and k−j.
type gaussTable struct {
	variance float64 // σ² before the tilt.
	centre   int
}

// newGaussDesign returns the design for a bound on μ² of one epoch.
//
//	part·μ² = k²/s²,  1/σ_j² = (1−part)·μ²/2 + (k²/2 − 2(j−k/2)²)/s²                                    (9)
//
// With u = a − k/2 and v = b − k/2, the pair of cells a and b then has 1/σ_a² + 1/σ_b² + (a−b)²/s² = μ² − (u+v)²/s². So
// no pair exceeds μ², up to the terms in η. cut is the probability of each end of a table and of the factors.
func newGaussDesign(k uint64, part, square, cut float64, users uint64, relays int) (d gaussDesign) {
	width := float64(k)
	d = gaussDesign{k: k, part: part, square: width * width / (part * square)}
	spread, half := 0.0, int(k/2)
	for j := range half + 1 {
		u := float64(j - half)
		v := 1 / ((1-part)*square/2 + (width*width/2-2*u*u)/d.square)
		d.tables = append(d.tables, gaussTable{variance: v})
		spread += 2 * u * u * v
	}
	for j := range d.tables {
		u, t := float64(j-half), &d.tables[j]
		marginal := t.variance - u*u*t.variance*t.variance/(d.square+spread)
		t.centre = int(math.Ceil(math.Sqrt(2 * marginal * max(1, -math.Log(cut*math.Sqrt(2*math.Pi*marginal))))))
		d.dummies += 2 * float64(t.centre)
	}
	d.dummies -= float64(d.tables[half].centre)
	sum := 1 / (1/spread + 1/d.square)
	d.width = math.Ceil(width + math.Sqrt(2*sum*-math.Log(cut/2)))
	d.err = math.Sqrt((float64(relays)*sum + float64(users)/4) / (width * width))
	return d
}

// noise returns the law of a design.
func (d *gaussDesign) noise() *task.Noise {
	half := d.k / 2
	n := &task.Noise{Kind: task.NoiseCells, Cells: d.k + 1, Tilt: &task.Tilt{Zero: half}}
	for _, t := range d.tables {
		n.Tables = append(n.Tables, Gaussian(math.Sqrt(t.variance), t.centre))
	}
	for j := range d.k + 1 {
		n.Tilt.Weights = append(n.Tilt.Weights, j)
		n.Which = append(n.Which, task.Run{Count: 1, Table: min(j, d.k-j)})
	}
	n.Tilt.Factors = weights(int(d.width), func(x int) float64 { return -float64(x) * float64(x) / (2 * d.square) })
	return n
}

// mostGaussNumbers limits the numbers in a task of a Gaussian tilt: pages load them.
const mostGaussNumbers = 1 << 15

// gaussSum is [Sum] for Gaussian tilts. Levels are counted from the middle one, so weights add up to 0: the number of
// clients is known, so these sums tell the same, and the noise is smaller.
func (c Target) gaussSum(users uint64, relays int, most float64) (k uint64, n *task.Noise, err error) {
	times := float64(c.Epochs)
	ideal := compose.GaussianSquare(c.Epsilon, .9*c.Delta) / times
	enough := 1.2 * math.Sqrt(float64(relays)/ideal)
	cut := .02 * c.Delta / times
	limit := most * (1 + 1e-9)
	if most == 0 {
		limit = math.Inf(1)
	}
	for range 8 { // An estimate may be slightly below the dummies found.
		var best *gaussDesign
		for k := uint64(2); k <= mostLevels; k += 2 * (1 + k/32) {
			for part := .04; part < .9; part *= 1.15 {
				d := newGaussDesign(k, part, ideal, cut, users, relays)
				if d.dummies <= limit && d.numbers() <= mostGaussNumbers &&
					(best == nil || d.ranks(best, enough, most == 0)) {
					best = &d
				}
			}
		}
		if best == nil {
			break
		}
		n, dummies := c.gauss(best, ideal, cut, users, relays)
		if n != nil && (most == 0 || dummies <= most*(1+1e-9)) {
			return best.k, n, nil
		}
		limit = min(limit, best.dummies) * .99
	}
	return 0, nil, tooFew(most)
}

// numbers returns about how many numbers the task holds.
func (d *gaussDesign) numbers() (sum float64) {
	for _, t := range d.tables {
		sum += float64(2*t.centre + 1)
	}
	return sum + d.width
}

// ranks reports whether a design is better than another: without a limit on dummies, the fewest dummies among errors
// that are small enough; else the least error.
func (d *gaussDesign) ranks(other *gaussDesign, enough float64, fewest bool) bool {
	if fewest && d.err <= enough && other.err <= enough {
		return d.dummies < other.dummies
	}
	return d.err < other.err
}

// gauss returns the law with the least noise for a design's k and part that meets the target, and its mean number of
// dummies, or nil.
func (c Target) gauss(d *gaussDesign, ideal, cut float64, users uint64, relays int) (n *task.Noise, dummies float64) {
	law := func(i int) (*task.Noise, float64) {
		d := newGaussDesign(d.k, d.part, ideal*(1-float64(i)/1024), cut, users, relays)
		return d.noise(), d.dummies
	}
	const last = 256
	i := least(0, last, func(i int) bool { n, _ := law(i); return c.keeps(n) })
	if n, dummies = law(i); !c.keeps(n) {
		return nil, 0
	}
	return n, dummies
}

// candidate is a law for a sum with levels 0..k.
type candidate struct {
	k uint64
	n *task.Noise
}

// hopeless reports whether each design's error is estimated to exceed the found law's by more than a fifth.
func hopeless(designs []design, found candidate, users uint64, relays int) bool {
	least, _ := found.measure(users, relays)
	for _, d := range designs {
		if d.err <= 1.2*least {
			return false
		}
	}
	return true
}

// better reports whether law a is better than law b for [Sum]: without a limit on dummies, the fewest dummies if the
// errors are alike up to a fifth; else the smaller error.
func better(a, b candidate, users uint64, relays int, most float64) bool {
	ofA, dummiesA := a.measure(users, relays)
	ofB, dummiesB := b.measure(users, relays)
	if most == 0 && max(ofA, ofB) <= 1.2*min(ofA, ofB) {
		return dummiesA < dummiesB
	}
	return ofA < ofB
}

// measure returns the root mean squared error of a law's sum, and its mean number of dummies.
func (a candidate) measure(users uint64, relays int) (rmse, dummies float64) {
	laws, err := NewLaws(a.n)
	if err != nil {
		return math.Inf(1), math.Inf(1)
	}
	k := float64(a.k)
	return math.Sqrt((float64(relays)*laws.Sum.Variance() + float64(users)/4) / (k * k)), laws.Dummies()
}
