// Package dummies draws what a relay adds to a batch, from the law in its task ([task.Noise]).
//
// The draws are exact: only whole numbers decide them. Nobody may ever learn one, so nothing here is kept
// or logged, and a relay draws anew for every batch (docs/proofs/relay-noise.md).
package dummies

import (
	"errors"
	"slices"
	"sort"

	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Law draws from one law. It is safe for concurrent use, each with a source of its own.
type Law struct {
	noise  *task.Noise
	tables [][]uint64 // Running sums of the tables' weights.
	which  []int      // Table by cell; nil for kind pool.
	factor uint64     // The tilt's largest.
}

// New returns the law of a valid noise.
func New(n *task.Noise) *Law {
	l := &Law{noise: n}
	for _, table := range n.Tables {
		sum, sums := uint64(0), make([]uint64, len(table))
		for z, weight := range table {
			sum += weight
			sums[z] = sum
		}
		l.tables = append(l.tables, sums)
	}
	if n.Tilt != nil {
		l.factor = slices.Max(n.Tilt.Factors)
	}
	if n.Kind == task.NoiseCells {
		n.Each(func(_ uint64, run task.Run) {
			for range run.Count {
				l.which = append(l.which, int(run.Table))
			}
		})
	}
	return l
}

// maxTries is how often numbers are drawn until they meet the tilt or the total. Laws that are searched for
// need some hundred at most; one that needs more is refused, so that no task can hold up a relay for more than
// a second.
const (
	maxTries = 1 << 16
	maxPicks = 1 << 25
)

// ErrUnlikely says that what was drawn never met the law's tilt or total.
var ErrUnlikely = errors.New("no draw of the noise met its tilt or total: the task's law is too unlikely")

// Draw returns the cell of every dummy of a batch, cell after cell: whoever sends them permutes.
func (l *Law) Draw(src *randomizer.Source) (cells []uint64, err error) {
	if l.noise.Kind == task.NoisePool {
		cells = make([]uint64, l.noise.Pool)
		for i := range cells {
			cells[i] = src.Below(l.noise.Cells)
		}
		return cells, nil
	}
	numbers := make([]uint64, len(l.which))
	for range max(64, min(maxTries, maxPicks/len(numbers))) {
		for j, table := range l.which {
			numbers[j] = pick(src, l.tables[table])
		}
		if !l.accept(src, numbers) {
			continue
		}
		for j, z := range numbers {
			for range z {
				cells = append(cells, uint64(j))
			}
		}
		return cells, nil
	}
	return nil, ErrUnlikely
}

// pick returns an index with the probability that running sums of weights give it.
func pick(src *randomizer.Source, sums []uint64) uint64 {
	v := src.Below(sums[len(sums)-1])
	return uint64(sort.Search(len(sums), func(i int) bool { return v < sums[i] }))
}

// accept decides whether independent numbers stand for the law: with the probability of their tilt, and
// only if they have the total.
func (l *Law) accept(src *randomizer.Source, numbers []uint64) bool {
	if total := l.noise.Total; total != nil {
		sum := uint64(0)
		for _, z := range numbers {
			sum += z
		}
		if sum != *total {
			return false
		}
	}
	tilt := l.noise.Tilt
	if tilt == nil {
		return true
	}
	sum := uint64(0) // below 2⁶³
	for j, z := range numbers {
		sum += tilt.Weights[j] * z
	}
	distance := max(sum, tilt.Centre) - min(sum, tilt.Centre)
	if distance >= uint64(len(tilt.Factors)) {
		return false
	}
	return src.Below(l.factor) < tilt.Factors[distance]
}
