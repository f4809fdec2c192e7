package relaynoise

import (
	"math"

	"github.com/doona-dp/doona/wire/task"
)

// Compared is a kind of law, with the least noise of that kind that meets a target.
type Compared struct {
	Law       string
	Deviation float64 // Standard deviation of the dummies of one cell; 0 if no law of this kind meets the target.
	Dummies   float64 // Mean number of dummies of one cell.
}

// Compare returns the kinds of law that the searches try for cells with one table, each with its least noise for a
// target. It explains a choice of [Independent] or [FixedTotal].
func Compare(cells uint64, target Target) ([]Compared, error) {
	if err := target.check(); err != nil {
		return nil, err
	}
	out := []Compared{
		narrowest("independent cells, Laplace tables", target.laplaces()),
		narrowest("independent cells, Gaussian tables", target.gaussians()),
	}
	if cells < 2 || cells > maxFixedCells {
		return out, nil
	}
	of := func(law string, n *task.Noise) Compared {
		if n == nil {
			return Compared{Law: law}
		}
		return Compared{law, math.Sqrt(variance(n)), float64(*n.Total) / float64(cells)}
	}
	return append(out, of("fixed total, Laplace tables", target.fixedLaplace(cells)),
		of("fixed total, Gaussian tables", target.fixedGaussian(cells))), nil
}

// narrowest returns the least noise of independent cells among tables.
func narrowest(law string, tables [][]uint64) Compared {
	out := Compared{Law: law}
	for _, table := range tables {
		one := newLaw(0, floats(table))
		if deviation := math.Sqrt(one.Variance()); out.Deviation == 0 || deviation < out.Deviation {
			out.Deviation, out.Dummies = deviation, one.Mean()
		}
	}
	return out
}
