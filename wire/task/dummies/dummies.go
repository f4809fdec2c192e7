// Package dummies draws the dummies that a relay adds to a batch, from the distribution in its task ([task.Noise]).
//
// The draws are exact: only integers decide them. Nobody may ever learn a draw. So this package neither keeps nor logs
// it, and a relay draws anew for every batch (docs/proofs/relay-noise.md).
package dummies

import (
	"errors"
	"slices"
	"sort"

	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Law draws from the distribution that one [task.Noise] defines. It is safe for concurrent use if each caller has its
// own source.
type Law struct {
	noise  *task.Noise
	tables [][]uint64 // Cumulative sums of the tables' weights.
	which  []int      // Index of the table for each cell; nil for kind pool.
	factor uint64     // Largest factor of the tilt.
}

// New returns the law of a noise, which must be valid.
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

// Draw repeats until a draw satisfies the tilt and the total. It gives up after maxTries draws, or after maxPicks picks
// of a cell's number, but never before 64 draws. Laws that the planner finds need some hundred draws at most. So no
// task delays a relay by more than a second.
const (
	maxTries = 1 << 16
	maxPicks = 1 << 25
)

// ErrUnlikely is the error of [Law.Draw] if no draw satisfied the law's tilt and total.
var ErrUnlikely = errors.New("no draw of the noise met its tilt or total: the task's law is too unlikely")

// Draw returns the cells of all dummies of a batch, in ascending order for kind cells. The caller must permute them
// before sending.
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
		if !l.fill(numbers) || !l.accept(src, numbers) {
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

// pick returns a random index. The probability of index i is its weight divided by the sum of all; sums holds the
// cumulative sums.
func pick(src *randomizer.Source, sums []uint64) uint64 {
	v := src.Below(sums[len(sums)-1])
	return uint64(sort.Search(len(sums), func(i int) bool { return v < sums[i] }))
}

// fill gives the law's rest cell, if there is one, what the other cells leave of the total. It returns false if they
// exceed the total.
func (l *Law) fill(numbers []uint64) bool {
	if l.noise.Rest == nil {
		return true
	}
	rest := &numbers[*l.noise.Rest]
	*rest = *l.noise.Total
	for j, z := range numbers {
		if uint64(j) == *l.noise.Rest {
			continue
		}
		if z > *rest {
			return false
		}
		*rest -= z
	}
	return true
}

// accept decides whether independently drawn numbers are a draw of the law. If they have the law's total, it accepts
// them with the probability that the tilt gives.
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
	sum := -int64(tilt.Centre) // the sum's size stays below 2⁶³
	for j, z := range numbers {
		sum += (int64(tilt.Weights[j]) - int64(tilt.Zero)) * int64(z)
	}
	distance := uint64(max(sum, -sum))
	if distance >= uint64(len(tilt.Factors)) {
		return false
	}
	return src.Below(l.factor) < tilt.Factors[distance]
}
