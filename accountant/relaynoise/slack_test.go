package relaynoise_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant/relaynoise"
	"github.com/doona-dp/doona/wire/task"
)

// eventsFigure is the largest error of one relay's noise in each epoch, for k events in all epochs of a claim.
type eventsFigure struct {
	eps, delta float64
	k          uint64
	most       float64
}

// check searches laws for a count, which has one other letter and takes 2k copies of its law, and for 17 cells with a
// rest cell, which take k.
func (c eventsFigure) check(t *testing.T) {
	count := relaynoise.Target{Epsilon: c.eps, Delta: c.delta, Epochs: 2 * c.k}
	n, err := relaynoise.FixedTotal(2, count)
	counted := math.Sqrt(requireKeeps(t, n, err, count).Cells[0].Variance())
	require.LessOrEqual(t, counted, c.most, "%+v", c)
	target := relaynoise.Target{Epsilon: c.eps, Delta: c.delta, Epochs: c.k}
	n, err = relaynoise.Slack(17, 3, target, 0)
	laws := requireKeeps(t, n, err, target)
	cell := math.Sqrt(laws.Cells[0].Variance())
	require.InDelta(t, counted, cell, .03*counted, "%+v", c)
	require.InDelta(t, 4*cell, math.Sqrt(laws.Cells[3].Variance()), .01*cell)
	require.InDelta(t, float64(*n.Total), laws.Dummies(), 1e-6*float64(*n.Total))
	t.Logf("(%g, %g), k = %d: count %.3f, 17 cells %.3f with %d dummies", c.eps, c.delta, c.k, counted, cell, *n.Total)
}

// TestEventsFigures: the error does not depend on the number of epochs. The long form has all figures of
// docs/proofs/events.md.
func TestEventsFigures(t *testing.T) {
	eventsFigure{1, 1e-6, 1, 2.9}.check(t)
	eventsFigure{3, 1e-5, 2, 1.9}.check(t)
}

// TestHugeTotals: a task may state any total. Laws that would take gigabytes must be refused, and a total that no cells
// reach must cost nothing.
func TestHugeTotals(t *testing.T) {
	total, rest := uint64(1)<<36, uint64(0)
	n := &task.Noise{Kind: task.NoiseCells, Cells: 3, Tables: [][]uint64{{1, 1}}, Total: &total, Rest: &rest}
	laws, err := relaynoise.NewLaws(n)
	require.NoError(t, err)
	require.Len(t, laws.Cells[0].Mass, 3)
	require.Equal(t, int(total)-2, laws.Cells[0].First)
	require.InDelta(t, float64(total)-1, laws.Cells[0].Mean(), 1e-4)
	n.Cells = 1<<12 + 1
	_, err = relaynoise.New(n)
	require.ErrorContains(t, err, "invalid noise.cells 4097")
	n.Cells, n.Tables = 1<<12, [][]uint64{slices.Repeat([]uint64{1}, 1024)}
	_, err = relaynoise.New(n)
	require.ErrorContains(t, err, "with at most 2097152 dummies")
}
