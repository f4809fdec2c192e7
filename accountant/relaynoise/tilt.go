package relaynoise

import (
	"math"
	"slices"
	"strconv"

	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/task"
)

// tilted returns the curve of a tilted law, the bound (4) of the package comment, and its spectrum. For a Gaussian tilt
// it returns the bound (5), and no spectrum.
func tilted(n *task.Noise) (*Curve, *spectrum, error) {
	if n.Cells > maxTiltedCells {
		return nil, nil, invalid.Field("noise.cells", strconv.FormatUint(n.Cells, 10),
			"at most "+strconv.Itoa(maxTiltedCells)+" with a tilt")
	}
	if n.Tilt.Centre > maxWeight || n.Tilt.Zero > maxWeight || slices.Max(n.Tilt.Weights) > maxWeight {
		return nil, nil, invalid.Field("noise.tilt", "with a large centre, zero or weight",
			"at most "+strconv.Itoa(maxWeight))
	}
	for _, table := range n.Tables {
		if len(table) > maxTiltedTable {
			return nil, nil, invalid.Field("noise.tables", strconv.Itoa(len(table))+" numbers",
				"at most "+strconv.Itoa(maxTiltedTable)+" in each, with a tilt")
		}
	}
	numbers := 0
	n.Each(func(_ uint64, run task.Run) { numbers += int(run.Count) * len(n.Tables[run.Table]) })
	if numbers > maxTiltedNumbers {
		return nil, nil, tooLarge(numbers)
	}
	t := newTilt(n)
	if g := newGauss(t); g != nil {
		return &Curve{gauss: g}, nil, nil
	}
	ratio, err := t.ratio()
	if err != nil {
		return nil, nil, err
	}
	if !(ratio <= maxRatio) {
		return nil, nil, invalid.Field("noise.tilt", "a privacy loss of "+decimal.Up(ratio, 6),
			"at most "+strconv.Itoa(maxRatio)+", which bounds what tables, factors and weights add up to")
	}
	s, err := newSpectrum(t)
	if err != nil {
		return nil, nil, err
	}
	return &Curve{ratio: ratio*(1+1e-12) + 1e-12, tail: min(1, s.ends())}, s, nil
}

// Limits of tilted laws. maxTiltedCells bounds the pairs of cells that [spectrum.ends] compares.
const (
	maxTiltedCells = 1 << 10
	maxTiltedTable = 1 << 12
	// Most numbers in the tables of all cells. Their moment generating functions take some milliseconds.
	maxTiltedNumbers = 1 << 19
	maxWeight        = 1 << 30 // Keeps products of weights in [spectrum] within 64 bits.
	maxRatio         = 100     // Largest privacy loss, in ε. No claim exceeds it.
)

// tilt is a tilted law, converted from a [task.Noise].
type tilt struct {
	laws    [][]float64 // Pr[Z_j = z] before the tilt, for each table.
	logs    [][]float64 // Logarithms of laws.
	table   []int       // By cell.
	weights []int       // By cell, less the tilt's zero.
	centre  int
	factors []float64 // For each distance from the centre; the largest factor is 1.

	farthest int // Largest distance of a sum from the centre.
}

func newTilt(n *task.Noise) *tilt {
	t := &tilt{centre: int(n.Tilt.Centre)}
	t.laws, _ = tables(n)
	for _, law := range t.laws {
		logs := make([]float64, len(law))
		for z, p := range law {
			logs[z] = math.Log(p)
		}
		t.logs = append(t.logs, logs)
	}
	n.Each(func(first uint64, run task.Run) {
		for _, weight := range n.Tilt.Weights[first : first+run.Count] {
			t.table = append(t.table, int(run.Table))
			t.weights = append(t.weights, int(weight)-int(n.Tilt.Zero))
		}
	})
	for _, factor := range n.Tilt.Factors {
		t.factors = append(t.factors, float64(factor)/float64(n.Tilt.Factors[0]))
	}
	low, high := 0, 0
	for j, w := range t.weights {
		end := w * (len(t.law(j)) - 1)
		low, high = low+min(end, 0), high+max(end, 0)
	}
	t.farthest = max(t.centre-low, high-t.centre)
	return t
}

// ratio returns the largest privacy loss over outcomes that are possible for both cells a and b:
//
//	max_{a≠b} φ_a + ρ_b + τ·|w_a − w_b|,   φ_a = max ln f_a(u)/f_a(u+1), ρ_b = max ln f_b(v)/f_b(v−1),
//
// where τ is the largest fall of the factors' logarithm from one distance to the next.
func (t *tilt) ratio() (most float64, err error) {
	fall := make([]float64, len(t.laws))
	rise := make([]float64, len(t.laws))
	for i, law := range t.laws {
		var up, down bool
		fall[i], _, down = slopes(law)
		_, rise[i], up = slopes(law)
		if !up || !down {
			return 0, invalid.Field("noise.tables", "a weight of 0", "weights above 0, with a tilt")
		}
	}
	step, back, ok := slopes(t.factors)
	if !ok || back > 0 {
		return 0, invalid.Field("noise.tilt.factors", "one that is 0 or above the one before", "falling ones above 0")
	}
	for a, w := range t.weights {
		for b, x := range t.weights {
			if a != b {
				most = max(most, fall[t.table[a]]+rise[t.table[b]]+step*math.Abs(float64(w-x)))
			}
		}
	}
	return most, nil
}

// slopes returns the largest fall and the largest rise of a law's logarithm from one number to the next. ok is false if
// any probability is 0.
func slopes(law []float64) (fall, rise float64, ok bool) {
	for i, p := range law {
		if p == 0 {
			return 0, 0, false
		}
		if i > 0 {
			step := math.Log(law[i-1] / p)
			fall, rise = max(fall, step), max(rise, -step)
		}
	}
	return fall, rise, true
}

// ends returns an upper bound on the probability of outcomes that are impossible if the client sent the other cell:
//
//	max_{a≠b} Pr[Z_b = 0] + Pr[Z_a = M_a] + Φ(F+1−|w_a−w_b|)/E[Φ(X)]                              (7)
//
// The last term bounds the probability that the sum is beyond the factors' range with the other message. It is 0 if no
// sum can be that far out. Events that happen together are counted twice.
func (s *spectrum) ends() (most float64) {
	for a := range s.weights {
		full := s.mass(a, len(s.law(a))-1)
		for b := range s.weights {
			if a != b {
				most = max(most, full+s.empty[b]+s.beyond(s.weights[a]-s.weights[b]))
			}
		}
	}
	return most
}

// law returns the law of a cell.
func (t *tilt) law(cell int) []float64 { return t.laws[t.table[cell]] }
